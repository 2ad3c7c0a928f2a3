//! Matrix products: one kernel for each way that weights are packed, for any number of input rows.
//!
//! Each output value is summed over the columns in the same order however many rows are computed
//! together, so a token's result does not depend on what else is in the batch, bit for bit.

mod blocks;
mod bounds;
mod coarse;
mod floats;
mod supers;
mod units;
mod unpack;

use super::input::Input;
use super::pack::{Packed, Packing, Stripe, with_packing};
use super::simd::{Isa, Kernel, LANES, Simd, prefetch_once};
use crate::quant::Format;
use blocks::Blocks;
pub use bounds::{BoundPanel, Bounds};
pub use coarse::{Coarse, GROUP};
use floats::{Bf16, F16, F32, Floats};
use std::marker::PhantomData;
use std::ops::Range;
use supers::Supers;
pub use units::Units;
use unpack::unpack;

/// Input rows whose products share one pass over a panel.
pub const TILE: usize = 8;

/// Which rows of a buffer take part.
#[derive(Clone, Copy)]
pub enum Rows<'a> {
    From(usize),
    List(&'a [u32]),
}

impl Rows<'_> {
    #[inline(always)]
    pub fn get(&self, index: usize) -> usize {
        match self {
            Rows::From(start) => start + index,
            Rows::List(list) => list[index] as usize,
        }
    }
}

/// `output[to[i]] (+)= matrix * input[from[i]] + bias`, for some panels of the matrix.
#[derive(Clone, Copy)]
pub struct Product<'a> {
    pub matrix: &'a Packed,
    pub bias: Option<&'a [f32]>, // (matrix.rows)
    pub input: Input<'a>,
    pub from: Rows<'a>,
    pub to: Rows<'a>,
    pub count: usize, // of rows
    pub output: Output,
    pub add: bool, // to what the output holds
}

/// Where the products go: row `r` of the output begins at `base + r * stride`.
#[derive(Clone, Copy)]
pub struct Output {
    pub base: *mut f32,
    pub stride: usize, // values
}

// SAFETY: threads write disjoint panels, that is disjoint columns of the output.
unsafe impl Send for Output {}
// SAFETY: as above.
unsafe impl Sync for Output {}

impl Product<'_> {
    /// Computes the panels `panels`; their first column goes to column `at` of the output.
    ///
    /// # Safety
    /// The output has `to`'s rows with room for the panels' columns from `at`, and nobody else uses them.
    pub unsafe fn run(&self, isa: Isa, panels: Range<usize>, at: usize) {
        // SAFETY: passed on.
        unsafe { run_by_turns([(self, at)], isa, panels) };
    }

    #[inline(always)]
    unsafe fn run_panel(&self, isa: Isa, panel: usize, rows: Range<usize>, column: usize) {
        let task = Task { product: *self, panel, rows, column };
        let format = self.matrix.format;
        with_packing!(format, P => isa.run(Levels::<P>(task, PhantomData)),
        otherwise => match format {
            Format::F16 => isa.run(Floats::<F16>(task, PhantomData)),
            Format::Bf16 => isa.run(Floats::<Bf16>(task, PhantomData)),
            _ => isa.run(Floats::<F32>(task, PhantomData)),
        })
    }
}

