//! Why a model was refused, in words that name the file, the field, and what to do.

use std::fmt::{self, Display};
use std::io;
use std::path::{Path, PathBuf};

/// A file that cannot be used, and why.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", file.display())]
pub struct LoadError {
    pub file: PathBuf,
    pub fault: Fault,
}

/// What is wrong. Each variant is something else to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("cannot be read: {0}. Check the path and its permissions.")]
    Io(#[from] io::Error),
    #[error(
        "ends inside {field}: {needed} bytes are needed, {left} are left. The file is cut short: get it again."
    )]
    Truncated { field: String, needed: u64, left: u64 },
    #[error("{field} is {found}, expected {expected}. The file is damaged: get it again.")]
    Damaged { field: String, found: String, expected: String },
    #[error("{field} cannot be understood: {reason}. The file is damaged: get it again.")]
    Unreadable { field: String, reason: String },
    #[error("{field} is missing, expected {expected}. The model is not complete: get it again.")]
    Missing { field: String, expected: String },
    #[error("{field} is {found}, expected {expected}. Flint cannot run this: choose another file or model.")]
    Unsupported { field: String, found: String, expected: String },
}

/// Characters of a file's own words that are repeated in a message.
const QUOTED_CHARS_MAX: usize = 64;

impl Fault {
    pub(crate) fn truncated(field: impl Display, needed: u64, left: u64) -> Fault {
        Fault::Truncated { field: field.to_string(), needed, left }
    }

    pub(crate) fn damaged(field: impl Display, found: impl Display, expected: impl Display) -> Fault {
        let (field, found, expected) = (field.to_string(), found.to_string(), expected.to_string());
        Fault::Damaged { field, found, expected }
    }

    pub(crate) fn unreadable(field: impl Display, reason: impl Display) -> Fault {
        Fault::Unreadable { field: field.to_string(), reason: reason.to_string() }
    }

    pub(crate) fn missing(field: impl Display, expected: impl Display) -> Fault {
        Fault::Missing { field: field.to_string(), expected: expected.to_string() }
    }

    pub(crate) fn unsupported(field: impl Display, found: impl Display, expected: impl Display) -> Fault {
        let (field, found, expected) = (field.to_string(), found.to_string(), expected.to_string());
        Fault::Unsupported { field, found, expected }
    }

    /// Names the file.
    pub(crate) fn of(self, file: &Path) -> LoadError {
        LoadError { file: file.to_path_buf(), fault: self }
    }
}

/// A file's own words, made safe to print and kept short. Formatted only if there is something to say.
pub(crate) struct Quoted<'a>(&'a str);

pub(crate) fn quoted(text: &str) -> Quoted<'_> {
    Quoted(text)
}

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.0.char_indices().nth(QUOTED_CHARS_MAX) {
            None => write!(f, "{:?}", self.0),
            Some((end, _)) => write!(f, "{:?}…", &self.0[..end]),
        }
    }
}
