//! Products of few rows: a kernel prepares its own inputs and does what comes after, so that a token needs few kernels.

use super::super::CudaError;
use super::kernels::{Grid, arg};
use super::layout::{Layout, TILE_ROWS, UNIT_COLS};
use super::product::{Target, Weights};
use super::weights::Part;
use super::{Buffer, Cuda, Matrix, RANGES, Vector};
use crate::device::{Activation, Head, Mixture, Mlp};

/// Rows of a batch that come here: with more, each block would prepare for longer than it multiplies.
const ROWS_MAX: usize = 4;
/// Experts that the kernels choose among, and use.
const EXPERTS_MAX: usize = 256;
const USED_MAX: usize = 8;
const THREADS: usize = 256;
/// Blocks that fit on a multiprocessor.
const BLOCKS_EACH: usize = 3;
/// Shared memory that a block may ask for: every card has it.
pub const FEW_BYTES_MAX: usize = 96 << 10;
const STATIC_BYTES: usize = 2 << 10; // that the kernels have beside
const SUMS_STRIDE: usize = TILE_ROWS + 4;

/// `Few` of `few.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Args {
    weights: [Weights; 2],
    x: u64,
    norm: u64,
    largest: u64,
    ready: u64,
    factors: u64,
    list: u64,
    logits: u64,
    chosen: u64,
    shares: u64,
    out_largest: u64,
    eps: f32,
    width: i32,
    x_stride: i32,
    out_stride: i32,
    units: i32,
    rows: i32,
    add: i32,
    clamped: i32,
    experts: i32,
    used: i32,
    normalize: i32,
    unused: i32,
}

/// What a kernel does: by where inputs come from, and by what follows the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Normed,  // x is normalised
    Plain,   // x is taken as it is
    Ready,   // x was prepared
    Gated,   // normalised; gate and up become the hidden values
    Experts, // the same of chosen experts
    Mix,     // down of the chosen experts, and their sum
}

impl Kind {
    pub const ALL: [Kind; 6] =
        [Kind::Normed, Kind::Plain, Kind::Ready, Kind::Gated, Kind::Experts, Kind::Mix];

    /// As the kernels' names have it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Normed => "normed",
            Kind::Plain => "plain",
            Kind::Ready => "ready",
            Kind::Gated => "gated",
            Kind::Experts => "experts",
            Kind::Mix => "mix",
        }
    }

    /// Bytes of shared memory of a block, but for the weights under way.
    fn shared_bytes(self, rows: usize, cols: usize) -> usize {
        let units = cols.div_ceil(UNIT_COLS);
        let inputs = rows * (units * UNIT_COLS + 8) * 2;
        let sums = RANGES * rows * SUMS_STRIDE * 4;
        let (norm, matrices) = match self {
            Kind::Normed => (units * UNIT_COLS * 4, 1),
            Kind::Gated | Kind::Experts => (units * UNIT_COLS * 4, 2),
            Kind::Plain | Kind::Ready | Kind::Mix => (0, 1),
        };
        inputs + norm + 2 * matrices * sums
    }
}

/// As many blocks as stay, with as even a share of the items as can be.
fn blocks(items: usize, multiprocessors: usize) -> usize {
    let rounds = items.div_ceil(BLOCKS_EACH * multiprocessors).max(1);
    items.div_ceil(rounds)
}

impl Args {
    fn of(x: u64, width: usize, rows: usize) -> Args {
        Args {
            x,
            width: width as i32,
            x_stride: width as i32,
            units: width.div_ceil(UNIT_COLS) as i32,
            rows: rows as i32,
            ..Args::default()
        }
    }

    fn normed(self, norm: Option<(u64, f32)>) -> Args {
        let (norm, eps) = norm.unwrap_or((0, 0.0));
        Args { norm, eps, ..self }
    }
}

fn address(vector: Option<&Vector>) -> u64 {
    vector.map_or(0, |vector| vector.values.address)
}