/// Computes the same panels of several products of the same rows, by turns, as such matrices lie in memory. The first column of
/// each goes to its own place in the output.
///
/// # Safety
/// As for [`Product::run`].
pub unsafe fn run_by_turns<const N: usize>(
    products: [(&Product<'_>, usize); N],
    isa: Isa,
    panels: Range<usize>,
) {
    let Product { matrix, count, .. } = products[0].0;
    // Rows go in groups whose input stays in the second-level cache while the panels stream by.
    let group = (GROUP_BYTES / matrix.cols.max(1)).clamp(TILE, 512) / TILE * TILE;
    for start in (0..*count).step_by(group) {
        let rows = start..(*count).min(start + group);
        for panel in panels.clone() {
            for (product, at) in products {
                let column = at + (panel - panels.start) * LANES;
                // SAFETY: passed on.
                unsafe { product.run_panel(isa, panel, rows.clone(), column) };
            }
        }
    }
}

/// Bytes of input that a group of rows may take: half of a small second-level cache.
const GROUP_BYTES: usize = 256 << 10;

/// One panel times some rows.
struct Task<'a> {
    product: Product<'a>,
    panel: usize,
    rows: Range<usize>,
    column: usize, // of the output
}

impl Task<'_> {
    /// Goes through the rows in tiles of 8, 4, 2 and 1.
    #[inline(always)]
    unsafe fn run<S: Simd, T: Tile<S>>(&self) {
        let mut row = self.rows.start;
        // SAFETY: passed on from `Product::run`.
        unsafe {
            while row < self.rows.end {
                row += match self.rows.end - row {
                    TILE.. => self.tile::<S, T, TILE>(row),
                    4.. => self.tile::<S, T, 4>(row),
                    2.. => self.tile::<S, T, 2>(row),
                    _ => self.tile::<S, T, 1>(row),
                };
            }
        }
    }

    #[inline(always)]
    unsafe fn tile<S: Simd, T: Tile<S>, const M: usize>(&self, row: usize) -> usize {
        let product = &self.product;
        let from = std::array::from_fn(|i| product.from.get(row + i));
        // SAFETY: the rows exist in the input; the caller vouches for the output.
        unsafe {
            let sums = T::sums::<M>(product.matrix, product.matrix.panel(self.panel), product.input, from);
            for (i, sum) in sums.into_iter().enumerate() {
                let to =
                    product.output.base.add(product.to.get(row + i) * product.output.stride + self.column);
                self.finish::<S>(sum, to);
            }
        }
        M
    }

    /// Adds the bias and writes 16 values, or fewer in the last panel.
    #[inline(always)]
    unsafe fn finish<S: Simd>(&self, sum: S::F, to: *mut f32) {
        let first = self.panel * LANES;
        let width = LANES.min(self.product.matrix.rows - first);
        // SAFETY: `to` has room for `width` values; the stack buffers have 16.
        unsafe {
            if width == LANES {
                let mut sum = sum;
                if let Some(bias) = self.product.bias {
                    sum = S::add(sum, S::load(bias[first..first + LANES].as_ptr()));
                }
                if self.product.add {
                    sum = S::add(sum, S::load(to));
                }
                return S::store(to, sum);
            }
            let mut values = [0.0; LANES];
            S::store(values.as_mut_ptr(), sum);
            for (i, value) in values[..width].iter().enumerate() {
                let bias = self.product.bias.map_or(0.0, |bias| bias[first + i]);
                let before = if self.product.add { *to.add(i) } else { 0.0 };
                *to.add(i) = value + bias + before;
            }
        }
    }
}

/// The inner loop: 16 rows of a matrix times `M` rows of input.
trait Tile<S: Simd> {
    /// # Safety
    /// `panel` is a panel of `matrix`, `rows` are rows of `input`, and the CPU has `S`.
    unsafe fn sums<const M: usize>(
        matrix: &Packed,
        panel: *const u8,
        input: Input<'_>,
        rows: [usize; M],
    ) -> [S::F; M];
}

/// One panel of levels times some rows.
struct Levels<'a, P>(Task<'a>, PhantomData<P>);

impl<P: Packing> Kernel for Levels<'_, P> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: passed on from `Product::run`.
        unsafe {
            if Stripe::<P>::HAS_SUPERS {
                self.0.run::<S, Supers<P>>();
            } else {
                self.0.run::<S, Blocks<P>>();
            }
        }
    }
}

/// Adds to `dots` the products of one group of a block's columns with `M` rows of levels.
///
/// # Safety
/// A block lies at `planes`; the levels of its columns lie at `at` of each of `levels`; the CPU has `S`.
#[inline(always)]
unsafe fn add_dots<S: Simd, P: Packing, const M: usize>(
    dots: &mut [S::I; M],
    planes: *const u8,
    group: usize,
    levels: &[*const i8; M],
    at: usize,
) {
    let vectors = 8 / Stripe::<P>::GROUPS; // of 4 columns
    // SAFETY: passed on.
    unsafe {
        for vector in group * vectors..(group + 1) * vectors {
            let weights = unpack::<S, P>(planes, vector);
            for i in 0..M {
                let levels = levels[i].add(at + vector * 4);
                dots[i] = match P::WIDE {
                    true => S::dot::<true>(dots[i], weights, levels),
                    false => S::dot::<false>(dots[i], weights, levels),
                };
            }
        }
    }
}

/// What dot products begin with: the level of the weight 0 is subtracted from all weights here, if there are no minima.
/// `minus` is minus the sum of the input's levels.
///
/// # Safety
/// The CPU has `S`.
#[inline(always)]
unsafe fn first_dot<S: Simd, P: Packing>(minus: i32) -> S::I {
    // SAFETY: registers only.
    unsafe { S::shift_lanes(S::splat_i32(minus), P::ZERO.ilog2()) }
}

/// How far ahead of the arithmetic weights are asked for: what memory delivers while one request is on its way.
const PREFETCH_BYTES: usize = 8192;

/// Asks for a block's share of the stripe that is `PREFETCH_BYTES` further on: evenly, because a burst of
/// requests would hold up the loads that are needed now.
#[inline(always)]
fn prefetch_block<P: Packing>(stripe: *const u8, block: usize) {
    let lines = Stripe::<P>::BYTES / 64;
    let first = block * lines / Stripe::<P>::BLOCKS;
    for i in 0..lines.div_ceil(Stripe::<P>::BLOCKS) {
        prefetch_once(stripe.wrapping_add(PREFETCH_BYTES + (first + i) * 64));
    }
}
