//! Attention: up to eight queries of one KV head at a time, over chunks of 256 positions.
//!
//! A query is one head of one row; the queries of a tile share every key and value that is loaded.
//! Each chunk gives a maximum, a sum and a weighted value; chunks are merged in order. The chunks begin
//! at fixed positions and are merged the same way whether one thread does them all or several share
//! them, so a row's result does not depend on the batch, bit for bit. Factors have 16 bits, sums 32.

use super::cache::{Geometry, Short};
use super::heads::HEAD_DIM_MAX;
use super::simd::{Kernel, LANES, Simd, power_of_two, prefetch};
use crate::limits::KV_BLOCK_TOKENS;
use std::f32::consts::LOG2_E;
use std::ops::Range;

/// Queries in a tile.
pub const TILE: usize = 12;

/// Positions in a chunk.
pub const CHUNK: usize = 256;

/// How many keys or values of a block earlier than they are needed these are asked for.
const HALVES_AHEAD: usize = 2;

/// Queries of one KV head over one sequence's blocks.
#[derive(Clone, Copy)]
pub struct Tile<'a> {
    pub queries: [*const f32; TILE], // (head_dim) each; unused ones repeat the first
    pub seen: [(usize, usize); TILE], // first position seen and the one past the last
    pub count: usize,
    pub cache: &'a [u16],
    pub geometry: Geometry,
    pub blocks: &'a [u32],
    pub layer: usize,
    pub kv_head: usize,
}

/// The outcome of some positions for one query: `sum` and `values` are relative to `exp(largest)`.
#[derive(Clone, Copy)]
pub struct Partial {
    pub largest: f32,
    pub sum: f32,
    pub values: [f32; HEAD_DIM_MAX], // (head_dim)
}

impl Partial {
    pub const EMPTY: Partial = Partial { largest: f32::NEG_INFINITY, sum: 0.0, values: [0.0; HEAD_DIM_MAX] };

    /// Makes it the outcome of no positions again.
    pub fn clear(&mut self, head_dim: usize) {
        (self.largest, self.sum) = (f32::NEG_INFINITY, 0.0);
        self.values[..head_dim].fill(0.0);
    }
}

impl Tile<'_> {
    /// The chunks that any query of the tile sees.
    pub fn chunks(&self) -> Range<usize> {
        let first = self.seen[..self.count].iter().map(|s| s.0).min().unwrap_or(0);
        let end = self.seen[..self.count].iter().map(|s| s.1).max().unwrap_or(0);
        first / CHUNK..end.div_ceil(CHUNK)
    }
}

/// One thread's room for what is made of a tile: in one chunk, and in all of them. It is some 50 KiB, and what clearing it
/// takes would be felt in every layer.
pub struct Scratch {
    pub chunk: ChunkScratch,
    pub next: [Partial; TILE],
    pub totals: [Partial; TILE],
}

impl Default for Scratch {
    fn default() -> Scratch {
        let (next, totals) = ([Partial::EMPTY; TILE], [Partial::EMPTY; TILE]);
        Scratch { chunk: ChunkScratch::default(), next, totals }
    }
}

pub struct ChunkScratch {
    queries: [[u16; HEAD_DIM_MAX]; TILE],
    scores: [[f32; CHUNK]; TILE],
    shares: [[u16; CHUNK]; TILE],
}

impl Default for ChunkScratch {
    fn default() -> ChunkScratch {
        ChunkScratch {
            queries: [[0; HEAD_DIM_MAX]; TILE],
            scores: [[0.0; CHUNK]; TILE],
            shares: [[0; CHUNK]; TILE],
        }
    }
}

/// Computes one chunk for all queries of a tile.
pub struct AttendChunk<'a> {
    pub scratch: &'a mut ChunkScratch,
    pub tile: &'a Tile<'a>,
    pub chunk: usize,
    pub next: usize, // the chunk that this thread will probably do after this one
    pub out: &'a mut [Partial; TILE],
}

/// One of the two ways to round.
trait Rounded {
    unsafe fn store<S: Simd>(to: *mut u16, value: S::F);
    /// Adds to each lane the dot product of its two numbers of `a` with the two at `b`.
    unsafe fn dot<S: Simd>(acc: S::F, a: S::I, b: *const u16) -> S::F;
}

struct F16;
struct Bf16;

impl Rounded for F16 {
    #[inline(always)]
    unsafe fn store<S: Simd>(to: *mut u16, value: S::F) {
        // SAFETY: passed on.
        unsafe { S::store_f16(to, value) }
    }

