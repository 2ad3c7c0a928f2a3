//! Matrix products: one kernel for each way that weights are packed, for any number of input rows.
//!
//! Each output value is summed over the columns in the same order however many rows are computed
//! together, so a token's result does not depend on what else is in the batch, bit for bit.

use super::input::Input;
use super::pack::{BLOCK, Packed, Packing, ScaleKind, Stripe, with_packing};
use super::simd::{Isa, Kernel, LANES, Simd, prefetch_near};
use crate::quant::Format;
use std::marker::PhantomData;
use std::ops::Range;

/// Input rows whose products share one pass over a panel.
const TILE: usize = 8;

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
        // Rows go in groups whose input stays in the second-level cache while the panels stream by.
        let group = (GROUP_BYTES / self.matrix.cols.max(1)).clamp(TILE, 512) / TILE * TILE;
        for start in (0..self.count).step_by(group) {
            let rows = start..self.count.min(start + group);
            for panel in panels.clone() {
                let column = at + (panel - panels.start) * LANES;
                let task = Task { product: *self, panel, rows: rows.clone(), column };
                let format = self.matrix.format;
                with_packing!(format, P => isa.run(Levels::<P>(task, PhantomData)),
                otherwise => match format {
                    Format::F16 => isa.run(Floats::<F16>(task, PhantomData)),
                    Format::Bf16 => isa.run(Floats::<Bf16>(task, PhantomData)),
                    _ => isa.run(Floats::<F32>(task, PhantomData)),
                })
            }
        }
    }
}

/// Panels that a thread takes at a time. With few rows the weights' way from memory is what takes time, and
/// long runs of them are what memory is good at; with many rows, small units keep the threads even.
pub fn panels_a_unit(panels: usize, threads: usize, rows: usize) -> usize {
    if rows < TILE { panels.div_ceil(threads * 2).max(1) } else { (panels / (threads * 8)).clamp(1, 16) }
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

struct Levels<'a, P>(Task<'a>, PhantomData<P>);

impl<P: Packing> Kernel for Levels<'_, P> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: passed on from `Product::run`.
        unsafe { self.0.run::<S, P>() }
    }
}

impl<S: Simd, P: Packing> Tile<S> for P {
    #[inline(always)]
    unsafe fn sums<const M: usize>(
        matrix: &Packed,
        panel: *const u8,
        input: Input<'_>,
        rows: [usize; M],
    ) -> [S::F; M] {
        let cols = matrix.cols;
        let blocks = cols / BLOCK;
        // SAFETY: all offsets stay within the panel's stripes and the input's rows, both `cols` wide.
        unsafe {
            let mut at = InputRows::<M>::new::<P>(input, rows, cols);
            let mut total = [S::splat(0.0); M];
            for first in (0..blocks).step_by(Stripe::<P>::BLOCKS) {
                let stripe = panel.add(first / Stripe::<P>::BLOCKS * Stripe::<P>::BYTES);
                let factors = Factors::<S>::of_stripe::<P>(stripe);
                for block in 0..Stripe::<P>::BLOCKS.min(blocks - first) {
                    prefetch_block::<P>(stripe, block);
                    block_sums::<S, P, M>(stripe, block, factors, &at, &mut total);
                    at.next_block::<P>();
                }
            }
            total
        }
    }
}

/// How far ahead of the arithmetic weights are asked for: what memory delivers while one request is on its way.
const PREFETCH_BYTES: usize = 3072;

/// Asks for a block's share of the stripe that is `PREFETCH_BYTES` further on: evenly, because a burst of
/// requests would hold up the loads that are needed now.
#[inline(always)]
fn prefetch_block<P: Packing>(stripe: *const u8, block: usize) {
    let lines = Stripe::<P>::BYTES / 64;
    let first = block * lines / Stripe::<P>::BLOCKS;
    for i in 0..lines.div_ceil(Stripe::<P>::BLOCKS) {
        prefetch_near(stripe.wrapping_add(PREFETCH_BYTES + (first + i) * 64));
    }
}

/// Where the next block of each input row lies.
struct InputRows<const M: usize> {
    levels: [*const i8; M],
    scales: [*const f32; M],
    sums: [*const f32; M], // of groups
}

impl<const M: usize> InputRows<M> {
    #[inline(always)]
    unsafe fn new<P: Packing>(input: Input<'_>, rows: [usize; M], cols: usize) -> Self {
        // SAFETY: the rows exist.
        unsafe {
            InputRows {
                levels: rows.map(|row| input.levels.add(row * cols)),
                scales: rows.map(|row| input.scales.add(row * (cols / BLOCK))),
                sums: rows.map(|row| match P::GROUP {
                    16 => input.half_sums.add(row * (cols / 16)),
                    _ => input.sums.add(row * (cols / BLOCK)),
                }),
            }
        }
    }

