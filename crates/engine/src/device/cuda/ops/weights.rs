//! Matrices on the card.

use super::super::{Bytes, Card, CudaError};
use super::layout::{Plan, UNIT_COLS, pack};
use super::made_up::Maker;
use super::stored;
use crate::load::Tensor;
use std::sync::Arc;

/// A matrix, or experts one after the other, in one layout.
#[derive(Clone)]
pub struct Part {
    pub plan: Plan,
    pub rows: usize, // of an expert, or of the whole
    pub codes: Arc<Bytes>,
    pub scales: Arc<Bytes>,
    pub factor: f32,
}

/// Stacked tensors: neighbours of one layout are one part.
pub struct Matrix {
    pub parts: Vec<Part>,
    pub rows: usize,
    pub cols: usize,
}

pub struct Experts {
    pub part: Part,
    pub count: usize,
    pub cols: usize,
}

/// f32 on the card.
pub struct Vector {
    pub values: Bytes,
}

/// Columns as inputs have them: whole units.
pub fn padded(cols: usize) -> usize {
    cols.next_multiple_of(UNIT_COLS)
}

/// Bytes that a tensor takes on the card.
pub fn held_bytes(tensor: &Tensor) -> u64 {
    if tensor.shape.len() < 2 {
        return 4 * tensor.cols() as u64;
    }
    let (codes, scales) = Plan::of(tensor.format).bytes(tensor.rows(), tensor.cols());
    (codes + scales) as u64
}

impl Part {
    fn load(
        card: &Card,
        maker: Option<&Maker>,
        tensors: &[Tensor],
        experts: usize,
    ) -> Result<Part, CudaError> {
        if let Some(made) = maker.map_or(Ok(None), |maker| maker.part(card, tensors, experts))? {
            return Ok(made);
        }
        let rows = tensors.iter().map(Tensor::rows).sum::<usize>() / experts.max(1);
        let packed = match stored::packed(tensors)? {
            Some(packed) => packed,
            None => pack(tensors, experts),
        };
        let part = Part {
            plan: packed.plan,
            rows,
            codes: Arc::new(card.upload(&packed.codes)?),
            scales: Arc::new(card.upload(&packed.scales)?),
            factor: packed.factor,
        };
        tensors.iter().for_each(Tensor::release);
        Ok(part)
    }
}

impl Matrix {
    pub fn load(card: &Card, maker: Option<&Maker>, tensors: &[Tensor]) -> Result<Matrix, CudaError> {
        let same = |a: &Tensor, b: &Tensor| Plan::of(a.format) == Plan::of(b.format);
        let parts: Result<Vec<Part>, CudaError> =
            tensors.chunk_by(same).map(|tensors| Part::load(card, maker, tensors, 1)).collect();
        let rows = tensors.iter().map(Tensor::rows).sum();
        Ok(Matrix { parts: parts?, rows, cols: tensors.first().map_or(0, Tensor::cols) })
    }
}

impl Experts {
    pub fn load(card: &Card, maker: Option<&Maker>, tensor: &Tensor) -> Result<Experts, CudaError> {
        let count = tensor.shape.first().copied().unwrap_or(0);
        let part = Part::load(card, maker, std::slice::from_ref(tensor), count)?;
        Ok(Experts { part, count, cols: tensor.cols() })
    }
}
