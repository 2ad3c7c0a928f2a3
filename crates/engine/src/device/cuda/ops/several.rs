//! Products of some rows: one block a multiprocessor goes through tiles with its input rows in shared memory.

use super::super::CudaError;
use super::kernels::{Grid, arg};
use super::layout::{Layout, TILE_ROWS, UNIT_COLS};
use super::owed::Owed;
use super::product::{Target, Weights};
use super::weights::Part;
use super::{Buffer, Cuda, Prepared, Vector};
use crate::device::{Activation, Mixture, Mlp};

/// Rows of a batch that come here, beside a mixture's of few.
const ROWS_MIN: usize = 5;
const ROWS_MAX: usize = 64;
/// Of a pass.
const PASS_ROWS_MAX: usize = 16;
const EXPERTS_MAX: usize = 256;
const SLOTS_MAX: usize = 512;
const ROUTE_THREADS: usize = 512;
/// Shared memory that the kernels have beside.
pub const STATIC_BYTES: usize = 10 << 10;
/// Tiles of a matrix that each group has at least: with fewer, some would have far more than others.
const TILES_EACH_MIN: usize = 4;

/// `Several` of `several.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Args {
    weights: [Weights; 2],
    x: u64,
    x_factors: u64,
    hidden: u64,
    largest: u64,
    chosen: u64,
    out_largest: u64,
    slots: i32,
    slots_a_row: i32,
    experts: i32,
    width: i32,
    x_stride: i32,
    out_stride: i32,
    units: i32,
    add: i32,
    clamped: i32,
    rows_most: i32,
}

/// `Route` of `route.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct RouteArgs {
    router: Weights,
    x: u64,
    norm: u64,
    to: Prepared,
    chosen: u64,
    shares: u64,
    eps: f32,
    width: i32,
    used: i32,
    normalize: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Matrix, // one product
    Gated,  // gate and up become the hidden values
    In,     // the same of experts
    Out,    // down of experts
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Matrix, Kind::Gated, Kind::In, Kind::Out];

    /// As the kernels' names have it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Matrix => "matrix",
            Kind::Gated => "gated",
            Kind::In => "in",
            Kind::Out => "out",
        }
    }
}

/// Rows of each pass over `rows` rows if `fit` of them fit: as even as can be.
fn pass_rows(rows: usize, fit: usize) -> usize {
    let fit = fit.min(PASS_ROWS_MAX);
    if fit == 0 { 0 } else { rows.div_ceil(rows.div_ceil(fit)) }
}

fn address(vector: Option<&Vector>) -> u64 {
    vector.map_or(0, |vector| vector.values.address)
}

impl Cuda {
    /// Bytes of shared memory for each input row of a pass.
    fn several_row_bytes(&self, cols: usize) -> usize {
        (cols.next_multiple_of(UNIT_COLS) + 8) * 2 + self.kernels.several_row_bytes
    }

    /// Input rows of a pass that have room.
    fn several_fit(&self, layout: Layout, cols: usize) -> usize {
        let stages = self.kernels.products(layout).several_stage_bytes;
        self.kernels.several_bytes_max.saturating_sub(stages) / self.several_row_bytes(cols)
    }

    fn launch_several(&self, kind: Kind, layout: Layout, args: &Args, cols: usize) -> Result<(), CudaError> {
        let products = self.kernels.products(layout);
        let shared = args.rows_most as usize * self.several_row_bytes(cols) + products.several_stage_bytes;
        let grid = Grid::rows(self.card.multiprocessors, self.kernels.several_threads);
        let kernel = &products.several[kind as usize];
        // SAFETY: `Args` is the kernels' struct; its addresses are of weights, inputs and outputs of these shapes.
        unsafe { kernel.launch_with(&self.card, grid, shared, [arg(args)]) }
    }

    /// How many rows a pass over a part has, if it is to be computed here.
    fn several_rows(&self, part: &Part, cols: usize, rows: usize) -> Option<usize> {
        let each = pass_rows(rows, self.several_fit(part.plan.layout, cols));
        let tiles = part.rows.div_ceil(TILE_ROWS);
        let long = tiles >= TILES_EACH_MIN * self.kernels.several_groups * self.card.multiprocessors;
        ((ROWS_MIN..=ROWS_MAX).contains(&rows) && each == rows && long).then_some(each)
    }

    /// The product of a part, if there are some rows. Whether there are is told.
    pub(super) fn several_part(
        &self,
        part: &Part,
        inputs: Prepared,
        (rows, cols): (usize, usize),
        (bias, out, out_stride): (u64, u64, usize),
        add: bool,
    ) -> Result<bool, CudaError> {
        let Some(each) = self.several_rows(part, cols, rows) else { return Ok(false) };
        let args = Args {
            weights: [Target { part, bias, out }.weights(), Weights::default()],
            out_stride: out_stride as i32,
            add: i32::from(add),
            rows_most: each as i32,
            ..Args::of(inputs, rows)
        };
        self.launch_several(Kind::Matrix, part.plan.layout, &args, cols).map(|()| true)
    }

