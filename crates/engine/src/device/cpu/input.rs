//! What a matrix product reads: rows of f32, or the same rows as 8-bit levels in blocks of 32 or 256.

use super::cut::Cut;
use super::memory::{Memory, OutOfMemory, Plain};
use super::pack::{BLOCK, LARGE_BLOCK, Packed};
use super::pool::Worker;
use super::simd::{Isa, Kernel, LANES, Simd};
use std::marker::PhantomData;

/// Room for the input of any product of the model: one that threads make together, then one of few values for each thread.
pub struct InputMemory {
    values: Memory<f32>,        // (rows, cols)
    small: Memory<SmallLevels>, // (rows, cols / 32)
    large: Memory<LargeLevels>, // (rows, cols / 256)
    together: usize,            // values that threads make together
}

/// An input of at most so many values is made by each thread for itself: that is sooner done than waited for. Whole blocks.
const OWN_VALUES_MAX: usize = 4096;

/// 32 columns of a row as levels with a scale. What a product reads of a row lies together, so that it follows one pointer for
/// each of its rows, and these fit into registers.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct SmallLevels {
    pub levels: [i8; BLOCK],
    pub scale: f32,
    pub sum: f32,   // scale * sum of levels
    pub minus: i32, // minus the sum of levels
}

/// 256 columns of a row as levels with a scale.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct LargeLevels {
    pub levels: [i8; LARGE_BLOCK],
    pub minus: [i32; HALVES],     // minus the sums of 16 levels each
    pub half_sums: [i16; HALVES], // of 16 levels each
    pub sums: [i16; HALVES / 2],  // of 32 levels each
    pub scale: f32,
}

const HALVES: usize = LARGE_BLOCK / LANES;

// SAFETY: plain numbers.
unsafe impl Plain for SmallLevels {}
// SAFETY: plain numbers.
unsafe impl Plain for LargeLevels {}

impl InputMemory {
    pub fn new(values: usize, threads: usize) -> Result<InputMemory, OutOfMemory> {
        let together = values.next_multiple_of(LARGE_BLOCK);
        let all = together + threads * OWN_VALUES_MAX;
        Ok(InputMemory {
            values: Memory::zeroed(all)?,
            small: Memory::zeroed(all / BLOCK)?,
            large: Memory::zeroed(all / LARGE_BLOCK)?,
            together,
        })
    }

    /// Where products of `count` rows of `cols` values find them.
    pub fn places(&mut self, count: usize, cols: usize) -> Places<'_> {
        let InputMemory { values, small, large, together } = self;
        assert!(count * cols <= *together, "the input memory is too small for {count} x {cols}");
        let first = Input {
            values: values.as_mut_ptr(),
            small: small.as_mut_ptr(),
            large: large.as_mut_ptr(),
            memory: PhantomData,
        };
        let own = (count * cols <= OWN_VALUES_MAX).then(|| first.after(*together));
        Places { together: first, own }
    }
}

/// Where the input of a product lies.
#[derive(Clone, Copy)]
pub struct Places<'a> {
    together: Input<'a>,
    own: Option<Input<'a>>, // of the first thread, where each makes its own
}

// SAFETY: the inputs are written in disjoint pieces, and read after a barrier or by whoever wrote them.
unsafe impl Sync for Places<'_> {}

impl<'a> Places<'a> {
    /// Where this thread finds it.
    pub fn of(&self, worker: Worker<'_>) -> Input<'a> {
        self.own.map_or(self.together, |own| own.after(worker.index * OWN_VALUES_MAX))
    }
}

/// The input of one product: of what [`Needs`] did not name, nothing may be read. All pointers have a row after the
/// other, as wide as [`InputMemory`] says.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    pub values: *const f32,
    pub small: *const SmallLevels,
    pub large: *const LargeLevels,
    pub memory: PhantomData<&'a InputMemory>,
}

impl Input<'_> {
    /// Where another begins, some whole blocks later.
    fn after(self, values: usize) -> Self {
        Input {
            values: self.values.wrapping_add(values),
            small: self.small.wrapping_add(values / BLOCK),
            large: self.large.wrapping_add(values / LARGE_BLOCK),
            memory: self.memory,
        }
    }
}

/// What some matrices read of their input.
#[derive(Debug, Clone, Copy, Default)]
pub struct Needs {
    values: bool,
    small: bool,
    large: bool,
}

impl Needs {
    pub fn of<'a>(matrices: impl IntoIterator<Item = &'a Packed>) -> Needs {
        matrices.into_iter().fold(Needs::default(), |needs, matrix| match matrix.format.block_len() {
            1 => Needs { values: true, ..needs },
            BLOCK => Needs { small: true, ..needs },
            _ => Needs { large: true, ..needs },
        })
    }

    /// Columns that are prepared together.
    fn columns(self) -> usize {
        if self.large { LARGE_BLOCK } else { BLOCK }
    }
}

