//! One text of a file replaced by another.
//!
//! Whole lines are looked for as they are given. Models are careless about blanks, so then without the blanks at their
//! ends, and with all of them indented more or less than in the file, by the same. Last comes what is no whole lines.

use super::block::whole_block;
use super::{ToolError, Workshop};
use crate::files::Change;
use crate::limits::EDIT_LINES_COMPARED_MAX;
use crate::root::Name;
use std::ops::Range;

/// An edit that is made up and not made yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    pub changes: Vec<Change>,
    pub places: usize, // where the old text stands; the first of them is replaced
    pub line: usize,   // of that place
}

/// Where the old text stands, and what comes there.
struct Place {
    bytes: Range<usize>,
    new: String,
    places: usize,
}

const NEW_MODE: u32 = 0o644;

impl Workshop {
    /// Replaces the first place where `old` stands. Without `old` the new text comes to the end of the file, which may be
    /// a new one. Nothing is changed yet.
    pub fn edit(&self, path: &str, old: &str, new: &str) -> Result<Edited, ToolError> {
        let name = self.name(path)?;
        if old.is_empty() {
            return self.added(name, new);
        }
        let (before, mode) = self.content(&name)?;
        let Ok(text) = std::str::from_utf8(&before) else { return Err(ToolError::NotText(name)) };
        if old == new {
            return Err(ToolError::Same(name));
        }
        let Place { bytes, new, places } = find(&name, text, old, new)?;
        let bytes = whole_block(text, bytes, &new);
        let line = 1 + text[..bytes.start].matches('\n').count();
        let after = [&text[..bytes.start], &new, &text[bytes.end..]].concat();
        if after == text {
            return Err(ToolError::Same(name));
        }
        let change = Change { name, after: Some((after.into_bytes(), mode)), before: Some(before) };
        Ok(Edited { changes: vec![change], places, line })
    }

    fn added(&self, name: Name, new: &str) -> Result<Edited, ToolError> {
        let (before, mode) = match self.content(&name) {
            Err(ToolError::Missing { .. }) => (None, NEW_MODE),
            Ok((content, mode)) => (Some(content), mode),
            Err(error) => return Err(error),
        };
        let mut after = before.clone().unwrap_or_default();
        if after.last().is_some_and(|last| *last != b'\n') {
            after.push(b'\n');
        }
        let line = 1 + after.iter().filter(|byte| **byte == b'\n').count();
        after.extend_from_slice(new.as_bytes());
        if after.last().is_some_and(|last| *last != b'\n') {
            after.push(b'\n');
        }
        if before.as_ref() == Some(&after) {
            return Err(ToolError::Same(name));
        }
        let change = Change { name, before, after: Some((after, mode)) };
        Ok(Edited { changes: vec![change], places: 1, line })
    }
}

fn find(name: &Name, text: &str, old: &str, new: &str) -> Result<Place, ToolError> {
    let no_place = |reason| ToolError::NoPlace { name: name.clone(), reason };
    let mut page = Page::new(text, old);
    let as_given = |at: usize| Place {
        bytes: at..at + old.len(),
        new: ended_alike(text, new),
        places: text.matches(old).count(),
    };
    let whole = text.match_indices(old).map(|(at, _)| at).find(|at| is_whole(text, *at, old));
    let whole = whole.map(as_given);
    match whole.or_else(|| page.place(new)).or_else(|| text.find(old).map(as_given)) {
        Some(place) => Ok(place),
        None if page.compared > EDIT_LINES_COMPARED_MAX => {
            Err(no_place("finding the text takes too long: give fewer lines, which stand once".to_owned()))
        }
        None => Err(no_place(page.nearest())),
    }
}

/// Whether what stands there are whole lines.
fn is_whole(text: &str, at: usize, old: &str) -> bool {
    let (before, after) = (&text[..at], &text[at + old.len()..]);
    let begins = before.is_empty() || before.ends_with('\n');
    begins && (after.is_empty() || old.ends_with('\n') || after.starts_with(['\n', '\r']))
}

/// New lines end as those of the file do, if all of these end in Windows' way.
fn ended_alike(text: &str, new: &str) -> String {
    let (windows, all) = (text.matches("\r\n").count(), text.matches('\n').count());
    match windows == all && all > 0 && !new.contains("\r\n") {
        true => new.replace('\n', "\r\n"),
        false => new.to_owned(),
    }
}

/// A file and the lines that are looked for in it.
struct Page<'a> {
    lines: Vec<&'a str>, // with their ends
    wanted: Vec<&'a str>,
    compared: usize, // lines so far
}