impl Cuda {
    fn few_fit(&self, kind: Kind, layout: Layout, rows: usize, cols: usize) -> bool {
        let stages = self.kernels.products(layout).stage_bytes;
        let rows_max = if kind == Kind::Mix { USED_MAX } else { ROWS_MAX };
        // Rows are read 16 bytes at a time.
        rows <= rows_max
            && cols.is_multiple_of(4)
            && kind.shared_bytes(rows, cols) + stages <= FEW_BYTES_MAX - STATIC_BYTES
    }

    fn launch_few(&self, kind: Kind, layout: Layout, args: &Args, items: usize) -> Result<(), CudaError> {
        let products = self.kernels.products(layout);
        let count = if kind == Kind::Mix { items } else { blocks(items, self.card.multiprocessors) };
        let shared = kind.shared_bytes(args.rows as usize, args.width as usize) + products.stage_bytes;
        let kernel = &products.few[kind as usize];
        // SAFETY: `Args` is the kernels' struct; its addresses are of weights, inputs and outputs of these shapes.
        unsafe { kernel.launch_with(&self.card, Grid::rows(count, THREADS), shared, [arg(args)]) }
    }

    /// The product of each part of a matrix, if there are few rows. Whether there are is told.
    fn few_parts(
        &self,
        kind: Kind,
        matrix: &Matrix,
        bias: u64,
        mut args: Args,
        out: u64,
        add: bool,
    ) -> Result<bool, CudaError> {
        let rows = args.rows as usize;
        let fits = |part: &Part| self.few_fit(kind, part.plan.layout, rows, matrix.cols);
        if !matrix.parts.iter().all(fits) {
            return Ok(false);
        }
        (args.add, args.out_stride) = (i32::from(add), matrix.rows as i32);
        let mut row = 0;
        for part in &matrix.parts {
            let at = 4 * row as u64;
            let bias = if bias == 0 { 0 } else { bias + at };
            args.weights[0] = Target { part, bias, out: out + at }.weights();
            self.launch_few(kind, part.plan.layout, &args, part.rows.div_ceil(TILE_ROWS))?;
            row += part.rows;
        }
        Ok(true)
    }

    /// `out = matrix * norm(x) + bias`
    pub(super) fn few_normed(
        &self,
        matrix: &Matrix,
        bias: Option<&Vector>,
        (x, rows): (&Buffer, usize),
        norm: Option<(u64, f32)>,
        out: u64,
    ) -> Result<bool, CudaError> {
        let (address_of_x, _) = x.read_on_card(&self.card)?;
        let args = Args::of(address_of_x, x.width, rows).normed(norm);
        self.few_parts(Kind::Normed, matrix, address(bias), args, out, false)
    }

    /// `x += matrix * input + bias`
    pub(super) fn few_added(
        &mut self,
        matrix: &Matrix,
        bias: Option<&Vector>,
        input: &Buffer,
        x: u64,
        rows: usize,
    ) -> Result<bool, CudaError> {
        let (from, brought) = input.read_on_card(&self.card)?;
        let mut args = Args::of(from, input.width, rows);
        let mut kind = Kind::Plain;
        if !brought && self.prepared == Some(from) {
            let ready = self.inputs(rows, input.width)?;
            (kind, args.ready, args.factors) = (Kind::Ready, ready.values, ready.factors);
        } else if !brought && self.measured == Some(from) {
            args.largest = self.measures(rows, input.width)?;
        }
        self.few_parts(kind, matrix, address(bias), args, x, true)
    }

    /// Room for the largest magnitudes of each 16 columns.
    fn measures(&mut self, rows: usize, width: usize) -> Result<u64, CudaError> {
        self.scratch.largest.at(&self.card, rows * width.div_ceil(TILE_ROWS) * 4)
    }

    /// `hidden = activation(gate * norm(x), up * norm(x))`
    pub(super) fn few_gated(
        &mut self,
        w: &Mlp<Cuda>,
        x: &Buffer,
        hidden: &mut Buffer,
        rows: usize,
    ) -> Result<bool, CudaError> {
        let ([gate], [up]) = (&w.gate.parts[..], &w.up.parts[..]) else { return Ok(false) };
        let layout = gate.plan.layout;
        if layout != up.plan.layout || !self.few_fit(Kind::Gated, layout, rows, w.gate.cols) {
            return Ok(false);
        }
        let (from, _) = x.read_on_card(&self.card)?;
        let out = hidden.write_on_card();
        let mut args = Args::of(from, x.width, rows).normed(Cuda::norm(&w.norm));
        args.weights = [gate, up].map(|part| Target { part, bias: 0, out }.weights());
        args.out_stride = hidden.width as i32;
        args.out_largest = self.measures(rows, hidden.width)?;
        self.launch_few(Kind::Gated, layout, &args, gate.rows.div_ceil(TILE_ROWS))?;
        (self.prepared, self.measured) = (None, Some(out));
        Ok(true)
    }