/// How rows become the input of a product.
#[derive(Clone, Copy)]
pub struct Prepare<'a> {
    pub isa: Isa,
    pub source: *const f32, // (rows, cols)
    pub rows: super::matmul::Rows<'a>,
    pub count: usize, // of rows
    pub cols: usize,
    pub norm: Option<(&'a [f32], f32)>, // weights and epsilon
    pub needs: Needs,
    pub places: Places<'a>,
}

// SAFETY: `source` is only read while a job runs; the rest is shared as it is.
unsafe impl Sync for Prepare<'_> {}

impl<'a> Prepare<'a> {
    pub fn new(
        isa: Isa,
        memory: &'a mut InputMemory,
        source: &[f32],
        rows: super::matmul::Rows<'a>,
        count: usize,
        cols: usize,
        norm: Option<(&'a [f32], f32)>,
        needs: Needs,
    ) -> Prepare<'a> {
        let places = memory.places(count, cols);
        Prepare { isa, source: source.as_ptr(), rows, count, cols, norm, needs, places }
    }

    /// Makes the input, each thread for itself or all of them together, and waits until all that a thread reads is there.
    ///
    /// # Safety
    /// All threads of a job call this once, and read what the cut gives them.
    pub unsafe fn run(&self, worker: Worker<'_>, cut: Cut) -> Input<'a> {
        let input = self.input(worker);
        if self.places.own.is_some() {
            for row in 0..self.count {
                self.isa.run(PrepareRow { prepare: self, input, row, start: 0, end: self.cols });
            }
            return input;
        }
        let pieces = if self.count >= worker.count { 1 } else { worker.count };
        let columns = self.needs.columns();
        for unit in worker.share(self.count * pieces) {
            let (row, piece) = (unit / pieces, unit % pieces);
            let blocks = self.cols.div_ceil(columns);
            let start = blocks * piece / pieces * columns;
            let end = (blocks * (piece + 1) / pieces * columns).min(self.cols);
            self.isa.run(PrepareRow { prepare: self, input, row, start, end });
        }
        cut.wait(worker);
        input
    }

    /// Where this thread finds the input that [`Prepare::run`] made, then and in jobs that need the same of the same rows.
    pub fn input(&self, worker: Worker<'_>) -> Input<'a> {
        self.places.of(worker)
    }
}

/// Columns `start..end` of one row.
struct PrepareRow<'a> {
    prepare: &'a Prepare<'a>,
    input: Input<'a>,
    row: usize,
    start: usize,
    end: usize,
}

impl Kernel for PrepareRow<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Needs { small, large, .. } = self.prepare.needs;
        // SAFETY: the source has the rows; the pieces of the memory belong to this thread.
        unsafe {
            let values = self.values::<S>();
            let first = self.row * self.prepare.cols + self.start;
            if small {
                small_row::<S>(values, self.input.small.add(first / BLOCK).cast_mut());
            }
            if large {
                for at in (0..values.len()).step_by(LARGE_BLOCK) {
                    let block = self.input.large.add((first + at) / LARGE_BLOCK);
                    large_levels::<S>(values[at..].as_ptr(), block.cast_mut());
                }
            }
        }
    }
}

impl PrepareRow<'_> {
    /// The values to be made levels of: those of the source where they are not normalised and nobody wants a copy.
    #[inline(always)]
    unsafe fn values<S: Simd>(&self) -> &[f32] {
        let Prepare { cols, norm, needs, .. } = *self.prepare;
        let (start, end) = (self.start, self.end);
        // SAFETY: the source has the rows; the pieces of the memory belong to this thread.
        unsafe {
            let source = self.prepare.source.add(self.prepare.rows.get(self.row) * cols);
            let source = std::slice::from_raw_parts(source, cols);
            if norm.is_none() && !needs.values {
                return &source[start..end];
            }
            let values = self.input.values.add(self.row * cols + start).cast_mut();
            let values = std::slice::from_raw_parts_mut(values, end - start);
            match norm {
                None => values.copy_from_slice(&source[start..end]),
                Some((weight, eps)) => {
                    let factor = 1.0 / (square_sum::<S>(source) / cols as f32 + eps).sqrt();
                    normalise::<S>(&source[start..end], &weight[start..end], factor, values);
                }
            }
            values
        }
    }
}

