//! Attention: up to eight queries of one KV head at a time, over chunks of 256 positions.
//!
//! A query is one head of one row; the queries of a tile share every key and value that is loaded.
//! Each chunk gives a maximum, a sum and a weighted value; chunks are merged in order. The chunks begin
//! at fixed positions and are merged the same way whether one thread does them all or several share
//! them, so a row's result does not depend on the batch, bit for bit.

use super::cache::Geometry;
use super::heads::HEAD_DIM_MAX;
use super::simd::{Kernel, LANES, Simd, exp};
use crate::limits::KV_BLOCK_TOKENS;
use std::ops::Range;

/// Queries in a tile.
pub const TILE: usize = 8;

/// Positions in a chunk.
pub const CHUNK: usize = 256;

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
}

impl Tile<'_> {
    /// The chunks that any query of the tile sees.
    pub fn chunks(&self) -> Range<usize> {
        let first = self.seen[..self.count].iter().map(|s| s.0).min().unwrap_or(0);
        let end = self.seen[..self.count].iter().map(|s| s.1).max().unwrap_or(0);
        first / CHUNK..end.div_ceil(CHUNK)
    }
}

/// Room for the scores of a tile in one chunk.
pub type Scores = [[f32; CHUNK]; TILE];

/// Computes one chunk for all queries of a tile.
pub struct AttendChunk<'a> {
    pub scores: &'a mut Scores,
    pub tile: &'a Tile<'a>,
    pub chunk: usize,
    pub out: &'a mut [Partial; TILE],
}

impl Kernel for AttendChunk<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let tile = self.tile;
        let first = tile.seen[..tile.count].iter().map(|s| s.0).min().unwrap_or(0);
        let end = tile.seen[..tile.count].iter().map(|s| s.1).max().unwrap_or(0);
        let (start, stop) = (self.chunk * CHUNK, end.min((self.chunk + 1) * CHUNK));
        // Positions of the chunk that some query sees; lanes around them are computed and masked.
        let low = first.max(start);
        // SAFETY: the blocks of the positions are in the cache, the queries have `head_dim` values.
        unsafe {
            match tile.count {
                1 => self.run_tile::<S, 1>(low, stop),
                2 => self.run_tile::<S, 2>(low, stop),
                3 => self.run_tile::<S, 3>(low, stop),
                4 => self.run_tile::<S, 4>(low, stop),
                5 | 6 => self.run_tile::<S, 6>(low, stop),
                _ => self.run_tile::<S, TILE>(low, stop),
            }
        }
    }
}

impl AttendChunk<'_> {
    #[inline(always)]
    unsafe fn run_tile<S: Simd, const R: usize>(self, low: usize, stop: usize) {
        let (tile, shares, start) = (self.tile, self.scores, self.chunk * CHUNK);
        let block_of = |position: usize| {
            let (at, _) = tile.geometry.place(tile.layer, tile.blocks, position, tile.kv_head);
            tile.cache[at..at + 2 * tile.geometry.half_len()].as_ptr()
        };
        // SAFETY: passed on from `run`.
        unsafe {
            let mut position = low / KV_BLOCK_TOKENS * KV_BLOCK_TOKENS;
            while position < stop {
                score_block::<S, R>(tile, block_of(position), shares, position - start);
                position += KV_BLOCK_TOKENS;
            }
            for i in 0..R.min(tile.count) {
                let (first, end) = tile.seen[i];
                let seen = first.max(start).min(stop) - start..end.min(stop).max(start) - start;
                let covered = low / KV_BLOCK_TOKENS * KV_BLOCK_TOKENS - start
                    ..(stop.next_multiple_of(KV_BLOCK_TOKENS) - start).min(CHUNK);
                (self.out[i].largest, self.out[i].sum) = soften::<S>(&mut shares[i], seen, covered);
            }
            for at in (0..tile.geometry.head_dim).step_by(2 * LANES) {
                if at + 2 * LANES <= tile.geometry.head_dim {
                    weigh::<S, R, 2>(tile, &block_of, shares, low..stop, start, at, self.out);
                } else {
                    weigh::<S, R, 1>(tile, &block_of, shares, low..stop, start, at, self.out);
                }
            }
        }
    }
}

/// Scores of `R` queries against the 32 keys of a block.
#[inline(always)]
unsafe fn score_block<S: Simd, const R: usize>(
    tile: &Tile<'_>,
    keys: *const u16,
    scores: &mut Scores,
    at: usize,
) {
    // SAFETY: `keys` holds (head_dim, 32) values.
    unsafe {
        let mut low = [S::splat(0.0); R];
        let mut high = [S::splat(0.0); R];
        for d in 0..tile.geometry.head_dim {
            let key_low = S::load_f16(keys.add(d * KV_BLOCK_TOKENS));
            let key_high = S::load_f16(keys.add(d * KV_BLOCK_TOKENS + LANES));
            for i in 0..R {
                let q = S::splat(*tile.queries[i].add(d));
                low[i] = S::fma(key_low, q, low[i]);
                high[i] = S::fma(key_high, q, high[i]);
            }
        }
        for i in 0..R {
            S::store(scores[i][at..].as_mut_ptr(), low[i]);
            S::store(scores[i][at + LANES..].as_mut_ptr(), high[i]);
        }
    }
}

/// Turns scores into shares, relative to the largest; those not seen become 0.
#[inline(always)]
unsafe fn soften<S: Simd>(
    scores: &mut [f32; CHUNK],
    seen: Range<usize>,
    covered: Range<usize>,
) -> (f32, f32) {
    if seen.is_empty() {
        scores[covered].fill(0.0);
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
        let mut sum = S::splat(0.0);
        for at in covered.clone().step_by(LANES) {
            let share = exp::<S>(S::sub(S::load(scores[at..].as_ptr()), S::splat(largest)));
            S::store(scores[at..].as_mut_ptr(), share);
        }
        scores[covered.start..seen.start].fill(0.0);
        scores[seen.end..covered.end].fill(0.0);
        for at in covered.step_by(LANES) {
            sum = S::add(sum, S::load(scores[at..].as_ptr()));
        }
        (largest, S::sum(sum))
    }
}

/// The values `at..at + W * 16` of each head, weighed by the shares.
#[inline(always)]
unsafe fn weigh<S: Simd, const R: usize, const W: usize>(
    tile: &Tile<'_>,
    block_of: &impl Fn(usize) -> *const u16,
    shares: &Scores,
    positions: Range<usize>,
    start: usize,
    at: usize,
    out: &mut [Partial; TILE],
) {
    let head_dim = tile.geometry.head_dim;
    // SAFETY: the values of a block are (32, head_dim) and follow its keys.
    unsafe {
        let mut sums = [[S::splat(0.0); W]; R];
        let mut position = positions.start;
        while position < positions.end {
            let values = block_of(position).add(tile.geometry.half_len() + at);
            let end = positions.end.min((position / KV_BLOCK_TOKENS + 1) * KV_BLOCK_TOKENS);
            for p in position..end {
                let row = values.add(p % KV_BLOCK_TOKENS * head_dim);
                let v: [S::F; W] = std::array::from_fn(|w| S::load_f16(row.add(w * LANES)));
                for i in 0..R {
                    let share = S::splat(shares[i][p - start]);
                    for w in 0..W {
                        sums[i][w] = S::fma(v[w], share, sums[i][w]);
                    }
                }
            }
            position = end;
        }
        for i in 0..R {
            for w in 0..W {
                S::store(out[i].values[at + w * LANES..].as_mut_ptr(), sums[i][w]);
            }
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
