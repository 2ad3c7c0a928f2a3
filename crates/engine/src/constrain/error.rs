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

impl BadConstraint {
    /// With words that can be shown: one short line.
    pub(super) fn refused(words: impl std::fmt::Display) -> BadConstraint {
        BadConstraint::Refused(one_line(&words.to_string()))
    }
}

/// What llguidance says, without the listing of the grammar and the inner state that it adds.
pub(super) fn words(error: impl std::fmt::Display) -> String {
    let text = error.to_string();
    let text = MARKS.iter().fold(text.as_str(), |text, mark| text.split(mark).next().unwrap_or(text));
    let told = text.lines().filter(|line| !is_listing(line)).collect::<Vec<_>>().join(" ");
    let told = told.split_once("failed to compile JSON schema: ").map_or(told.as_str(), |(_, schema)| schema);
    one_line(told)
}

const MARKS: [&str; 3] = ["<backtrace>", "<state>", "<non-verbose/>"];

/// `12 | start: ...`, or the mark below it.
fn is_listing(line: &str) -> bool {
    let line = line.trim_start();
    line == "^" || line.split_once(" | ").is_some_and(|(number, _)| number.parse::<u32>().is_ok())
}

fn one_line(text: &str) -> String {
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    let line: String = text.chars().map(shown).take(CONSTRAINT_MESSAGE_CHARS_MAX).collect();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}
