//! What a matrix product reads: rows of f32, and the same rows as 8-bit levels in blocks of 32.

use super::memory::{Memory, OutOfMemory, Shared};
use super::pack::BLOCK;
use super::pool::Worker;
use super::simd::{Isa, Kernel, LANES, Simd};
use std::marker::PhantomData;

/// Room for the input of any product of the model.
pub struct InputMemory {
    values: Memory<f32>,    // (rows, cols)
    levels: Memory<i8>,     // (rows, cols)
    scales: Memory<f32>,    // (rows, cols / 32)
    sums: Memory<f32>,      // (rows, cols / 32) scale * sum of levels
    half_sums: Memory<f32>, // (rows, cols / 16) likewise
}

impl InputMemory {
    pub fn new(values: usize) -> Result<InputMemory, OutOfMemory> {
        Ok(InputMemory {
            values: Memory::zeroed(values)?,
            levels: Memory::zeroed(values)?,
            scales: Memory::zeroed(values.div_ceil(BLOCK))?,
            sums: Memory::zeroed(values.div_ceil(BLOCK))?,
            half_sums: Memory::zeroed(values.div_ceil(16))?,
        })
    }

    pub fn capacity(&self) -> usize {
        self.values.len()
    }
}

/// The input of one product. All pointers have a row after the other, `cols` columns wide.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    pub values: *const f32,
    pub levels: *const i8,
    pub scales: *const f32,
    pub sums: *const f32,
    pub half_sums: *const f32,
    pub memory: PhantomData<&'a InputMemory>,
}

// SAFETY: written before a barrier, read after it.
unsafe impl Send for Input<'_> {}
// SAFETY: as above.
unsafe impl Sync for Input<'_> {}

/// How rows become the input of a product.
#[derive(Clone, Copy)]
pub struct Prepare<'a> {
    pub isa: Isa,
    pub source: *const f32, // (rows, cols)
    pub rows: super::matmul::Rows<'a>,
    pub count: usize, // of rows
    pub cols: usize,
    pub norm: Option<(&'a [f32], f32)>, // weights and epsilon
    pub quantise: bool,
    memory: SharedMemory<'a>,
}

#[derive(Clone, Copy)]
struct SharedMemory<'a> {
    values: Shared<'a, f32>,
    levels: Shared<'a, i8>,
    scales: Shared<'a, f32>,
    sums: Shared<'a, f32>,
    half_sums: Shared<'a, f32>,
}

// SAFETY: `source` is only read while a job runs, and `memory` is written in disjoint pieces.
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
        quantise: bool,
    ) -> Prepare<'a> {
        assert!(count * cols <= memory.capacity(), "the input memory is too small for {count} x {cols}");
        let memory = SharedMemory {
            values: Shared::new(&mut memory.values),
            levels: Shared::new(&mut memory.levels),
            scales: Shared::new(&mut memory.scales),
            sums: Shared::new(&mut memory.sums),
            half_sums: Shared::new(&mut memory.half_sums),
        };
        let quantise = quantise && cols.is_multiple_of(BLOCK);
        Prepare { isa, source: source.as_ptr(), rows, count, cols, norm, quantise, memory }
    }

    /// This thread's part of the work. Rows are shared out; a lone row is cut into pieces.
    ///
    /// # Safety
    /// All threads of a job call this once, and pass a barrier before they use the input.
    pub unsafe fn run(&self, worker: Worker<'_>) {
        let pieces = if self.count >= worker.count { 1 } else { worker.count };
        for unit in worker.share(self.count * pieces) {
            let (row, piece) = (unit / pieces, unit % pieces);
            let blocks = self.cols.div_ceil(BLOCK);
            let start = blocks * piece / pieces * BLOCK;
            let end = (blocks * (piece + 1) / pieces * BLOCK).min(self.cols);
            self.isa.run(PrepareRow { prepare: self, row, start, end });
        }
    }

    /// The prepared input, to be used after the barrier.
    pub fn input(&self) -> Input<'a> {
        Input {
            values: self.memory.values.pointer(),
            levels: self.memory.levels.pointer(),
            scales: self.memory.scales.pointer(),
            sums: self.memory.sums.pointer(),
            half_sums: self.memory.half_sums.pointer(),
            memory: PhantomData,
        }
    }
}

/// Columns `start..end` of one row.
struct PrepareRow<'a> {
    prepare: &'a Prepare<'a>,
    row: usize,
    start: usize,
    end: usize,
}

impl Kernel for PrepareRow<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Prepare { cols, norm, memory, .. } = *self.prepare;
        // SAFETY: the source has the rows; the pieces of the memory belong to this thread.
        unsafe {
            let source = self.prepare.source.add(self.prepare.rows.get(self.row) * cols);
            let source = std::slice::from_raw_parts(source, cols);
            let values = memory.values.range_mut(self.row * cols + self.start, self.end - self.start);
            match norm {
                None => values.copy_from_slice(&source[self.start..self.end]),
                Some((weight, eps)) => {
                    let mean = square_sum::<S>(source) / cols as f32;
                    let factor = 1.0 / (mean + eps).sqrt();
                    normalise::<S>(
                        &source[self.start..self.end],
                        &weight[self.start..self.end],
                        factor,
                        values,
                    );
                }
            }
            if self.prepare.quantise {
                let first = (self.row * cols + self.start) / BLOCK;
                let count = values.len() / BLOCK;
                let levels = memory.levels.range_mut(first * BLOCK, count * BLOCK);
                let scales = memory.scales.range_mut(first, count);
                let sums = memory.sums.range_mut(first, count);
                let half_sums = memory.half_sums.range_mut(2 * first, 2 * count);
                for i in 0..count {
                    let at = i * BLOCK;
                    let (scale, halves) =
                        quantise_block::<S>(values[at..].as_ptr(), levels[at..].as_mut_ptr());
                    scales[i] = scale;
                    sums[i] = scale * (halves[0] + halves[1]);
                    half_sums[2 * i] = scale * halves[0];
                    half_sums[2 * i + 1] = scale * halves[1];
                }
            }
        }
    }
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

/// 32 values as levels of -127..=127. Returns the scale and the sums of the levels' halves.
#[inline(always)]
unsafe fn quantise_block<S: Simd>(values: *const f32, levels: *mut i8) -> (f32, [f32; 2]) {
    // SAFETY: 32 values and 32 levels.
    unsafe {
        let halves = [S::load(values), S::load(values.add(LANES))];
        let largest = S::largest(S::max(S::abs(halves[0]), S::abs(halves[1])));
        let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        let mut sums = [0.0; 2];
        for (i, half) in halves.into_iter().enumerate() {
            let rounded = S::round(S::mul(half, S::splat(inverse)));
            S::store_i8(levels.add(i * LANES), rounded);
            sums[i] = S::sum(rounded);
        }
        (largest / 127.0, sums)
    }
}