/// Whole blocks of 32 values as levels, four at a time: what is found of one vector in many steps is found of four in a few more.
#[inline(always)]
unsafe fn small_row<S: Simd>(values: &[f32], to: *mut SmallLevels) {
    let blocks = values.len() / BLOCK;
    let fours = blocks / 4 * 4;
    // SAFETY: the caller owns as many levels.
    unsafe {
        for block in (0..fours).step_by(4) {
            small_levels::<S, 4>(values[block * BLOCK..].as_ptr(), to.add(block));
        }
        for block in fours..blocks {
            small_levels::<S, 1>(values[block * BLOCK..].as_ptr(), to.add(block));
        }
    }
}

/// `N` times 32 values, up to four times, each as levels with a scale of their own.
#[inline(always)]
unsafe fn small_levels<S: Simd, const N: usize>(values: *const f32, to: *mut SmallLevels) {
    // SAFETY: so many values; the caller owns what is written.
    unsafe {
        let (mut halves, mut largest) = ([[S::splat(0.0); 2]; N], [S::splat(0.0); 4]);
        for i in 0..N {
            halves[i] = [S::load(values.add(i * BLOCK)), S::load(values.add(i * BLOCK + LANES))];
            largest[i] = S::max(S::abs(halves[i][0]), S::abs(halves[i][1]));
        }
        let largest = S::largest_of_four(largest);
        let mut sums = [S::splat(0.0); 4];
        for i in 0..N {
            let to = &mut *to.add(i);
            for half in 0..2 {
                let rounded = S::round(S::mul(halves[i][half], S::splat(inverse(largest[i]))));
                S::store_i8(to.levels[half * LANES..].as_mut_ptr(), rounded);
                sums[i] = S::add(sums[i], rounded);
            }
        }
        // Sums of whole numbers, so that no order matters.
        let sums = S::sum_of_four(sums);
        for i in 0..N {
            let scale = largest[i] / 127.0;
            let to = &mut *to.add(i);
            (to.scale, to.sum, to.minus) = (scale, scale * sums[i], -(sums[i] as i32));
        }
    }
}

/// 256 values as levels with one scale.
#[inline(always)]
unsafe fn large_levels<S: Simd>(values: *const f32, to: *mut LargeLevels) {
    // SAFETY: 256 values; the caller owns what is written.
    unsafe {
        let mut largest = S::splat(0.0);
        for i in 0..HALVES {
            largest = S::max(largest, S::abs(S::load(values.add(i * LANES))));
        }
        let largest = S::largest(largest);
        let to = &mut *to;
        for i in 0..HALVES {
            let rounded = S::round(S::mul(S::load(values.add(i * LANES)), S::splat(inverse(largest))));
            S::store_i8(to.levels[i * LANES..].as_mut_ptr(), rounded);
            let sum = S::sum(rounded) as i32;
            (to.half_sums[i], to.minus[i]) = (sum as i16, -sum);
        }
        for (i, pair) in to.half_sums.chunks_exact(2).enumerate() {
            to.sums[i] = pair[0] + pair[1];
        }
        to.scale = largest / 127.0;
    }
}

/// What values are multiplied with to become levels of -127..=127.
#[inline(always)]
fn inverse(largest: f32) -> f32 {
    if largest > 0.0 { 127.0 / largest } else { 0.0 }
}

#[inline(always)]
unsafe fn square_sum<S: Simd>(values: &[f32]) -> f32 {
    let chunks = values.chunks_exact(LANES);
    let tail: f32 = chunks.remainder().iter().map(|v| v * v).sum();
    // SAFETY: chunks of 16 values.
    unsafe {
        let sum = chunks.fold(S::splat(0.0), |sum, chunk| {
            let v = S::load(chunk.as_ptr());
            S::fma(v, v, sum)
        });
        S::sum(sum) + tail
    }
}

/// `out = values * factor * weight`
#[inline(always)]
pub unsafe fn normalise<S: Simd>(values: &[f32], weight: &[f32], factor: f32, out: &mut [f32]) {
    let whole = values.len() / LANES * LANES;
    // SAFETY: all three slices have at least `whole` values.
    unsafe {
        for at in (0..whole).step_by(LANES) {
            let v = S::mul(S::load(values[at..].as_ptr()), S::splat(factor));
            S::store(out[at..].as_mut_ptr(), S::mul(v, S::load(weight[at..].as_ptr())));
        }
    }
    for at in whole..values.len() {
        out[at] = values[at] * factor * weight[at];
    }
}

/// Root-mean-square normalisation of a short row in place.
#[inline(always)]
pub unsafe fn normalise_in_place<S: Simd>(values: &mut [f32], weight: &[f32], eps: f32) {
    // SAFETY: passed on.
    unsafe {
        let factor = 1.0 / (square_sum::<S>(values) / values.len() as f32 + eps).sqrt();
        let copy = std::slice::from_raw_parts(values.as_ptr(), values.len());
        normalise::<S>(copy, weight, factor, values);
    }
}
