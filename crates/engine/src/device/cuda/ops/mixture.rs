//! A mixture of experts: who goes where is decided on the card; the host only knows how much there can be at most.

use super::super::CudaError;
use super::kernels::{Grid, arg};
use super::owed::Owed;
use super::product::{Input, Rows, Target, multiply, tile_rows};
use super::{Buffer, Cuda, Prepared, Vector};
use crate::device::{Activation, Mixture};

const CHOOSE_WARPS: usize = 4;
const GROUP_THREADS: usize = 1024;

/// Slots by expert, as the kernels left them.
struct Grouped {
    shares: u64,
    tiles: u64,
    tile_count: u64,
    slots: u64,
    tile_rows: usize,
    tiles_max: usize,
}

impl Grouped {
    /// Input rows are slots / `slots_a_row`.
    fn rows(&self, slots_a_row: usize) -> Rows {
        let &Grouped { tiles, tile_count, slots, tile_rows, tiles_max, .. } = self;
        Rows::Grouped { tiles, tile_count, slots, slots_a_row, tile_rows, tiles_max }
    }
}

fn address(bias: Option<&Vector>) -> u64 {
    bias.map_or(0, |bias| bias.values.address)
}

impl Cuda {
    pub(super) fn try_mixture(
        &mut self,
        w: &Mixture<Cuda>,
        x: &Buffer,
        rows: usize,
    ) -> Result<(), CudaError> {
        self.settle()?;
        let done = (rows == 1 && self.few_mixture(w, x)?)
            || self.blend_mixture(w, x, rows)?
            || self.several_mixture(w, x, rows)?;
        if done {
            return Ok(());
        }
        let (hidden, ffn, slots) = (x.width, w.gate.part.rows, rows * w.used);
        let inputs = self.prepare_buffer(x, rows, Cuda::norm(&w.norm))?;
        let grouped = self.route(w, inputs, rows)?;
        let gate = self.scratch.gate.at(&self.card, slots * ffn * 4)?;
        let up = self.scratch.up.at(&self.card, slots * ffn * 4)?;
        let input = |inputs: Prepared, cols: usize, out_stride: usize, rows: Rows| Input {
            x: inputs.values,
            factors: inputs.factors,
            cols,
            stride: inputs.stride as usize,
            out_stride,
            add: false,
            rows,
        };
        let targets = [
            Target { part: &w.gate.part, bias: address(w.gate_bias.as_ref()), out: gate },
            Target { part: &w.up.part, bias: address(w.up_bias.as_ref()), out: up },
        ];
        let from = input(inputs, w.gate.cols, ffn, grouped.rows(w.used));
        multiply(&self.card, &self.kernels, from, &targets)?;
        let clamped = w.activation == Activation::ClampedSwiglu;
        let inner = self.activate(gate, up, clamped, slots, ffn)?;
        let down = self.scratch.down.at(&self.card, slots * hidden * 4)?;
        let target = Target { part: &w.down.part, bias: address(w.down_bias.as_ref()), out: down };
        multiply(&self.card, &self.kernels, input(inner, w.down.cols, hidden, grouped.rows(1)), &[target])?;
        self.mix(&Owed { x: self.lies(x)?, width: hidden, rows, down, shares: grouped.shares, used: w.used })
    }

    /// Chooses the experts of each row, and sorts the slots by expert.
    fn route(&mut self, w: &Mixture<Cuda>, inputs: Prepared, rows: usize) -> Result<Grouped, CudaError> {
        let (experts, slots) = (w.router.rows, rows * w.used);
        let logits = self.scratch.router.at(&self.card, rows * experts * 4)?;
        self.product(&w.router, inputs, rows, w.router_bias.as_ref(), logits, false)?;
        let (card, scratch) = (&self.card, &mut self.scratch);
        let tile_rows = tile_rows(slots, experts);
        let tiles_max = slots.min(experts + slots / tile_rows);
        let chosen = scratch.chosen.at(card, slots * 4)?;
        let grouped = Grouped {
            shares: scratch.shares.at(card, slots * 4)?,
            tiles: scratch.tiles.at(card, tiles_max * 16)?,
            tile_count: scratch.tile_count.at(card, 4)?,
            slots: scratch.slots.at(card, slots * 4)?,
            tile_rows,
            tiles_max,
        };
        let (count, all, used) = (rows as i32, experts as i32, w.used as i32);
        let (slots, tile_rows, normalize) = (slots as i32, tile_rows as i32, i32::from(w.normalize));
        let choose = [
            arg(&logits),
            arg(&count),
            arg(&all),
            arg(&used),
            arg(&normalize),
            arg(&chosen),
            arg(&grouped.shares),
        ];
        let group = [
            arg(&chosen),
            arg(&slots),
            arg(&all),
            arg(&tile_rows),
            arg(&grouped.slots),
            arg(&grouped.tiles),
            arg(&grouped.tile_count),
        ];
        let grid = Grid::rows(rows.div_ceil(CHOOSE_WARPS), CHOOSE_WARPS * 32);
        // SAFETY: the kernels' arguments; all tables have room for every slot and for the most tiles there can be.
        unsafe {
            self.kernels.choose.launch(card, grid, choose)?;
            self.kernels.group.launch(card, Grid::rows(1, GROUP_THREADS), group)?;
        }
        Ok(grouped)
    }
}
