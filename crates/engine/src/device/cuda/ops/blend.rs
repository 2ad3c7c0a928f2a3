//! A mixture of up to eight rows: the router, all of their experts in one kernel, the sum.

use super::super::CudaError;
use super::kernels::{Grid, arg};
use super::layout::{TILE_ROWS, UNIT_COLS};
use super::owed::Owed;
use super::product::{Target, Weights};
use super::{Buffer, Cuda, Prepared, Vector};
use crate::device::{Activation, Mixture};

const ROWS_MAX: usize = 8;
/// Rows, times experts of a row.
const SLOTS_MAX: usize = 32;
const EXPERTS_MAX: usize = 256;
/// A range of a row is in the registers of a warp.
const FFN_MAX: usize = 4096;
/// How many blocks are there, and how often all were.
pub const MEETING_BYTES: usize = 8;

/// `Blend` of `blend.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Args {
    weights: [Weights; 3],
    x: u64,
    x_factors: u64,
    logits: u64,
    hidden: u64,
    shares: u64,
    meeting: u64,
    rows: i32,
    used: i32,
    x_stride: i32,
    hidden_width: i32,
    out_width: i32,
    experts: i32,
    normalize: i32,
    clamped: i32,
    units: [i32; 2],
    tiles: [i32; 2],
}

fn address(vector: Option<&Vector>) -> u64 {
    vector.map_or(0, |vector| vector.values.address)
}

impl Cuda {
    /// The shared memory of a block, if the kernel takes such a mixture.
    fn blend_bytes(&self, w: &Mixture<Cuda>, x: &Buffer, rows: usize) -> Option<usize> {
        let layout = w.gate.part.plan.layout;
        let ffn = w.gate.part.rows;
        let stages = self.kernels.products(layout).blend_stage_bytes;
        let row_bytes = (x.width.max(ffn).next_multiple_of(UNIT_COLS) + 8) * 2 + self.kernels.blend_row_bytes;
        let bytes = rows * row_bytes + stages;
        let fits = rows <= ROWS_MAX
            && rows * w.used <= SLOTS_MAX.min(self.card.multiprocessors)
            && w.router.rows <= EXPERTS_MAX
            && [&w.up, &w.down].iter().all(|experts| experts.part.plan.layout == layout)
            && x.width.is_multiple_of(4)
            && ffn.is_multiple_of(4)
            && ffn <= FFN_MAX
            && bytes <= self.kernels.several_bytes_max;
        fits.then_some(bytes)
    }

    /// A whole mixture, if there are few rows. Whether there are is told.
    pub(super) fn blend_mixture(
        &mut self,
        w: &Mixture<Cuda>,
        x: &Buffer,
        rows: usize,
    ) -> Result<bool, CudaError> {
        let Some(shared) = self.blend_bytes(w, x, rows) else { return Ok(false) };
        let inputs = self.inputs(rows, x.width)?;
        let logits = self.scratch.router.at(&self.card, rows * w.router.rows * 4)?;
        if !self.held_routed(w, (x, rows), inputs, logits)? {
            return Ok(false);
        }
        (self.prepared, self.measured) = (None, None);
        let shares = self.scratch.shares.at(&self.card, rows * w.used * 4)?;
        let out = self.scratch.down.at(&self.card, rows * w.used * x.width * 4)?;
        let args = self.blend_args(w, (x, rows), inputs, (logits, shares, out))?;
        let grid = Grid::rows(self.card.multiprocessors, self.kernels.several_threads);
        let kernel = &self.kernels.products(w.gate.part.plan.layout).blend;
        // SAFETY: `Args` is the kernel's struct; its addresses are of weights, inputs and outputs of these shapes. A block fits on
        // each multiprocessor, so those that wait for one another are there at once.
        unsafe { kernel.launch_with(&self.card, grid, shared, [arg(&args)]) }?;
        self.owed = Some(Owed { x: self.lies(x)?, width: x.width, rows, down: out, shares, used: w.used });
        Ok(true)
    }

    fn blend_args(
        &mut self,
        w: &Mixture<Cuda>,
        (x, rows): (&Buffer, usize),
        inputs: Prepared,
        (logits, shares, out): (u64, u64, u64),
    ) -> Result<Args, CudaError> {
        let (slots, ffn) = (rows * w.used, w.gate.part.rows);
        let target =
            |part, bias: &Option<Vector>| Target { part, bias: address(bias.as_ref()), out }.weights();
        Ok(Args {
            weights: [
                target(&w.gate.part, &w.gate_bias),
                target(&w.up.part, &w.up_bias),
                target(&w.down.part, &w.down_bias),
            ],
            x: inputs.values,
            x_factors: inputs.factors,
            logits,
            hidden: self.scratch.gate.at(&self.card, slots * ffn * 4)?,
            shares,
            meeting: self.scratch.meeting.at(&self.card, MEETING_BYTES)?,
            rows: rows as i32,
            used: w.used as i32,
            x_stride: inputs.stride,
            hidden_width: ffn as i32,
            out_width: x.width as i32,
            experts: w.router.rows as i32,
            normalize: i32::from(w.normalize),
            clamped: i32::from(w.activation == Activation::ClampedSwiglu),
            units: [x.width.div_ceil(UNIT_COLS) as i32, ffn.div_ceil(UNIT_COLS) as i32],
            tiles: [ffn.div_ceil(TILE_ROWS) as i32, x.width.div_ceil(TILE_ROWS) as i32],
        })
    }
}
