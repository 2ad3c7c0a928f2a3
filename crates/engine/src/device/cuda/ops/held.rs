//! Products of up to eight rows with a matrix that the multiprocessors can hold among them: it is asked for whole.

use super::super::CudaError;
use super::kernels::{Grid, arg};
use super::layout::{TILE_ROWS, UNIT_COLS};
use super::product::{Target, Weights};
use super::weights::Part;
use super::{Buffer, Cuda, Matrix, Prepared, RANGES, Vector};
use crate::device::Mixture;

pub const ROWS_MAX: usize = 8;
/// Of a block.
const TILES_MAX: usize = 3;
const GROUP_THREADS: usize = RANGES * 32; // a warp a range
/// Of a row that is normalised: its ranges are in the registers of warps.
const NORMED_COLS_MAX: usize = 4096;
/// Shared memory that the kernels have beside.
pub const STATIC_BYTES: usize = 1 << 10;
const SUMS_STRIDE: usize = TILE_ROWS + 4;

/// `Held` of `held.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Args {
    weights: Weights,
    x: u64,
    norm: u64,
    ready: u64,
    factors: u64,
    to: Prepared,
    eps: f32,
    width: i32,
    units: i32,
    rows: i32,
    out_stride: i32,
    add: i32,
    tiles_each: i32,
    unused: i32,
}

/// Bytes of shared memory of a block. Rows that are normalised go through it.
fn shared_bytes(normed: bool, tiles: usize, rows: usize, cols: usize, unit_bytes: usize) -> usize {
    let units = cols.div_ceil(UNIT_COLS);
    let inputs = if normed { rows * (units * UNIT_COLS + 8) * 2 } else { 0 };
    inputs + tiles * (RANGES * rows * SUMS_STRIDE * 4 + units * unit_bytes)
}

impl Cuda {
    /// The most tiles of a block, and its shared memory, if the multiprocessors can hold the part.
    fn held_tiles(&self, part: &Part, args: &Args) -> Option<(usize, usize)> {
        let (rows, cols) = (args.rows as usize, args.width as usize);
        let tiles = part.rows.div_ceil(TILE_ROWS).div_ceil(self.card.multiprocessors);
        let bytes = shared_bytes(args.norm != 0, tiles, rows, cols, part.plan.unit_bytes());
        let fits = rows <= ROWS_MAX && tiles <= TILES_MAX && bytes <= self.kernels.held_bytes_max;
        fits.then_some((tiles, bytes))
    }

    /// Each part of a matrix, if all can be held. Whether they can is told.
    fn held_parts(
        &self,
        matrix: &Matrix,
        bias: Option<&Vector>,
        args: Args,
        out: u64,
    ) -> Result<bool, CudaError> {
        if !matrix.parts.iter().all(|part| self.held_tiles(part, &args).is_some()) {
            return Ok(false);
        }
        let mut row = 0;
        for part in &matrix.parts {
            let Some((tiles, shared)) = self.held_tiles(part, &args) else { continue };
            let at = 4 * row as u64;
            let bias = bias.map_or(0, |bias| bias.values.address + at);
            let args = Args {
                weights: Target { part, bias, out: out + at }.weights(),
                out_stride: matrix.rows as i32,
                tiles_each: tiles as i32,
                ..args
            };
            let blocks = part.rows.div_ceil(TILE_ROWS).min(self.card.multiprocessors);
            let normed = args.norm != 0;
            let kernel = &self.kernels.products(part.plan.layout).held[usize::from(!normed)];
            let threads = if normed { TILES_MAX } else { tiles } * GROUP_THREADS;
            // SAFETY: `Args` is the kernels' struct; its addresses are of weights, inputs and outputs of these shapes.
            unsafe { kernel.launch_with(&self.card, Grid::rows(blocks, threads), shared, [arg(&args)]) }?;
            row += part.rows;
        }
        Ok(true)
    }

    fn held_args(rows: usize, cols: usize) -> Args {
        let units = cols.div_ceil(UNIT_COLS) as i32;
        Args { rows: rows as i32, width: cols as i32, units, ..Args::default() }
    }

    /// `out = matrix * norm(x) + bias`
    pub(super) fn held_normed(
        &self,
        matrix: &Matrix,
        bias: Option<&Vector>,
        (x, rows): (&Buffer, usize),
        norm: Option<(u64, f32)>,
        out: u64,
    ) -> Result<bool, CudaError> {
        let Some((norm, eps)) = norm.filter(|_| matrix.cols <= NORMED_COLS_MAX) else { return Ok(false) };
        let (x, _) = x.read_on_card(&self.card)?;
        let args = Args { x, norm, eps, ..Cuda::held_args(rows, matrix.cols) };
        self.held_parts(matrix, bias, args, out)
    }

    /// A router's logits of x normalised, which is left in `to` as products read it.
    pub(super) fn held_routed(
        &self,
        w: &Mixture<Cuda>,
        (x, rows): (&Buffer, usize),
        to: Prepared,
        logits: u64,
    ) -> Result<bool, CudaError> {
        let (router, Some((norm, eps))) = (&w.router, Cuda::norm(&w.norm)) else { return Ok(false) };
        if router.cols > NORMED_COLS_MAX || router.parts.len() != 1 {
            return Ok(false);
        }
        let (x, _) = x.read_on_card(&self.card)?;
        let args = Args { x, norm, eps, to, ..Cuda::held_args(rows, router.cols) };
        self.held_parts(router, w.router_bias.as_ref(), args, logits)
    }

    /// `out (+)= matrix * inputs + bias`
    pub(super) fn held_ready(
        &self,
        matrix: &Matrix,
        bias: Option<&Vector>,
        (inputs, rows): (Prepared, usize),
        out: u64,
        add: bool,
    ) -> Result<bool, CudaError> {
        let Prepared { values: ready, factors, .. } = inputs;
        let args = Args { ready, factors, add: i32::from(add), ..Cuda::held_args(rows, matrix.cols) };
        self.held_parts(matrix, bias, args, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_room_for_its_tiles_rows_and_sums() {
        // q, k and v of gpt-oss-20b, in 8 bits: three tiles of eight rows just fit where a block may have 227 KB.
        let qkv = shared_bytes(true, 3, 8, 2880, 1152);
        assert_eq!(qkv, 8 * 2888 * 2 + 3 * (8 * 8 * 20 * 4 + 45 * 1152));
        assert!(qkv <= (227 << 10) - STATIC_BYTES);
    }
}
