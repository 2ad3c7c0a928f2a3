//! Patches as coding models write them.
//!
//! ```text
//! *** Begin Patch
//! *** Update File: src/main.rs
//! *** Move to: src/bin/main.rs
//! @@ fn main() {
//!      let a = 1;
//! -    let b = 2;
//! +    let b = 3;
//! *** Add File: notes.txt
//! +one line
//! *** Delete File: old.txt
//! *** End Patch
//! ```

mod apply;
mod parse;

pub use apply::{ApplyError, changes, patched};
pub use parse::{ParseError, parse};

use crate::root::Name;

/// What a patch says about one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    pub name: Name,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    Add { lines: Vec<String> },
    Delete,
    Update { to: Option<Name>, hunks: Vec<Hunk> },
}

/// Lines that stand together, some of which are others afterwards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hunk {
    pub after: Vec<String>, // lines that come before it, one after the other: what follows `@@`
    pub lines: Vec<Line>,
    pub at_end: bool, // of the file
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    Same(String),
    Old(String),
    New(String),
}

impl Hunk {
    /// The lines as they are.
    pub fn before(&self) -> impl Iterator<Item = &str> + Clone {
        self.lines.iter().filter_map(|line| match line {
            Line::Same(text) | Line::Old(text) => Some(text.as_str()),
            Line::New(_) => None,
        })
    }
}
