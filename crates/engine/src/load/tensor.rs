//! A weight as it lies in the mapped file.

use crate::quant::Format;
use memmap2::Mmap;
use std::sync::Arc;

/// A checked view of one weight. `shape` is outermost first; the last dimension is contiguous.
///
/// A matrix is (out, in); experts are (experts, out, in). All dimensions but the last are "rows".
#[derive(Debug, Clone)]
pub struct Tensor {
    pub name: String,
    pub shape: Vec<usize>,
    pub format: Format,
    file: Arc<Mmap>,
    offset: usize,
}

impl Tensor {
    pub fn cols(&self) -> usize {
        self.shape.last().copied().unwrap_or(0)
    }

    pub fn rows(&self) -> usize {
        self.shape.iter().rev().skip(1).product()
    }
}
