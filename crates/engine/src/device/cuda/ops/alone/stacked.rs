//! The four packed matrices of a layer, and the general path's weights that each is made of.

use super::super::super::weights::LAYER_MATRICES;
use super::super::super::{CudaError, Packing, Shape};
use super::super::layout::{Layout, Plan};
use super::super::weights::Part;
use super::super::{Cuda, Matrix};
use crate::device::Attention;
use crate::model::Ffn;

/// A packed matrix, or one of each expert, and what it is made of.
pub struct Stacked<'a> {
    pub packing: Packing,
    pub rows: usize, // of one
    pub cols: usize,
    pub experts: usize,
    pub parts: Vec<Laid<'a>>,
}

/// Row i of the part becomes row `step * i + offset`.
pub struct Laid<'a> {
    pub part: &'a Part,
    pub step: usize,
    pub offset: usize,
}

impl<'a> Stacked<'a> {
    /// Levels have 4 bits where that is what all parts have already.
    fn new(gpt_oss: Option<Packing>, cols: usize, experts: usize, parts: Vec<Laid<'a>>) -> Stacked<'a> {
        let narrow = |laid: &Laid<'_>| laid.part.plan == Plan { layout: Layout::Levels4, group: 32 };
        let levels = if parts.iter().all(narrow) { Packing::Levels4 } else { Packing::Levels8 };
        let rows = parts.iter().map(|laid| laid.part.rows).sum();
        Stacked { packing: gpt_oss.unwrap_or(levels), rows, cols, experts, parts }
    }

    pub fn of_matrix(gpt_oss: Option<Packing>, matrix: &'a Matrix) -> Stacked<'a> {
        let laid = |offset: &mut usize, part: &'a Part| {
            let laid = Laid { part, step: 1, offset: *offset };
            *offset += part.rows;
            Some(laid)
        };
        Stacked::new(gpt_oss, matrix.cols, 1, matrix.parts.iter().scan(0, laid).collect())
    }

    /// Gate and up by turns.
    fn by_turns(
        gpt_oss: Option<Packing>,
        cols: usize,
        experts: usize,
        gate: &'a Part,
        up: &'a Part,
    ) -> Stacked<'a> {
        let parts = [gate, up].into_iter().enumerate();
        let parts = parts.map(|(offset, part)| Laid { part, step: 2, offset }).collect();
        Stacked::new(gpt_oss, cols, experts, parts)
    }

    pub fn bytes(&self) -> usize {
        self.experts * self.packing.bytes(self.rows, self.cols)
    }
}

/// The four packed matrices of a layer, in the kernels' order.
pub fn stacked<'a>(
    shape: &Shape,
    attention: &'a Attention<Cuda>,
    ffn: &Ffn<'a, Cuda>,
) -> Result<[Stacked<'a>; LAYER_MATRICES], CudaError> {
    let of_gpt_oss = |packing: Packing| shape.gpt_oss.then_some(packing);
    let (rows8, mxfp4) = (of_gpt_oss(Packing::Rows8), of_gpt_oss(Packing::Mxfp4));
    let (gate_up, down) = match ffn {
        Ffn::Mixture(w) => {
            let (cols, count) = (w.gate.cols, w.gate.count);
            let down = vec![Laid { part: &w.down.part, step: 1, offset: 0 }];
            (
                Stacked::by_turns(mxfp4, cols, count, &w.gate.part, &w.up.part),
                Stacked::new(mxfp4, w.down.cols, count, down),
            )
        }
        Ffn::Mlp(w) => match (&w.gate.parts[..], &w.up.parts[..]) {
            ([gate], [up]) => {
                (Stacked::by_turns(None, w.gate.cols, 1, gate, up), Stacked::of_matrix(None, &w.down))
            }
            _ => return Err(CudaError::Unsupported("gate and up that are several matrices each".into())),
        },
    };
    Ok([Stacked::of_matrix(rows8, &attention.qkv), Stacked::of_matrix(rows8, &attention.out), gate_up, down])
}