    /// A whole mixture for some rows: router and choice; gate and up; down; the sum.
    pub(super) fn several_mixture(
        &mut self,
        w: &Mixture<Cuda>,
        x: &Buffer,
        rows: usize,
    ) -> Result<bool, CudaError> {
        let (gate, up, down) = (&w.gate.part, &w.up.part, &w.down.part);
        let ([router], slots, ffn) = (&w.router.parts[..], rows * w.used, gate.rows) else {
            return Ok(false);
        };
        let layout = gate.plan.layout;
        let fit = |layout, cols| pass_rows(rows, self.several_fit(layout, cols));
        let (first, last) = (fit(layout, x.width), fit(down.plan.layout, ffn));
        let fits = layout == up.plan.layout
            && router.rows <= EXPERTS_MAX
            && slots <= SLOTS_MAX
            && rows <= ROWS_MAX
            && x.width.is_multiple_of(4)
            && ffn.is_multiple_of(4)
            && first.min(last) >= 4.min(rows);
        if !fits {
            return Ok(false);
        }
        let (from, _) = x.read_on_card(&self.card)?;
        let inputs = self.inputs(rows, x.width)?;
        let chosen = self.scratch.chosen.at(&self.card, slots * 4)?;
        let shares = self.scratch.shares.at(&self.card, slots * 4)?;
        self.route_rows(w, router, (from, x.width, rows), inputs, (chosen, shares))?;
        let hidden = self.scratch.gate.at(&self.card, slots * ffn * 4)?;
        let largest = self.scratch.largest.at(&self.card, slots * ffn.div_ceil(TILE_ROWS) * 4)?;
        let out = self.scratch.down.at(&self.card, slots * x.width * 4)?;
        (self.prepared, self.measured) = (None, None);
        let both = Args {
            chosen,
            experts: router.rows as i32,
            slots: slots as i32,
            clamped: i32::from(w.activation == Activation::ClampedSwiglu),
            ..Args::of(inputs, slots)
        };
        let target =
            |part, bias: &Option<Vector>, out| Target { part, bias: address(bias.as_ref()), out }.weights();
        let into = Args {
            weights: [target(gate, &w.gate_bias, hidden), target(up, &w.up_bias, hidden)],
            slots_a_row: w.used as i32,
            out_stride: ffn as i32,
            out_largest: largest,
            rows_most: first as i32,
            ..both
        };
        self.launch_several(Kind::In, layout, &into, x.width)?;
        let out_of = Args {
            weights: [target(down, &w.down_bias, out), Weights::default()],
            hidden,
            largest,
            width: ffn as i32,
            x_stride: ffn as i32,
            units: ffn.div_ceil(UNIT_COLS) as i32,
            out_stride: x.width as i32,
            rows_most: last as i32,
            ..both
        };
        self.launch_several(Kind::Out, down.plan.layout, &out_of, ffn)?;
        self.mix(&Owed { x: self.lies(x)?, width: x.width, rows, down: out, shares, used: w.used })?;
        Ok(true)
    }

    /// Prepares rows, and chooses the experts of each.
    fn route_rows(
        &self,
        w: &Mixture<Cuda>,
        router: &Part,
        (x, width, rows): (u64, usize, usize),
        to: Prepared,
        (chosen, shares): (u64, u64),
    ) -> Result<(), CudaError> {
        let args = RouteArgs {
            router: Target { part: router, bias: address(w.router_bias.as_ref()), out: 0 }.weights(),
            x,
            norm: w.norm.weight.values.address,
            to,
            chosen,
            shares,
            eps: w.norm.eps,
            width: width as i32,
            used: w.used as i32,
            normalize: i32::from(w.normalize),
        };
        let shared = to.units as usize * UNIT_COLS * 2;
        let kernel = &self.kernels.products(router.plan.layout).route;
        // SAFETY: `RouteArgs` is the kernel's struct; x and the tables have the rows.
        unsafe { kernel.launch_with(&self.card, Grid::rows(rows, ROUTE_THREADS), shared, [arg(&args)]) }
    }

    /// `hidden = activation(gate * norm(x), up * norm(x))`, if there are some rows.
    pub(super) fn several_gated(
        &mut self,
        w: &Mlp<Cuda>,
        inputs: Prepared,
        hidden: &mut Buffer,
        rows: usize,
    ) -> Result<bool, CudaError> {
        let ([gate], [up]) = (&w.gate.parts[..], &w.up.parts[..]) else { return Ok(false) };
        let layout = gate.plan.layout;
        let each = self.several_rows(gate, w.gate.cols, rows);
        let Some(each) = each.filter(|_| layout == up.plan.layout) else { return Ok(false) };
        let (out, width) = (hidden.write_on_card(), hidden.width);
        let args = Args {
            weights: [gate, up].map(|part| Target { part, bias: 0, out }.weights()),
            out_stride: width as i32,
            out_largest: self.scratch.largest.at(&self.card, rows * width.div_ceil(TILE_ROWS) * 4)?,
            rows_most: each as i32,
            ..Args::of(inputs, rows)
        };
        self.launch_several(Kind::Gated, layout, &args, w.gate.cols)?;
        (self.prepared, self.measured) = (None, Some(out));
        Ok(true)
    }
}

impl Args {
    fn of(inputs: Prepared, rows: usize) -> Args {
        Args {
            x: inputs.values,
            x_factors: inputs.factors,
            x_stride: inputs.stride,
            units: inputs.units,
            slots: rows as i32,
            slots_a_row: 1,
            ..Args::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_have_even_shares() {
        assert_eq!(pass_rows(5, 16), 5);
        assert_eq!(pass_rows(16, 12), 8);
        assert_eq!(pass_rows(33, 40), 11);
        assert_eq!(pass_rows(64, 16), 16);
        assert_eq!(pass_rows(64, 0), 0);
    }
}
