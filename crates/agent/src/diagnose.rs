//! What a compiler, a linter or a language server's command line says about files, and what an edit changed about it.
//!
//! Read are lines of the forms that are around: `path:line:column: severity: message` (rustc and cargo with
//! `--message-format short`, gcc, clang, mypy, ruff, eslint's unix form), `path:line:column - severity: message` (pyright, tsc)
//! and `path(line,column): severity message` (tsc), and rustc's long form. Two are the same if they say the same about the
//! same file, wherever it stands: lines that moved are not new.

use crate::limits::{DIAGNOSTIC_BYTES_MAX, DIAGNOSTICS_MAX, DIAGNOSTICS_TOLD_MAX};
use std::collections::HashMap;
use std::fmt;
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub path: String, // relative to the workspace where it lies there
    pub line: u64,
    pub column: Option<u64>,
    pub severity: Severity,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    Error,
    Warning,
    /// It does not say.
    Some,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}:", self.path, self.line)?;
        if let Some(column) = self.column {
            write!(out, "{column}:")?;
        }
        match self.severity {
            Severity::Error => write!(out, " error: {}", self.message),
            Severity::Warning => write!(out, " warning: {}", self.message),
            Severity::Some => write!(out, " {}", self.message),
        }
    }
}

/// All that one run said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    pub all: Vec<Diagnostic>,
    pub cut: bool, // there were more
}

/// What changed between two runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    pub new: Vec<Diagnostic>,
    pub gone: usize,
}

impl Found {
    pub fn read(output: &str, folder: &Path) -> Found {
        let mut found = Found::default();
        let mut head = None; // of rustc's long form, whose place is on a line of its own
        for line in output.lines() {
            let line = line[..line.floor_char_boundary(DIAGNOSTIC_BYTES_MAX)].trim();
            let Some(diagnostic) = read(line, &mut head) else { continue };
            if found.all.len() == DIAGNOSTICS_MAX {
                found.cut = true;
                break;
            }
            found.all.push(Diagnostic { path: within(&diagnostic.path, folder), ..diagnostic });
        }
        found
    }

    /// How often each is there.
    fn counts(&self) -> HashMap<(&str, Severity, String), usize> {
        let mut counts = HashMap::new();
        for diagnostic in &self.all {
            *counts.entry(key(diagnostic)).or_insert(0) += 1;
        }
        counts
    }

    /// What there is now that was not before, and how many are gone.
    pub fn since(&self, before: &Found) -> Delta {
        let mut known = before.counts();
        let mut new = Vec::new();
        for diagnostic in &self.all {
            match known.get_mut(&key(diagnostic)).filter(|left| **left > 0) {
                Some(left) => *left -= 1,
                None => new.push(diagnostic.clone()),
            }
        }
        Delta { new, gone: known.values().sum() }
    }
}

/// As the model is told it.
impl fmt::Display for Delta {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.new.len() {
            0 => writeln!(out, "no new diagnostics")?,
            _ => writeln!(out, "new diagnostics:")?,
        }
        for diagnostic in self.new.iter().take(DIAGNOSTICS_TOLD_MAX) {
            writeln!(out, "{diagnostic}")?;
        }
        if self.new.len() > DIAGNOSTICS_TOLD_MAX {
            writeln!(out, "and {} more", self.new.len() - DIAGNOSTICS_TOLD_MAX)?;
        }
        if self.gone > 0 {
            writeln!(out, "gone: {}", self.gone)?;
        }
        Ok(())
    }
}

/// What makes two of them the same: neither where they stand, nor the lines that their words are about.
fn key(diagnostic: &Diagnostic) -> (&str, Severity, String) {
    let mut words = String::with_capacity(diagnostic.message.len());
    for (index, part) in diagnostic.message.split("line ").enumerate() {
        let part = match index {
            0 => part,
            _ => {
                words += "line ";
                part.trim_start_matches(|c: char| c.is_ascii_digit())
            }
        };
        words += part;
    }
    (&diagnostic.path, diagnostic.severity, words)
}