    /// The logits of a token or a few.
    pub(super) fn few_head(
        &self,
        w: &Head<Cuda>,
        x: &Buffer,
        (list, count): (u64, usize),
        out: u64,
    ) -> Result<bool, CudaError> {
        let (from, _) = x.read_on_card(&self.card)?;
        let args = Args { list, ..Args::of(from, x.width, count) }.normed(Cuda::norm(&w.norm));
        self.few_parts(Kind::Normed, &w.matrix, 0, args, out, false)
    }

    /// A whole mixture for one row: router; gate and up of the experts that each block chooses for itself; down and the sum.
    pub(super) fn few_mixture(&mut self, w: &Mixture<Cuda>, x: &Buffer) -> Result<bool, CudaError> {
        let (gate, up, down) = (&w.gate.part, &w.up.part, &w.down.part);
        let (layout, experts, ffn) = (gate.plan.layout, w.router.rows, gate.rows);
        let fits = layout == up.plan.layout
            && experts <= EXPERTS_MAX
            && w.used <= USED_MAX
            && w.router.parts.iter().all(|part| self.few_fit(Kind::Normed, part.plan.layout, 1, x.width))
            && self.few_fit(Kind::Experts, layout, 1, x.width)
            && self.few_fit(Kind::Mix, down.plan.layout, w.used, ffn);
        if !fits {
            return Ok(false);
        }
        let (from, _) = x.read_on_card(&self.card)?;
        let hidden = self.scratch.gate.at(&self.card, w.used * ffn * 4)?;
        let logits = self.scratch.router.at(&self.card, experts * 4)?;
        let largest = self.measures(w.used, ffn)?;
        self.measured = None;
        let both = Args {
            chosen: self.scratch.chosen.at(&self.card, w.used * 4)?,
            shares: self.scratch.shares.at(&self.card, w.used * 4)?,
            used: w.used as i32,
            ..Args::default()
        };
        let norm = Cuda::norm(&w.norm);
        self.few_normed(&w.router, w.router_bias.as_ref(), (x, 1), norm, logits)?;
        let bias = |bias: &Option<Vector>| address(bias.as_ref());
        let target = |part, bias, out| Target { part, bias, out }.weights();
        let Args { x: at, width, x_stride, units, rows, norm, eps, .. } =
            Args::of(from, x.width, 1).normed(norm);
        let first = Args {
            weights: [target(gate, bias(&w.gate_bias), hidden), target(up, bias(&w.up_bias), hidden)],
            logits,
            experts: experts as i32,
            normalize: i32::from(w.normalize),
            clamped: i32::from(w.activation == Activation::ClampedSwiglu),
            out_stride: ffn as i32,
            out_largest: largest,
            x: at,
            width,
            x_stride,
            units,
            rows,
            norm,
            eps,
            ..both
        };
        self.launch_few(Kind::Experts, layout, &first, w.used * ffn.div_ceil(TILE_ROWS))?;
        let Args { x: at, width, x_stride, units, rows, .. } = Args::of(hidden, ffn, w.used);
        let last = Args {
            weights: [target(down, bias(&w.down_bias), from), Weights::default()],
            largest,
            x: at,
            width,
            x_stride,
            units,
            rows,
            ..both
        };
        self.launch_few(Kind::Mix, down.plan.layout, &last, down.rows.div_ceil(TILE_ROWS))?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_even_shares() {
        assert_eq!(blocks(224, 132), 224);
        assert_eq!(blocks(1184, 132), 395); // three each
        assert_eq!(blocks(9504, 132), 396);
        assert_eq!(blocks(1, 132), 1);
    }
}
