//! A patch against the files that are there: what they become.

use super::{Edit, Hunk, Line, What};
use crate::files::Change;
use crate::limits::LINES_COMPARED_MAX;
use crate::root::{FileError, Name, Root};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{0} is not UTF-8 text")]
    NotText(Name),
    #[error("{name}: hunk {number} does not apply: {reason}")]
    Hunk { name: Name, number: usize, reason: String },
    #[error("{0}: finding where the hunks go takes too long: give more lines around each change")]
    Costly(Name),
}

const NEW_MODE: u32 = 0o644;

/// What a patch makes of the files beneath a root. Nothing is changed yet.
pub fn changes(root: &Root, edits: &[Edit]) -> Result<Vec<Change>, ApplyError> {
    let mut changes = Vec::new();
    for Edit { name, what } in edits {
        match what {
            What::Add { lines } => {
                if root.has(name) {
                    return Err(FileError::Exists(name.clone()).into());
                }
                let content = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect::<String>();
                let after = Some((content.into_bytes(), NEW_MODE));
                changes.push(Change { name: name.clone(), before: None, after });
            }
            What::Delete => {
                let before = Some(root.read(name)?.0);
                changes.push(Change { name: name.clone(), before, after: None });
            }
            What::Update { to, hunks } => changes.extend(update(root, name, to.as_ref(), hunks)?),
        }
    }
    Ok(changes)
}

fn update(root: &Root, name: &Name, to: Option<&Name>, hunks: &[Hunk]) -> Result<Vec<Change>, ApplyError> {
    let (before, mode) = root.read(name)?;
    let text = std::str::from_utf8(&before).map_err(|_| ApplyError::NotText(name.clone()))?;
    let content = patched(name, text, hunks)?.into_bytes();
    let after = Some((content, mode));
    match to.filter(|to| *to != name) {
        None => Ok(vec![Change { name: name.clone(), before: Some(before), after }]),
        Some(to) if root.has(to) => Err(FileError::Exists(to.clone()).into()),
        Some(to) => Ok(vec![
            Change { name: name.clone(), before: Some(before), after: None },
            Change { name: to.clone(), before: None, after },
        ]),
    }
}

/// The text with its hunks applied, one after the other from the top. Its line ends stay as they are.
pub fn patched(name: &Name, text: &str, hunks: &[Hunk]) -> Result<String, ApplyError> {
    let mut page = Page::new(text);
    let mut changed = String::with_capacity(text.len());
    let mut done = 0; // lines of the text that are in `changed`, as they were or replaced
    for (index, hunk) in hunks.iter().enumerate() {
        let at = page.find(hunk, done).map_err(|miss| miss.error(name, index + 1))?;
        page.copy(done..at, &mut changed);
        done = page.replace(hunk, at, &mut changed);
    }
    page.copy(done..page.lines.len(), &mut changed);
    Ok(changed)
}

/// A text as lines with their ends.
struct Page<'a> {
    lines: Vec<&'a str>,
    end: &'static str, // of a line that is new
    compared: usize,   // lines so far
}

/// Why a hunk has no place.
enum Miss {
    Costly,
    Nowhere(String),
}

impl Miss {
    fn error(self, name: &Name, number: usize) -> ApplyError {
        match self {
            Miss::Costly => ApplyError::Costly(name.clone()),
            Miss::Nowhere(reason) => ApplyError::Hunk { name: name.clone(), number, reason },
        }
    }
}

/// How much alike two lines must be: models are careless about blanks.
const ALIKE: [fn(&str) -> &str; 3] = [|line| line, str::trim_end, str::trim];

impl<'a> Page<'a> {
    fn new(text: &'a str) -> Page<'a> {
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let windows = lines.iter().filter(|line| line.ends_with("\r\n")).count();
        Page { end: if windows * 2 > lines.len() { "\r\n" } else { "\n" }, lines, compared: 0 }
    }

    /// The line where the hunk begins, at or after `from`.
    fn find(&mut self, hunk: &Hunk, from: usize) -> Result<usize, Miss> {
        let mut from = from;
        for after in &hunk.after {
            from = 1 + self.search(&[after], from, false)?.ok_or_else(|| self.nowhere(&[after], from))?;
        }
        let wanted: Vec<&str> = hunk.before().collect();
        if wanted.is_empty() {
            // New lines alone: after the place that was named, else at the end.
            return Ok(if hunk.after.is_empty() { self.lines.len() } else { from });
        }
        self.search(&wanted, from, hunk.at_end)?.ok_or_else(|| self.nowhere(&wanted, from))
    }

    fn search(&mut self, wanted: &[&str], from: usize, at_end: bool) -> Result<Option<usize>, Miss> {
        let last = self.lines.len().checked_sub(wanted.len());
        let first = if at_end { last.unwrap_or_default().max(from) } else { from };
        for alike in ALIKE {
            for at in first..=last.unwrap_or_default() {
                if last.is_some() && self.matches(wanted, at, alike)? {
                    return Ok(Some(at));
                }
            }
        }
        Ok(None)
    }

    fn matches(&mut self, wanted: &[&str], at: usize, alike: fn(&str) -> &str) -> Result<bool, Miss> {
        for (wanted, line) in wanted.iter().zip(&self.lines[at..]) {
            self.compared += 1;
            if self.compared > LINES_COMPARED_MAX {
                return Err(Miss::Costly);
            }
            if alike(wanted.trim_end_matches('\r')) != alike(bare(line)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What was looked for, and the line that comes nearest.
    fn nowhere(&self, wanted: &[&str], from: usize) -> Miss {
        let shown = |line: &str| line.trim().chars().take(80).collect::<String>();
        let first = wanted.iter().find(|line| !line.trim().is_empty()).copied().unwrap_or_default();
        let there = (from..self.lines.len()).find(|at| bare(self.lines[*at]).trim() == first.trim());
        Miss::Nowhere(match there {
            Some(at) => {
                let begin = at - wanted.iter().take_while(|line| line.trim().is_empty()).count().min(at);
                let differs = wanted
                    .iter()
                    .zip(&self.lines[begin..])
                    .position(|(wanted, line)| wanted.trim() != line.trim());
                match differs {
                    Some(differs) => format!(
                        "line {} of the file is {:?}, not {:?}",
                        begin + differs + 1,
                        shown(self.lines[begin + differs]),
                        shown(wanted[differs])
                    ),
                    None => format!("the file ends within it, after line {}", self.lines.len()),
                }
            }
            None if from > 0 => format!("{:?} is not in the file after line {from}", shown(first)),
            None => format!("{:?} is not in the file", shown(first)),
        })
    }

    fn copy(&self, lines: std::ops::Range<usize>, out: &mut String) {
        self.lines[lines].iter().for_each(|line| out.push_str(line));
    }

    /// Writes the lines of a hunk that stands at `at`; returns the line after it.
    fn replace(&self, hunk: &Hunk, at: usize, out: &mut String) -> usize {
        let mut next = at;
        for line in &hunk.lines {
            match line {
                // As it is in the file: what a model is careless about stays.
                Line::Same(_) => {
                    out.push_str(self.lines[next]);
                    next += 1;
                }
                Line::Old(_) => next += 1,
                Line::New(text) => {
                    if !out.is_empty() && !out.ends_with('\n') {
                        out.push_str(self.end);
                    }
                    out.push_str(text.trim_end_matches('\r'));
                    out.push_str(self.end);
                }
            }
        }
        next
    }
}

/// A line without its end.
fn bare(line: &str) -> &str {
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line)
}