    #[inline(always)]
    unsafe fn dot<S: Simd>(acc: S::F, a: S::I, b: *const u16) -> S::F {
        // SAFETY: passed on.
        unsafe { S::dot_f16(acc, a, b) }
    }
}

impl Rounded for Bf16 {
    #[inline(always)]
    unsafe fn store<S: Simd>(to: *mut u16, value: S::F) {
        // SAFETY: passed on.
        unsafe { S::store_bf16(to, value) }
    }

    #[inline(always)]
    unsafe fn dot<S: Simd>(acc: S::F, a: S::I, b: *const u16) -> S::F {
        // SAFETY: passed on.
        unsafe { S::dot_bf16(acc, a, b) }
    }
}

impl Kernel for AttendChunk<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: passed on.
        unsafe {
            match self.tile.geometry.short {
                Short::F16 => self.run_rounded::<S, F16>(),
                Short::Bf16 => self.run_rounded::<S, Bf16>(),
            }
        }
    }
}

impl AttendChunk<'_> {
    #[inline(always)]
    unsafe fn run_rounded<S: Simd, N: Rounded>(self) {
        let tile = self.tile;
        let first = tile.seen[..tile.count].iter().map(|s| s.0).min().unwrap_or(0);
        let end = tile.seen[..tile.count].iter().map(|s| s.1).max().unwrap_or(0);
        let (start, stop) = (self.chunk * CHUNK, end.min((self.chunk + 1) * CHUNK));
        // Positions of the chunk that some query sees; lanes around them are computed and masked.
        let low = first.max(start);
        // SAFETY: the blocks of the positions are in the cache, the queries have `head_dim` values.
        unsafe {
            match tile.count {
                1 => self.run_tile::<S, N, 1>(low, stop),
                2 => self.run_tile::<S, N, 2>(low, stop),
                3 => self.run_tile::<S, N, 3>(low, stop),
                4 => self.run_tile::<S, N, 4>(low, stop),
                5 | 6 => self.run_tile::<S, N, 6>(low, stop),
                7 | 8 => self.run_tile::<S, N, 8>(low, stop),
                _ => self.run_tile::<S, N, TILE>(low, stop),
            }
        }
    }

    #[inline(always)]
    unsafe fn run_tile<S: Simd, N: Rounded, const R: usize>(self, low: usize, stop: usize) {
        let (tile, scratch, start) = (self.tile, self.scratch, self.chunk * CHUNK);
        let blocks = low / KV_BLOCK_TOKENS..stop.div_ceil(KV_BLOCK_TOKENS);
        let halves = Halves { tile, blocks, next: self.next * CHUNK / KV_BLOCK_TOKENS };
        let covered =
            halves.blocks.start * KV_BLOCK_TOKENS - start..halves.blocks.end * KV_BLOCK_TOKENS - start;
        // SAFETY: passed on from `run`.
        unsafe {
            for i in 0..R {
                for at in (0..tile.geometry.head_dim).step_by(LANES) {
                    N::store::<S>(scratch.queries[i][at..].as_mut_ptr(), S::load(tile.queries[i].add(at)));
                }
            }
            for (n, at) in covered.clone().step_by(KV_BLOCK_TOKENS).enumerate() {
                score_block::<S, N, R>(tile, halves.get(n), halves.get(n + HALVES_AHEAD), scratch, at);
            }
            for i in 0..R.min(tile.count) {
                let (first, end) = tile.seen[i];
                let seen = first.max(start).min(stop) - start..end.min(stop).max(start) - start;
                let (scores, shares) = (&mut scratch.scores[i], &mut scratch.shares[i]);
                (self.out[i].largest, self.out[i].sum) =
                    soften::<S, N>(scores, shares, seen, covered.clone());
            }
            let values = Values { halves: &halves, shares: &scratch.shares, seen: low - start..stop - start };
            match R {
                ..=6 => values.weigh_all::<S, N, R, 4>(self.out),
                _ => values.weigh_all::<S, N, R, 2>(self.out),
            }
        }
    }
}

/// What a chunk reads, in the order in which it reads it: the keys of all its blocks, then their values; after that the
/// keys of the next chunk.
struct Halves<'a> {
    tile: &'a Tile<'a>,
    blocks: Range<usize>, // of the sequence
    next: usize,          // the first block of the next chunk
}

impl Halves<'_> {
    #[inline(always)]
    fn get(&self, n: usize) -> *const u16 {
        let count = self.blocks.len();
        let Tile { geometry, cache, blocks, layer, kv_head, .. } = self.tile;
        let (block, half) = match n {
            n if n < count => (self.blocks.start + n, 0),
            n if n < 2 * count => (self.blocks.start + n - count, geometry.half_len()),
            n => ((self.next + n - 2 * count).min(blocks.len() - 1), 0),
        };
        let at = geometry.head_at(*layer, blocks[block], *kv_head) + half;
        cache[at..at + geometry.half_len()].as_ptr()
    }
}