    #[inline(always)]
    unsafe fn next_block<P: Packing>(&mut self) {
        for i in 0..M {
            self.levels[i] = self.levels[i].wrapping_add(BLOCK);
            self.scales[i] = self.scales[i].wrapping_add(1);
            self.sums[i] = self.sums[i].wrapping_add(Stripe::<P>::GROUPS);
        }
    }
}

/// Adds one block's products to the totals.
#[inline(always)]
unsafe fn block_sums<S: Simd, P: Packing, const M: usize>(
    stripe: *const u8,
    block: usize,
    factors: Factors<S>,
    at: &InputRows<M>,
    total: &mut [S::F; M],
) {
    let vectors = 8 / Stripe::<P>::GROUPS; // of 4 columns, in one group
    // SAFETY: passed on from `sums`.
    unsafe {
        let planes = stripe.add(block * P::BITS * 64);
        for group in 0..Stripe::<P>::GROUPS {
            let own = factors.times_group::<P>(stripe, block * Stripe::<P>::GROUPS + group);
            let mut dots = [S::zero_i(); M];
            for vector in group * vectors..(group + 1) * vectors {
                let weights = unpack::<S, P>(planes, vector);
                for i in 0..M {
                    dots[i] = dot::<S, P>(dots[i], weights, at.levels[i].add(vector * 4));
                }
            }
            for i in 0..M {
                let scale = S::mul(own.scale, S::splat(*at.scales[i]));
                total[i] = S::fma(S::to_f32(dots[i]), scale, total[i]);
                total[i] = S::fma(own.minimum, S::splat(*at.sums[i].add(group)), total[i]);
            }
        }
    }
}

/// What levels are multiplied with, and what is added, for 16 rows.
#[derive(Clone, Copy)]
struct Factors<S: Simd> {
    scale: S::F,
    minimum: S::F,
}

impl<S: Simd> Factors<S> {
    /// The factors of a whole stripe; 1 for formats that have none.
    #[inline(always)]
    unsafe fn of_stripe<P: Packing>(stripe: *const u8) -> Self {
        // SAFETY: a stripe with supers has `VECTORS` vectors of them.
        unsafe {
            if !Stripe::<P>::HAS_SUPERS {
                return Factors { scale: S::splat(1.0), minimum: S::splat(1.0) };
            }
            let at = stripe.add(Stripe::<P>::SUPERS).cast::<u16>();
            let scale = S::load_f16(at);
            let minimum = if P::MINIMA { S::load_f16(at.add(LANES)) } else { scale };
            Factors { scale, minimum }
        }
    }

    /// The factors of one group of columns of the stripe.
    #[inline(always)]
    unsafe fn times_group<P: Packing>(self, stripe: *const u8, group: usize) -> Self {
        let at = Stripe::<P>::SCALES + group * LANES * Stripe::<P>::VECTORS * Stripe::<P>::SCALE_BYTES;
        // SAFETY: `group` is one of the stripe's.
        unsafe {
            let first = load_scales::<S, P>(stripe.add(at));
            let scale = if Stripe::<P>::HAS_SUPERS { S::mul(first, self.scale) } else { first };
            if !P::MINIMA {
                return Factors { scale, minimum: S::mul(scale, S::splat(-(P::ZERO as f32))) };
            }
            let second = load_scales::<S, P>(stripe.add(at + LANES * Stripe::<P>::SCALE_BYTES));
            let minimum = if Stripe::<P>::HAS_SUPERS { S::mul(second, self.minimum) } else { second };
            Factors { scale, minimum }
        }
    }
}

#[inline(always)]
unsafe fn load_scales<S: Simd, P: Packing>(at: *const u8) -> S::F {
    // SAFETY: passed on from `times_group`.
    unsafe {
        match P::SCALES {
            ScaleKind::F16 => S::load_f16(at.cast()),
            ScaleKind::E8m0 => S::load_e8m0(at),
            ScaleKind::SuperU8 => S::load_u8(at),
            ScaleKind::SuperI8 => S::load_i8(at),
        }
    }
}

#[inline(always)]
unsafe fn dot<S: Simd, P: Packing>(acc: S::I, weights: S::I, s: *const i8) -> S::I {
    // SAFETY: passed on from `sums`.
    unsafe { if P::WIDE { S::dot::<true>(acc, weights, s) } else { S::dot::<false>(acc, weights, s) } }
}

