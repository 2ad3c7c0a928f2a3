//! The text of a patch to what it says.

use super::{Edit, Hunk, Line, What};
use crate::limits::{PATCH_BYTES_MAX, PATCH_FILES_MAX};
use crate::root::{Name, NameError};
use std::iter::Peekable;
use std::str::Lines;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("the patch has {0} bytes, at most {PATCH_BYTES_MAX} are read")]
    Large(usize),
    #[error("the patch changes more than {PATCH_FILES_MAX} files")]
    ManyFiles,
    #[error("a patch begins with `*** Begin Patch`")]
    NoBegin,
    #[error("the patch does not end: its last line must be `*** End Patch`")]
    NoEnd,
    #[error("the patch changes nothing")]
    Empty,
    #[error("line {line} of the patch: {source}")]
    Name { line: usize, source: NameError },
    #[error(
        "line {line} of the patch: {text:?} is not expected here: lines of a file begin with `+`, `-` or a blank, and files \
         with `*** Add File: `, `*** Delete File: ` or `*** Update File: `"
    )]
    Unexpected { line: usize, text: String },
    #[error("line {line} of the patch: nothing is changed in {name}")]
    NoHunks { line: usize, name: Name },
    #[error("line {line} of the patch: {name} is named a second time")]
    Twice { line: usize, name: Name },
}

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const END_OF_FILE: &str = "*** End of File";

pub fn parse(text: &str) -> Result<Vec<Edit>, ParseError> {
    if text.len() > PATCH_BYTES_MAX {
        return Err(ParseError::Large(text.len()));
    }
    let mut reader = Reader { lines: text.trim().lines().peekable(), number: 0 };
    if reader.next().map(str::trim_end) != Some(BEGIN) {
        return Err(ParseError::NoBegin);
    }
    let mut edits: Vec<Edit> = Vec::new();
    loop {
        let line = reader.next().ok_or(ParseError::NoEnd)?;
        if line.trim_end() == END {
            break;
        }
        let edit = reader.edit(line)?;
        if edits.len() >= PATCH_FILES_MAX {
            return Err(ParseError::ManyFiles);
        }
        if edits.iter().any(|other| names(other).any(|name| names(&edit).any(|own| own == name))) {
            return Err(ParseError::Twice { line: reader.number, name: edit.name });
        }
        edits.push(edit);
    }
    match (edits.is_empty(), reader.next()) {
        (true, _) => Err(ParseError::Empty),
        (false, Some(line)) => Err(reader.unexpected(line)),
        (false, None) => Ok(edits),
    }
}

fn names(edit: &Edit) -> impl Iterator<Item = &Name> {
    let to = match &edit.what {
        What::Update { to, .. } => to.as_ref(),
        What::Add { .. } | What::Delete => None,
    };
    [&edit.name].into_iter().chain(to)
}

struct Reader<'a> {
    lines: Peekable<Lines<'a>>,
    number: usize, // of the line that was read last, from 1
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<&'a str> {
        self.number += 1;
        self.lines.next()
    }

    /// The next line, if it is one of a file.
    fn next_of_file(&mut self) -> Option<&'a str> {
        let is_head = |line: &&str| line.starts_with("*** ") && line.trim_end() != END_OF_FILE;
        match self.lines.peek() {
            Some(line) if !is_head(line) => self.next(),
            Some(_) | None => None,
        }
    }

    fn edit(&mut self, head: &str) -> Result<Edit, ParseError> {
        if let Some(path) = head.strip_prefix("*** Add File: ") {
            return Ok(Edit { name: self.name(path)?, what: What::Add { lines: self.added()? } });
        }
        if let Some(path) = head.strip_prefix("*** Delete File: ") {
            return Ok(Edit { name: self.name(path)?, what: What::Delete });
        }
        let Some(path) = head.strip_prefix("*** Update File: ") else { return Err(self.unexpected(head)) };
        let name = self.name(path)?;
        let to = match self.lines.peek().and_then(|line| line.strip_prefix("*** Move to: ")) {
            Some(path) => {
                self.next();
                Some(self.name(path)?)
            }
            None => None,
        };
        let hunks = self.hunks()?;
        match hunks.is_empty() && to.is_none() {
            true => Err(ParseError::NoHunks { line: self.number, name }),
            false => Ok(Edit { name, what: What::Update { to, hunks } }),
        }
    }

    fn added(&mut self) -> Result<Vec<String>, ParseError> {
        let mut lines = Vec::new();
        while let Some(line) = self.next_of_file() {
            lines.push(line.strip_prefix('+').ok_or_else(|| self.unexpected(line))?.to_owned());
        }
        Ok(lines)
    }

    fn hunks(&mut self) -> Result<Vec<Hunk>, ParseError> {
        let mut hunks = Vec::new();
        let mut hunk = Hunk::default();
        while let Some(line) = self.next_of_file() {
            if let Some(after) = line.strip_prefix("@@") {
                if !hunk.lines.is_empty() {
                    hunks.push(std::mem::take(&mut hunk));
                }
                let after = after.strip_prefix(' ').unwrap_or(after);
                hunk.after.extend((!after.trim().is_empty()).then(|| after.to_owned()));
            } else if line.trim_end() == END_OF_FILE {
                hunk.at_end = true;
                hunks.push(std::mem::take(&mut hunk));
            } else {
                let line = self.line(line)?;
                hunk.lines.push(line);
            }
        }
        // A place alone, without lines there, is no change.
        if !hunk.lines.is_empty() {
            hunks.push(hunk);
        }
        Ok(hunks)
    }

    fn line(&self, line: &str) -> Result<Line, ParseError> {
        let mut chars = line.chars();
        match (chars.next(), chars.as_str().to_owned()) {
            (Some('+'), text) => Ok(Line::New(text)),
            (Some('-'), text) => Ok(Line::Old(text)),
            (Some(' '), text) => Ok(Line::Same(text)),
            // Models leave the blank of an empty line out.
            (None, text) => Ok(Line::Same(text)),
            (Some(_), _) => Err(self.unexpected(line)),
        }
    }

    fn name(&self, path: &str) -> Result<Name, ParseError> {
        Name::new(path.trim()).map_err(|source| ParseError::Name { line: self.number, source })
    }

    fn unexpected(&self, line: &str) -> ParseError {
        ParseError::Unexpected { line: self.number, text: line.chars().take(80).collect() }
    }
}