/// Scores of `R` queries against the 32 keys of a block. Meanwhile what is needed `soon` comes from memory.
#[inline(always)]
unsafe fn score_block<S: Simd, N: Rounded, const R: usize>(
    tile: &Tile<'_>,
    keys: *const u16,
    soon: *const u16,
    scratch: &mut ChunkScratch,
    at: usize,
) {
    let queries: [*const u16; R] = std::array::from_fn(|i| scratch.queries[i].as_ptr());
    // SAFETY: `keys` holds (head_dim / 2, 32, 2) values.
    unsafe {
        let mut low = [S::splat(0.0); R];
        let mut high = [S::splat(0.0); R];
        for column in (0..tile.geometry.head_dim).step_by(2) {
            prefetch(soon.wrapping_add(column * KV_BLOCK_TOKENS));
            prefetch(soon.wrapping_add((column + 1) * KV_BLOCK_TOKENS));
            let key_low = S::load_i(keys.add(column * KV_BLOCK_TOKENS).cast());
            let key_high = S::load_i(keys.add(column * KV_BLOCK_TOKENS + 2 * LANES).cast());
            for i in 0..R {
                low[i] = N::dot::<S>(low[i], key_low, queries[i].add(column));
                high[i] = N::dot::<S>(high[i], key_high, queries[i].add(column));
            }
        }
        for i in 0..R {
            S::store(scratch.scores[i][at..].as_mut_ptr(), low[i]);
            S::store(scratch.scores[i][at + LANES..].as_mut_ptr(), high[i]);
        }
    }
}

/// Turns scores into shares, relative to the largest; those not seen become 0. The sum is at least 1, so what little the
/// ones not seen add to it is lost.
#[inline(always)]
unsafe fn soften<S: Simd, N: Rounded>(
    scores: &mut [f32; CHUNK],
    shares: &mut [u16; CHUNK],
    seen: Range<usize>,
    covered: Range<usize>,
) -> (f32, f32) {
    if seen.is_empty() {
        shares[covered].fill(0);
        return (f32::NEG_INFINITY, 0.0);
    }
    scores[covered.start..seen.start].fill(f32::NEG_INFINITY);
    scores[seen.end..covered.end].fill(f32::NEG_INFINITY);
    // SAFETY: `covered` is within the chunk and a multiple of 16 long.
    unsafe {
        let mut largest = S::splat(f32::NEG_INFINITY);
        for at in covered.clone().step_by(LANES) {
            largest = S::max(largest, S::load(scores[at..].as_ptr()));
        }
        let largest = S::largest(largest);
        let (scale, shift) = (S::splat(LOG2_E), S::splat(-largest * LOG2_E));
        let mut sum = S::splat(0.0);
        for at in covered.clone().step_by(LANES) {
            let share = power_of_two::<S>(S::fma(S::load(scores[at..].as_ptr()), scale, shift));
            N::store::<S>(shares[at..].as_mut_ptr(), share);
            sum = S::add(sum, share);
        }
        shares[covered.start..seen.start].fill(0);
        shares[seen.end..covered.end].fill(0);
        (largest, S::sum(sum))
    }
}

/// The values of a chunk, and what they are weighed by.
struct Values<'a> {
    halves: &'a Halves<'a>,
    shares: &'a [[u16; CHUNK]; TILE],
    seen: Range<usize>, // positions of the chunk that some query sees
}

