//! A mixture of up to eight rows: the router, all of their experts in one kernel, the sum.

use super::super::CudaError;
use super::kernels::{Grid, arg};
use super::layout::{TILE_ROWS, UNIT_COLS};
use super::owed::Owed;
use super::product::{Target, Weights};
use super::{Buffer, Cuda, Prepared, RANGES, Vector};
use crate::device::{Activation, Mixture};

const ROWS_MAX: usize = 8;
/// Rows, times experts of a row.
const SLOTS_MAX: usize = 32;
const EXPERTS_MAX: usize = 256;
/// A range of a row is in the registers of a warp.
const FFN_MAX: usize = 4096;
/// Groups of warps in a block, each with a ring of slots for its weights.
const GROUPS: usize = 2;

/// `Blend` of `blend.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Args {
    weights: [Weights; 3],
    x: u64,
    x_factors: u64,
    logits: u64,
    hidden: u64,
    halves: u64,
    shares: u64,
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
    slots: i32,
    slot_units: i32,
    hidden_words: i32,
    unused: i32,
}

/// Two halves of so many words, and the word that says which one's turn it is.
pub(super) struct HiddenWords {
    words: u64,
    each: usize,
    halves: u64,
}

/// A group's ring, and the shared memory that a block has for those of all.
#[derive(Debug, PartialEq, Eq)]
struct Ring {
    slots: usize,
    slot_units: usize,
    bytes: usize,
}

impl Ring {
    /// Of at most `most` slots of `ranges` ranges of a tile of `units` units, in `left` bytes. They are whole tiles: then a slot
    /// is always used by the same warps, and the parity that they wait for says which turn it is.
    fn new(units: usize, [ranges, unit_bytes]: [usize; 2], left: usize, most: usize) -> Option<Ring> {
        let slot_units = (units * ranges).div_ceil(RANGES);
        let slot_bytes = GROUPS * slot_units * unit_bytes;
        let of_tile = RANGES / ranges;
        let slots = (left / slot_bytes).min(most) / of_tile * of_tile;
        (slots > 0).then_some(Ring { slots, slot_units, bytes: slots * slot_bytes })
    }
}

fn address(vector: Option<&Vector>) -> u64 {
    vector.map_or(0, |vector| vector.values.address)
}

impl Cuda {
    /// The rings of a block and its shared memory, if the kernel takes such a mixture.
    fn blend_ring(&self, w: &Mixture<Cuda>, x: &Buffer, rows: usize) -> Option<(Ring, usize)> {
        let layout = w.gate.part.plan.layout;
        let ffn = w.gate.part.rows;
        let kernel = &self.kernels.products(layout).blend;
        let cols = x.width.max(ffn).next_multiple_of(UNIT_COLS);
        let row_bytes = rows * ((cols + 8) * 2 + self.kernels.blend_row_bytes);
        let left = self.kernels.several_bytes_max.saturating_sub(row_bytes);
        let most = self.kernels.blend_slots_max;
        let ring = Ring::new(cols / UNIT_COLS, [kernel.ranges, kernel.unit_bytes], left, most)?;
        let fits = rows <= ROWS_MAX
            && rows * w.used <= SLOTS_MAX.min(self.card.multiprocessors)
            && w.router.rows <= EXPERTS_MAX
            && [&w.up, &w.down].iter().all(|experts| experts.part.plan.layout == layout)
            && x.width.is_multiple_of(4)
            && ffn.is_multiple_of(4)
            && ffn <= FFN_MAX;
        let shared = row_bytes + ring.bytes;
        fits.then_some((ring, shared))
    }

    /// A whole mixture, if there are few rows. Whether there are is told.
    pub(super) fn blend_mixture(
        &mut self,
        w: &Mixture<Cuda>,
        x: &Buffer,
        rows: usize,
    ) -> Result<bool, CudaError> {
        let Some((ring, shared)) = self.blend_ring(w, x, rows) else { return Ok(false) };
        let inputs = self.inputs(rows, x.width)?;
        let logits = self.scratch.router.at(&self.card, rows * w.router.rows * 4)?;
        if !self.held_routed(w, (x, rows), inputs, logits)? {
            return Ok(false);
        }
        (self.prepared, self.measured) = (None, None);
        let shares = self.scratch.shares.at(&self.card, rows * w.used * 4)?;
        let out = self.scratch.down.at(&self.card, rows * w.used * x.width * 4)?;
        let hidden = self.hidden_words(w.gate.part.rows)?;
        let args = self.blend_args(w, (x, rows), (inputs, &ring), hidden, [logits, shares, out]);
        let grid = Grid::rows(self.card.multiprocessors, self.kernels.blend_threads);
        let kernel = &self.kernels.products(w.gate.part.plan.layout).blend.kernel;
        // SAFETY: `Args` is the kernel's struct; its addresses are of weights, inputs and outputs of these shapes. A block fits on
        // each multiprocessor, so those that wait for one another are there at once.
        unsafe { kernel.launch_with(&self.card, grid, shared, [arg(&args)]) }?;
        self.owed = Some(Owed { x: self.lies(x)?, width: x.width, rows, down: out, shares, used: w.used });
        Ok(true)
    }

    /// Room for the hidden values of the most slots of this width. Its halves stay where they are for narrower ones.
    pub(super) fn hidden_words(&mut self, ffn: usize) -> Result<HiddenWords, CudaError> {
        let (card, scratch) = (&self.card, &mut self.scratch);
        let words = scratch.hidden.at(card, 2 * SLOTS_MAX * ffn * 4)?;
        let each = scratch.hidden.len() / 2 / 4;
        Ok(HiddenWords { words, each, halves: scratch.halves.at(card, 4)? })
    }

    fn blend_args(
        &self,
        w: &Mixture<Cuda>,
        (x, rows): (&Buffer, usize),
        (inputs, ring): (Prepared, &Ring),
        hidden: HiddenWords,
        [logits, shares, out]: [u64; 3],
    ) -> Args {
        let ffn = w.gate.part.rows;
        let target =
            |part, bias: &Option<Vector>| Target { part, bias: address(bias.as_ref()), out }.weights();
        Args {
            weights: [
                target(&w.gate.part, &w.gate_bias),
                target(&w.up.part, &w.up_bias),
                target(&w.down.part, &w.down_bias),
            ],
            x: inputs.values,
            x_factors: inputs.factors,
            logits,
            hidden: hidden.words,
            halves: hidden.halves,
            shares,
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
            slots: ring.slots as i32,
            slot_units: ring.slot_units as i32,
            hidden_words: hidden.each as i32,
            unused: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_as_many_whole_tiles_as_there_is_room_for() {
        // gpt-oss-20b, five and eight rows: three tiles and two, each in two slots of 23 units of MXFP4.
        let fp4 = [4, 576];
        assert_eq!(
            Ring::new(45, fp4, 167_728, 8),
            Some(Ring { slots: 6, slot_units: 23, bytes: 6 * 26_496 })
        );
        assert_eq!(
            Ring::new(45, fp4, 135_040, 8),
            Some(Ring { slots: 4, slot_units: 23, bytes: 4 * 26_496 })
        );
        assert_eq!(Ring::new(45, fp4, 26_496, 8), None);
        for (ranges, units, left) in [(1, 3, 200_000), (2, 12, 150_000), (4, 32, 217_000), (4, 1, 100_000)] {
            let ring = Ring::new(units, [ranges, 768], left, 8).unwrap();
            assert_eq!(ring.slots % (RANGES / ranges), 0);
            assert!(ring.bytes <= left && ring.slots <= 8);
        }
    }
}