/// How lines of a file are indented, seen from those that were given.
#[derive(Clone, Copy)]
enum Shift<'a> {
    More(&'a str),
    Less(&'a str),
}

impl<'a> Page<'a> {
    fn new(text: &'a str, old: &'a str) -> Page<'a> {
        Page { lines: text.split_inclusive('\n').collect(), wanted: old.lines().collect(), compared: 0 }
    }

    fn place(&mut self, new: &str) -> Option<Place> {
        if self.wanted.iter().all(|line| line.trim().is_empty()) {
            return None;
        }
        let starts = 0..(self.lines.len() + 1).saturating_sub(self.wanted.len());
        let same: Vec<usize> = starts.clone().filter(|at| self.matches(*at, Shift::More(""))).collect();
        if let Some(first) = same.first() {
            return Some(self.replaced(*first, new, Shift::More(""), same.len()));
        }
        let shift = |at: usize| Some((at, self.shift(at)?));
        let shifts: Vec<(usize, Shift<'_>)> = starts.filter_map(shift).collect();
        let shifted: Vec<_> = shifts.into_iter().filter(|(at, shift)| self.matches(*at, *shift)).collect();
        let (first, shift) = shifted.first()?;
        Some(self.replaced(*first, new, *shift, shifted.len()))
    }

    /// How the first line that is not empty differs in its indentation alone.
    fn shift(&self, at: usize) -> Option<Shift<'a>> {
        let index = self.wanted.iter().position(|line| !line.trim().is_empty())?;
        let (wanted, line) = (self.wanted[index], *self.lines.get(at + index)?);
        let (inner, own) = (indent(wanted), indent(line));
        let same = wanted.trim() == line.trim();
        let more = own.strip_suffix(inner).map(Shift::More);
        more.or_else(|| inner.strip_suffix(own).map(Shift::Less)).filter(|_| same)
    }

    fn matches(&mut self, at: usize, shift: Shift<'_>) -> bool {
        for (wanted, line) in self.wanted.iter().zip(&self.lines[at..]) {
            self.compared += 1;
            if self.compared > EDIT_LINES_COMPARED_MAX {
                return false;
            }
            let (wanted, line) = (wanted.trim_end(), line.trim_end());
            let same = match shift {
                _ if wanted.is_empty() => line.is_empty(),
                Shift::More(by) => line.strip_prefix(by) == Some(wanted),
                Shift::Less(by) => wanted.strip_prefix(by) == Some(line),
            };
            if !same {
                return false;
            }
        }
        true
    }

    /// The lines of a place, with the new ones indented as these are and ended as they end.
    fn replaced(&self, at: usize, new: &str, shift: Shift<'_>, places: usize) -> Place {
        let lines = &self.lines[at..at + self.wanted.len()];
        let begin: usize = self.lines[..at].iter().map(|line| line.len()).sum();
        let bytes = begin..begin + lines.iter().map(|line| line.len()).sum::<usize>();
        let last = lines.last().copied().unwrap_or_default();
        let end = if lines.iter().any(|line| line.ends_with("\r\n")) { "\r\n" } else { "\n" };
        let mut text = String::new();
        for line in new.lines() {
            match shift {
                _ if line.trim().is_empty() => {}
                Shift::More(by) => text.extend([by, line]),
                Shift::Less(by) => text.push_str(line.strip_prefix(by).unwrap_or(line)),
            }
            text.push_str(end);
        }
        if !last.ends_with('\n') {
            text.truncate(text.trim_end_matches(['\r', '\n']).len());
        }
        Place { bytes, new: text, places }
    }

    /// Where the file is most like what was looked for.
    fn nearest(&self) -> String {
        const SHOWN_LINES_MAX: usize = 20;
        const SHOWN_BYTES_MAX: usize = 200;
        let Some(at) = self.most_alike() else {
            return "nothing in it is like the text to be replaced: read the file first".to_owned();
        };
        let end = self.lines.len().min(at + self.wanted.len().min(SHOWN_LINES_MAX));
        let shown = self.lines[at..end].iter().map(|line| {
            let line = line.trim_end();
            format!("{}\n", &line[..line.floor_char_boundary(SHOWN_BYTES_MAX)])
        });
        format!(
            "the text to be replaced is not in it. Lines {} to {end} are the nearest:\n{}Give it exactly as it stands there.",
            at + 1,
            shown.collect::<String>()
        )
    }

    /// The line from which on the most lines are among the wanted; else the one that is most like the first of them.
    fn most_alike(&self) -> Option<usize> {
        let wanted: std::collections::HashSet<&str> =
            self.wanted.iter().map(|line| line.trim()).filter(|line| line.len() > 2).collect();
        let hits: Vec<usize> =
            self.lines.iter().map(|line| usize::from(wanted.contains(line.trim()))).collect();
        let (mut best, mut now) = ((0, 0), 0);
        for (at, hit) in hits.iter().enumerate() {
            now += hit;
            now -= at.checked_sub(self.wanted.len()).map_or(0, |gone| hits[gone]);
            if now > best.0 {
                best = (now, (at + 1).saturating_sub(self.wanted.len()));
            }
        }
        match best {
            (0, _) => self.most_alike_line(),
            (_, at) => Some(at),
        }
    }

    fn most_alike_line(&self) -> Option<usize> {
        let first = self.wanted.iter().map(|line| line.trim()).find(|line| !line.is_empty())?;
        let alike = |line: &str| {
            let begin = first.bytes().zip(line.bytes()).take_while(|(a, b)| a == b).count();
            let end = first.bytes().rev().zip(line.bytes().rev()).take_while(|(a, b)| a == b).count();
            (begin + end).min(first.len()).min(line.len())
        };
        let best =
            self.lines.iter().enumerate().max_by_key(|(at, line)| (alike(line.trim()), usize::MAX - at));
        best.filter(|(_, line)| alike(line.trim()) * 2 >= first.len()).map(|(at, _)| at)
    }
}

fn indent(line: &str) -> &str {
    &line[..line.len() - line.trim_start().len()]
}
