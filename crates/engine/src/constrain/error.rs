//! Why a generation cannot be held to its grammar.

use crate::limits::{CONSTRAINT_BYTES_MAX, CONSTRAINT_MESSAGE_CHARS_MAX};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum BadConstraint {
    #[error("the constraint is empty: give a schema or a grammar")]
    Empty,
    #[error("the constraint has {bytes} bytes, at most {CONSTRAINT_BYTES_MAX} are allowed")]
    TooLarge { bytes: u64 },
    #[error("the constraint cannot be honoured: {0}")]
    Refused(String),
    #[error("the constraint was not compiled in time: make it simpler")]
    TooSlow,
    #[error("the constraint became too complex while generating: {0}")]
    TooComplex(String),
    #[error("this engine has no vocabulary, so it cannot honour a constraint: {0}")]
    NoVocabulary(String),
    #[error("too many constraints wait to be compiled: try again later")]
    Busy,
}

/// The words of an error from llguidance as they can be shown: one short line, without its inner state.
pub(super) fn words(error: impl std::fmt::Display) -> String {
    let text = error.to_string();
    let text = ["<backtrace>", "<state>", "<non-verbose/>"]
        .iter()
        .fold(text.as_str(), |text, mark| text.split(mark).next().unwrap_or(text));
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    let line: String = text.chars().map(shown).take(CONSTRAINT_MESSAGE_CHARS_MAX).collect();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}