fn read(line: &str, head: &mut Option<(Severity, String)>) -> Option<Diagnostic> {
    if let Some(place) = line.strip_prefix("--> ") {
        let (severity, message) = head.take()?;
        let (path, line, column, _) = place_of(place)?;
        return Some(Diagnostic { path: path.to_owned(), line, column, severity, message });
    }
    if let Some((path, number, column, rest)) = place_of(line) {
        let rest = rest.strip_prefix(':').or_else(|| rest.strip_prefix(" - "))?.trim();
        let (severity, message) = match severity(rest) {
            Some((severity, message)) => (severity?, message),
            // Words alone could be about anything; with a column they are about code.
            None if column.is_some() && !rest.is_empty() => (by_rule(rest), rest),
            None => return None,
        };
        let (path, message) = (path.to_owned(), message.to_owned());
        return Some(Diagnostic { path, line: number, column, severity, message });
    }
    if let Some((Some(severity), message)) = severity(line) {
        *head = Some((severity, message.to_owned()));
    }
    None
}

/// A path, a line, perhaps a column, and what follows.
fn place_of(text: &str) -> Option<(&str, u64, Option<u64>, &str)> {
    if let Some((path, rest)) = text.split_once('(').filter(|(path, _)| is_path(path))
        && let Some((line, rest)) = number(rest)
        && let Some((column, rest)) = rest.strip_prefix(',').and_then(number)
        && let Some(rest) = rest.strip_prefix(')')
    {
        return Some((path, line, Some(column), rest));
    }
    let mut colons = text.match_indices(':').take(COLONS_MAX);
    colons.find_map(|(at, _)| {
        let (line, rest) = number(&text[at + 1..])?;
        let column = rest.strip_prefix(':').and_then(number);
        let (column, rest) = column.map_or((None, rest), |(column, rest)| (Some(column), rest));
        is_path(&text[..at]).then_some((&text[..at], line, column, rest))
    })
}

/// A path may have colons in it, but not many.
const COLONS_MAX: usize = 8;

/// It has a dot or a slash, and is not the time of day or an address.
fn is_path(text: &str) -> bool {
    let letters = text.chars().any(char::is_alphabetic);
    letters && text.contains(['.', '/']) && !text.contains("://") && !text.starts_with(['"', '\'', '`'])
}

fn number(text: &str) -> Option<(u64, &str)> {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = text[..text.len() - rest.len()].parse().ok()?;
    Some((number, rest))
}

/// The severity that words begin with, and the rest of them. One of none: it only adds to another.
fn severity(text: &str) -> Option<(Option<Severity>, &str)> {
    const WORDS: [(&str, Option<Severity>); 8] = [
        ("fatal error", Some(Severity::Error)),
        ("error", Some(Severity::Error)),
        ("warning", Some(Severity::Warning)),
        ("note", None),
        ("help", None),
        ("hint", None),
        ("information", None),
        ("info", None),
    ];
    WORDS.iter().find_map(|(word, severity)| {
        let begin = text.get(..word.len()).filter(|begin| begin.eq_ignore_ascii_case(word))?;
        let rest = &text[begin.len()..];
        let ends = rest.starts_with([':', '[']) || rest.starts_with(" TS");
        ends.then(|| (*severity, rest.trim_start_matches([':', ' '])))
    })
}

/// Eslint names it with the rule, at the end.
fn by_rule(text: &str) -> Severity {
    match text.rsplit_once('[').map(|(_, rule)| rule) {
        Some(rule) if rule.starts_with("Error/") => Severity::Error,
        Some(rule) if rule.starts_with("Warning/") => Severity::Warning,
        _ => Severity::Some,
    }
}

fn within(path: &str, folder: &Path) -> String {
    let path = Path::new(path);
    let path = path.strip_prefix(folder).unwrap_or(path);
    path.strip_prefix(".").unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests;