/// Vector `vector` (0..8) of a block's levels: 16 rows by 4 columns.
#[inline(always)]
unsafe fn unpack<S: Simd, P: Packing>(planes: *const u8, vector: usize) -> S::I {
    // SAFETY: the block has `P::BITS * 64` bytes.
    unsafe {
        let levels = match P::BITS {
            2 => pair::<S>(planes, vector),
            3 => S::or(pair::<S>(planes, vector), S::shift_left::<2>(single::<S>(planes.add(128), vector))),
            4 => nibble::<S>(planes, vector),
            5 => S::or(nibble::<S>(planes, vector), S::shift_left::<4>(single::<S>(planes.add(256), vector))),
            6 => S::or(nibble::<S>(planes, vector), S::shift_left::<4>(pair::<S>(planes.add(256), vector))),
            _ => S::load_i(planes.add(vector * 64)),
        };
        match P::TABLE {
            Some(table) => S::shuffle(S::splat_table(&table), levels),
            None => levels,
        }
    }
}

#[inline(always)]
unsafe fn nibble<S: Simd>(planes: *const u8, vector: usize) -> S::I {
    // SAFETY: passed on from `unpack`.
    unsafe {
        let both = S::load_i(planes.add(vector / 2 * 64));
        let own = if vector % 2 == 0 { both } else { S::shift_right::<4>(both) };
        S::and(own, S::splat_u8(15))
    }
}

#[inline(always)]
unsafe fn pair<S: Simd>(planes: *const u8, vector: usize) -> S::I {
    // SAFETY: passed on from `unpack`.
    unsafe {
        let four = S::load_i(planes.add(vector / 4 * 64));
        let own = match vector % 4 {
            0 => four,
            1 => S::shift_right::<2>(four),
            2 => S::shift_right::<4>(four),
            _ => S::shift_right::<6>(four),
        };
        S::and(own, S::splat_u8(3))
    }
}

#[inline(always)]
unsafe fn single<S: Simd>(planes: *const u8, vector: usize) -> S::I {
    // SAFETY: passed on from `unpack`.
    unsafe {
        let eight = S::load_i(planes);
        let own = match vector {
            0 => eight,
            1 => S::shift_right::<1>(eight),
            2 => S::shift_right::<2>(eight),
            3 => S::shift_right::<3>(eight),
            4 => S::shift_right::<4>(eight),
            5 => S::shift_right::<5>(eight),
            6 => S::shift_right::<6>(eight),
            _ => S::shift_right::<7>(eight),
        };
        S::and(own, S::splat_u8(1))
    }
}

/// A way that unquantised weights are stored.
trait FloatKind {
    /// # Safety
    /// `from` holds 16 values.
    unsafe fn load<S: Simd>(from: *const u8) -> S::F;
    const BYTES: usize;
}

struct F32;
struct F16;
struct Bf16;

impl FloatKind for F32 {
    const BYTES: usize = 4;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u8) -> S::F {
        // SAFETY: passed on.
        unsafe { S::load(from.cast()) }
    }
}

impl FloatKind for F16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u8) -> S::F {
        // SAFETY: passed on.
        unsafe { S::load_f16(from.cast()) }
    }
}

impl FloatKind for Bf16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u8) -> S::F {
        // SAFETY: passed on.
        unsafe { S::load_bf16(from.cast()) }
    }
}

struct Floats<'a, K>(Task<'a>, PhantomData<K>);

impl<K: FloatKind> Kernel for Floats<'_, K> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: passed on from `Product::run`.
        unsafe { self.0.run::<S, FloatTile<K>>() }
    }
}

struct FloatTile<K>(PhantomData<K>);

impl<S: Simd, K: FloatKind> Tile<S> for FloatTile<K> {
    #[inline(always)]
    unsafe fn sums<const M: usize>(
        matrix: &Packed,
        panel: *const u8,
        input: Input<'_>,
        rows: [usize; M],
    ) -> [S::F; M] {
        let cols = matrix.cols;
        // SAFETY: the panel has 16 values for each column, the input rows have `cols` values.
        unsafe {
            let values = rows.map(|row| input.values.add(row * cols));
            // Two running sums, for even and odd columns, hide the latency of the additions.
            let mut totals = [[S::splat(0.0); M]; 2];
            for pair in 0..cols / 2 {
                float_step::<S, K, M>(panel, 2 * pair, values, &mut totals[0]);
                float_step::<S, K, M>(panel, 2 * pair + 1, values, &mut totals[1]);
            }
            if cols % 2 == 1 {
                float_step::<S, K, M>(panel, cols - 1, values, &mut totals[0]);
            }
            std::array::from_fn(|i| S::add(totals[0][i], totals[1][i]))
        }
    }
}

/// Adds one column's products.
#[inline(always)]
unsafe fn float_step<S: Simd, K: FloatKind, const M: usize>(
    panel: *const u8,
    col: usize,
    values: [*const f32; M],
    totals: &mut [S::F; M],
) {
    // SAFETY: passed on from `sums`.
    unsafe {
        let weights = K::load::<S>(panel.add(col * LANES * K::BYTES));
        for i in 0..M {
            totals[i] = S::fma(weights, S::splat(*values[i].add(col)), totals[i]);
        }
    }
}