impl Values<'_> {
    /// Sums of as many columns as registers hold are made at a time: `W` vectors for each of `R` queries.
    #[inline(always)]
    unsafe fn weigh_all<S: Simd, N: Rounded, const R: usize, const W: usize>(
        &self,
        out: &mut [Partial; TILE],
    ) {
        let head_dim = self.halves.tile.geometry.head_dim;
        let whole = head_dim / (W * LANES) * (W * LANES);
        // SAFETY: passed on from `run`.
        unsafe {
            for at in (0..whole).step_by(W * LANES) {
                self.weigh::<S, N, R, W>(at, out);
            }
            for at in (whole..head_dim).step_by(LANES) {
                self.weigh::<S, N, R, 1>(at, out);
            }
        }
    }

    /// The columns `at..at + W * 16`.
    #[inline(always)]
    unsafe fn weigh<S: Simd, N: Rounded, const R: usize, const W: usize>(
        &self,
        at: usize,
        out: &mut [Partial; TILE],
    ) {
        let blocks = self.halves.blocks.len();
        let start = self.seen.start / KV_BLOCK_TOKENS * KV_BLOCK_TOKENS; // of the first block
        // SAFETY: partials have `head_dim` values, and so have the tokens of all blocks.
        unsafe {
            let mut sums = [[S::splat(0.0); W]; R];
            for n in 0..blocks {
                let block = start + n * KV_BLOCK_TOKENS;
                let seen = block.max(self.seen.start)..(block + KV_BLOCK_TOKENS).min(self.seen.end);
                let soon = self.halves.get(blocks + n + HALVES_AHEAD).wrapping_add(2 * at);
                let values = self.halves.get(blocks + n).add(2 * at);
                self.weigh_block::<S, N, R, W>(values, soon, seen, &mut sums);
            }
            for i in 0..R {
                for w in 0..W {
                    S::store(out[i].values[at + w * LANES..].as_mut_ptr(), sums[i][w]);
                }
            }
        }
    }

    /// Adds the values of the positions `seen`, all in one block. Meanwhile what is needed `soon` comes from memory.
    #[inline(always)]
    unsafe fn weigh_block<S: Simd, N: Rounded, const R: usize, const W: usize>(
        &self,
        values: *const u16,
        soon: *const u16,
        seen: Range<usize>,
        sums: &mut [[S::F; W]; R],
    ) {
        let row_len = 2 * self.halves.tile.geometry.head_dim; // of two tokens
        // SAFETY: the values of a block are (16, head_dim, 2).
        unsafe {
            let row = |position: usize| position % KV_BLOCK_TOKENS / 2 * row_len;
            let load = |position: usize| -> [S::I; W] {
                std::array::from_fn(|w| S::load_i(values.add(row(position) + w * 2 * LANES).cast()))
            };
            // Next to a position that is not seen may lie anything, and 0 times that need not be 0.
            if seen.start % 2 == 1 {
                let pair = load(seen.start).map(|pair| S::only_half::<true>(pair));
                add_pair::<S, N, R, W>(pair, self.shares, seen.start - 1, sums);
            }
            for position in (seen.start.next_multiple_of(2)..seen.end / 2 * 2).step_by(2) {
                for w in 0..W {
                    prefetch(soon.wrapping_add(row(position) + w * 2 * LANES));
                }
                add_pair::<S, N, R, W>(load(position), self.shares, position, sums);
            }
            if seen.end % 2 == 1 {
                let pair = load(seen.end - 1).map(|pair| S::only_half::<false>(pair));
                add_pair::<S, N, R, W>(pair, self.shares, seen.end - 1, sums);
            }
        }
    }
}

/// Adds the values of two positions, the first of them `position`.
#[inline(always)]
unsafe fn add_pair<S: Simd, N: Rounded, const R: usize, const W: usize>(
    pair: [S::I; W],
    shares: &[[u16; CHUNK]; TILE],
    position: usize,
    sums: &mut [[S::F; W]; R],
) {
    for i in 0..R {
        for w in 0..W {
            // SAFETY: positions are even here, so both shares are of the chunk.
            unsafe { sums[i][w] = N::dot::<S>(sums[i][w], pair[w], shares[i][position..].as_ptr()) };
        }
    }
}

/// Adds the outcome of the next chunk to that of the chunks before.
pub struct Merge<'a> {
    pub total: &'a mut Partial,
    pub next: &'a Partial,
    pub head_dim: usize,
}

impl Kernel for Merge<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Merge { total, next, head_dim } = self;
        if next.sum == 0.0 {
            return;
        }
        let largest = total.largest.max(next.largest);
        let (old, new) = ((total.largest - largest).exp(), (next.largest - largest).exp());
        total.largest = largest;
        total.sum = total.sum * old + next.sum * new;
        // SAFETY: `head_dim` is a multiple of 16 and at most the arrays' length.
        unsafe {
            for at in (0..head_dim).step_by(LANES) {
                let scaled = S::mul(S::load(next.values[at..].as_ptr()), S::splat(new));
                let p = total.values[at..].as_mut_ptr();
                S::store(p, S::fma(S::load(p), S::splat(old), scaled));
            }
        }
    }
}

/// Writes a query's attention: its values over its sum, with the sink's weight in the sum.
pub fn finish(total: &Partial, sink: Option<f32>, out: &mut [f32]) {
    let sum = total.sum + sink.map_or(0.0, |sink| (sink - total.largest).exp());
    out.iter_mut().zip(&total.values).for_each(|(out, value)| *out = value / sum);
}
