//! Making a file of Flint's own out of any model file: fewer bits where that is asked for, and matrices as a device reads them.
//!
//! `plan` decides what becomes of each tensor, `write` does it, a piece at a time: however large a model is, some megabytes
//! of it are in memory.

mod plan;
mod write;

pub use crate::load::flint::DIGEST_KEY;
pub use crate::load::gguf::Lies;
pub use plan::{Bits, Planned, Recipe, plan};
pub use write::{check, write};

use crate::load::LoadError;
use std::collections::BTreeMap;
use std::io;

/// What was done.
#[derive(Debug, Clone, Default)]
pub struct Done {
    pub bytes: u64, // of the whole file
    pub kinds: BTreeMap<String, Kind>,
    pub sha256: String, // of the data
}

/// All tensors that have the same place in a layer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kind {
    pub tensors: usize,
    pub before: u64, // bytes
    pub after: u64,
    pub formats: Vec<(&'static str, &'static str)>, // before and after, each pair once
    pub error: f64,                                 // the sum of the squares of what rounding changed
    pub size: f64,                                  // the sum of the squares of what was rounded
}

impl Kind {
    /// How much rounding changed, relative to the weights; 0 where nothing was rounded.
    pub fn relative_error(&self) -> f64 {
        if self.size > 0.0 { (self.error / self.size).sqrt() } else { 0.0 }
    }
}

/// Why there is no such file.
#[derive(Debug, thiserror::Error)]
pub enum QuantizeError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("{name}: a weight is not a number. The model is damaged: get it again.")]
    NotANumber { name: String },
    #[error("the file cannot be written: {0}")]
    Io(#[from] io::Error),
    #[error(
        "{name} lies as a card reads it, and no rows can be had of it: start from the model that the file was made of"
    )]
    ForCards { name: String },
    #[error("stopped")]
    Stopped,
    #[error("the data's SHA-256 is {found}, expected {expected}. The file is damaged: make it again.")]
    Digest { found: String, expected: String },
}
