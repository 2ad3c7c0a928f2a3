//! Products: which kernel computes them, and its arguments.

use super::super::{Card, CudaError};
use super::kernels::{Grid, Kernels, arg};
use super::layout::{Layout, TILE_ROWS, UNIT_COLS};
use super::weights::Part;

const WIDE_ROWS: usize = 64; // input rows of a block of `wide`
const WIDE_OUT: usize = 128; // and rows of the matrix
const WIDE_THREADS: usize = 128;
const WIDE_FROM: usize = 16; // rows of a matrix that is large enough
const SPLIT_THREADS: usize = 256;
/// Shared memory for the inputs of a block: several blocks have to fit on a multiprocessor.
pub const STAGED_BYTES_MAX: usize = 48 << 10;
const SPLIT_ROWS: [usize; 4] = [8, 16, 32, 64];

/// `Weights` of `formats.cuh`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Weights {
    codes: u64,
    scales: u64,
    bias: u64,
    out: u64,
    factor: f32,
    rows: i32,
    group_shift: i32,
    unused: i32,
}

/// `Product` of `product.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Args {
    weights: [Weights; 2],
    x: u64,
    x_factors: u64,
    tiles: u64,
    tile_count: u64,
    slots: u64,
    slots_a_row: i32,
    x_stride: i32,
    out_stride: i32,
    units: i32,
    rows: i32,
    add: i32,
    staged: i32,
    unused: i32,
}

/// A part with where its product goes.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    pub part: &'a Part,
    pub bias: u64, // address, or 0
    pub out: u64,
}

/// Which rows are multiplied.
#[derive(Clone, Copy)]
pub enum Rows {
    All(usize),
    /// Of a mixture, in tiles of `tile_rows` slots of one expert; at most `tiles_max` of them.
    Grouped {
        tiles: u64,
        tile_count: u64,
        slots: u64,
        slots_a_row: usize,
        tile_rows: usize,
        tiles_max: usize,
    },
}

/// What is multiplied with one or two parts of the same layout.
#[derive(Clone, Copy)]
pub struct Input {
    pub x: u64, // (rows, stride) f16
    pub factors: u64,
    pub cols: usize,
    pub stride: usize,
    pub out_stride: usize,
    pub add: bool,
    pub rows: Rows,
}

/// Slots of one expert that are multiplied together, for `slots` slots in all.
pub fn tile_rows(slots: usize, experts: usize) -> usize {
    let average = slots.div_ceil(experts.max(1));
    match average {
        0..=4 => 8,
        5..=12 => 16,
        13..=24 => 32,
        _ => WIDE_ROWS,
    }
}

pub fn multiply(
    card: &Card,
    kernels: &Kernels,
    input: Input,
    targets: &[Target<'_>],
) -> Result<(), CudaError> {
    let mut rest = targets;
    while let [first, others @ ..] = rest {
        let pair = others.first().filter(|other| {
            other.part.plan.layout == first.part.plan.layout && other.part.rows == first.part.rows
        });
        let count = 1 + usize::from(pair.is_some());
        launch(card, kernels, input, &rest[..count])?;
        rest = &rest[count..];
    }
    Ok(())
}

fn launch(card: &Card, kernels: &Kernels, input: Input, targets: &[Target<'_>]) -> Result<(), CudaError> {
    let Some(part) = targets.first().map(|target| target.part) else { return Ok(()) };
    let mut args = Args {
        x: input.x,
        x_factors: input.factors,
        x_stride: input.stride as i32,
        out_stride: input.out_stride as i32,
        units: input.cols.div_ceil(UNIT_COLS) as i32,
        slots_a_row: 1,
        add: i32::from(input.add),
        ..Args::default()
    };
    for (weights, target) in args.weights.iter_mut().zip(targets) {
        *weights = target.weights();
    }
    let (most, tiles) = match input.rows {
        Rows::All(rows) => {
            args.rows = rows as i32;
            // A matrix of few rows keeps more of the card busy when its columns are shared out.
            let blocks = part.rows.div_ceil(WIDE_OUT) * targets.len();
            let narrow = blocks * rows.div_ceil(WIDE_ROWS) < card.multiprocessors / 2;
            // With many of them, inputs that go through shared memory with the weights are read less often.
            let wide = rows > WIDE_FROM && blocks >= card.multiprocessors;
            let split = SPLIT_ROWS.into_iter().find(|&most| rows <= most && !wide);
            let most = split.or(narrow.then_some(WIDE_ROWS));
            (most, rows.div_ceil(most.unwrap_or(WIDE_ROWS)))
        }
        Rows::Grouped { tiles, tile_count, slots, slots_a_row, tile_rows, tiles_max } => {
            (args.tiles, args.tile_count, args.slots) = (tiles, tile_count, slots);
            args.slots_a_row = slots_a_row as i32;
            (Some(tile_rows).filter(|&rows| rows < WIDE_ROWS), tiles_max)
        }
    };
    let products = kernels.products(part.plan.layout);
    let split = most.and_then(|most| SPLIT_ROWS.iter().position(|&rows| rows == most));
    let (kernel, out, threads) = match split {
        Some(index) => (&products.split[index], TILE_ROWS, SPLIT_THREADS),
        None => (&products.wide, WIDE_OUT, WIDE_THREADS),
    };
    let grid = Grid { blocks: (part.rows.div_ceil(out), tiles, targets.len()), threads };
    let rows = match input.rows {
        Rows::All(rows) => rows.min(WIDE_ROWS),
        Rows::Grouped { tile_rows, .. } => tile_rows,
    };
    let staged = rows * (args.units as usize * UNIT_COLS + 8) * 2;
    if split.is_some() && staged <= STAGED_BYTES_MAX {
        args.staged = 1;
        // SAFETY: as below, and the block's rows have room in the memory that it asks for.
        return unsafe { kernel.launch_with(card, grid, staged, [arg(&args)]) };
    }
    // SAFETY: `Args` is the kernel's struct; its addresses are of weights, inputs and outputs of these shapes.
    unsafe { kernel.launch(card, grid, [arg(&args)]) }
}

impl Target<'_> {
    pub fn weights(&self) -> Weights {
        let Part { plan, rows, codes, scales, factor } = self.part;
        Weights {
            codes: codes.address,
            scales: scales.address,
            bias: self.bias,
            out: self.out,
            factor: *factor,
            rows: *rows as i32,
            group_shift: i32::from(plan.group == 32),
            unused: 0,
        }
    }
}

/// Every layout has its place in the table of kernels.
const _: () = assert!(Layout::ALL.len() == 4);
