//! Attention: up to twelve queries of one KV head at a time, over chunks of 256 positions.
//!
//! A query is one head of one row; the queries of a tile share every key and value that is loaded. What is multiplied are
//! whole numbers of 16 bits, each row of them with a scale of its own, so that sums over columns and over the positions of a
//! group are exact. Each chunk gives a maximum, a sum and a weighted value; chunks are merged in order. Chunks and groups
//! begin at fixed positions and are merged the same way whether one thread does them all or several share them, so a row's
//! result does not depend on the batch, bit for bit.

use super::cache::{Geometry, LEVEL_MAX, POWER_MIN, POWERS, POWERS_LEN};
use super::heads::{HEAD_DIM_MAX, largest_of, store_levels};
use super::simd::{Kernel, LANES, Simd, power_of_two, prefetch};
use crate::limits::KV_BLOCK_TOKENS;
use std::f32::consts::LOG2_E;
use std::ops::Range;

/// Queries in a tile.
pub const TILE: usize = 12;

/// So few queries wait for memory anyway: it has no pause in which it could be asked for the next chunk.
const FEW: usize = 6;

/// Positions in a chunk.
pub const CHUNK: usize = 256;

/// Positions whose values are summed as whole numbers.
const GROUP: usize = 64;

/// The largest share of a group is between half of `2^SHARE_BITS` and all of it: what a group's sum has room for.
const SHARE_BITS: u32 = 13;
const _: () = assert!((GROUP << SHARE_BITS) * LEVEL_MAX as usize <= i32::MAX as usize);

/// Tiles of one KV head that go over each chunk together: what comes from memory meanwhile, the next chunk, is for all of them.
pub const TOGETHER: usize = 2;

/// How many keys or values of a block earlier than they are needed these are asked for, in case nobody did before.
const HALVES_AHEAD: usize = 2;

/// Queries of one KV head over one sequence's blocks.
#[derive(Clone, Copy)]
pub struct Tile<'a> {
    pub queries: [*const f32; TILE], // (head_dim) each; unused ones repeat the first
    pub seen: [(usize, usize); TILE], // first position seen and the one past the last
    pub count: usize,
    pub cache: &'a [i16],
    pub geometry: Geometry,
    pub blocks: &'a [u32],
    pub layer: usize,
    pub kv_head: usize,
}

/// The outcome of some positions for one query: `sum` and `values` are relative to `2^peak`.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Partial {
    pub values: [f32; HEAD_DIM_MAX], // (head_dim)
    pub peak: f32,                   // whole
    pub sum: f32,
}

/// The peak of no positions: less than any.
const NO_PEAK: f32 = f32::MIN;

impl Partial {
    pub const EMPTY: Partial = Partial { peak: NO_PEAK, sum: 0.0, values: [0.0; HEAD_DIM_MAX] };

    /// Makes it the outcome of no positions again.
    pub fn clear(&mut self, head_dim: usize) {
        (self.peak, self.sum) = (NO_PEAK, 0.0);
        self.values[..head_dim].fill(0.0);
    }
}

/// `2^(a - b)`, or something very small where that is.
#[inline(always)]
fn power_between(a: f32, b: f32) -> f32 {
    // A whole number beside this one stands in the lowest bits; `as` would ask what is no number first.
    const WHOLE: f32 = 12_582_912.0;
    let n = ((a - b).clamp(-126.0, 127.0) + WHOLE).to_bits();
    f32::from_bits((n << 23).wrapping_add(1.0_f32.to_bits()))
}

impl Tile<'_> {
    /// The keys of a block, or its values.
    #[inline(always)]
    fn half(&self, block: usize, values: bool) -> *const i16 {
        let half_len = self.geometry.half_len();
        let head = self.geometry.head_at(self.layer, self.blocks[block], self.kv_head);
        let at = head + POWERS_LEN + if values { half_len } else { 0 };
        self.cache[at..at + half_len].as_ptr()
    }

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
    pub queries: [Queries; TOGETHER],
    pub chunk: ChunkScratch,
    pub next: [Partial; TILE],
    pub totals: [[Partial; TILE]; TOGETHER],
}

impl Default for Scratch {
    fn default() -> Scratch {
        let (next, totals) = ([Partial::EMPTY; TILE], [[Partial::EMPTY; TILE]; TOGETHER]);
        Scratch { queries: Default::default(), chunk: ChunkScratch::default(), next, totals }
    }
}

/// Queries as levels. Those that a tile lacks are what an earlier tile had there: nobody looks at what becomes of them.
#[repr(C, align(64))]
pub struct Queries {
    levels: [[i16; HEAD_DIM_MAX]; TILE],
    scales: [f32; TILE], // of a score's exponent to the base of 2
}

impl Default for Queries {
    fn default() -> Queries {
        Queries { levels: [[0; HEAD_DIM_MAX]; TILE], scales: [0.0; TILE] }
    }
}

/// Rounds the queries of a tile.
pub struct RoundQueries<'a> {
    pub tile: &'a Tile<'a>,
    pub to: &'a mut Queries,
}

impl Kernel for RoundQueries<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Tile { queries, count, geometry, .. } = self.tile;
        let head_dim = geometry.head_dim;
        // What a sum over all columns has room for.
        let most = (i32::MAX / (LEVEL_MAX * head_dim as i32)).min(i16::MAX.into());
        for i in 0..*count {
            // SAFETY: the queries have `head_dim` values, a whole number of vectors.
            unsafe {
                let query = std::slice::from_raw_parts(queries[i], head_dim);
                let largest = largest_of::<S>(query);
                let inverse = if largest > 0.0 { most as f32 / largest } else { 0.0 };
                for at in (0..head_dim).step_by(LANES) {
                    let to = self.to.levels[i][at..].as_mut_ptr();
                    store_levels::<S>(to, S::load(query[at..].as_ptr()), inverse, most);
                }
                self.to.scales[i] = largest / most as f32 * LOG2_E;
            }
        }
    }
}

#[repr(C, align(64))]
pub struct ChunkScratch {
    scores: [[f32; CHUNK]; TILE], // exponents to the base of 2, that of the value's power added
    shares: [[i16; CHUNK]; TILE], // of the values' levels
    peaks: [[f32; GROUPS]; TILE], // of a group's scores
    factors: [[f32; GROUPS]; TILE], // what a group's shares are to be multiplied with
    inverses: [f32; CHUNK],       // of the values' powers
}

const GROUPS: usize = CHUNK / GROUP;

impl Default for ChunkScratch {
    fn default() -> ChunkScratch {
        ChunkScratch {
            scores: [[0.0; CHUNK]; TILE],
            shares: [[0; CHUNK]; TILE],
            peaks: [[0.0; GROUPS]; TILE],
            factors: [[0.0; GROUPS]; TILE],
            inverses: [0.0; CHUNK],
        }
    }
}

/// What this thread will probably read after the chunk that it computes.
#[derive(Clone, Copy)]
pub struct Ahead<'a> {
    pub tile: &'a Tile<'a>, // one of those that read it
    pub chunk: usize,
    pub line: usize, // of two cache lines the one to ask for: the other is another tile's
}

/// Computes one chunk for all queries of a tile.
pub struct AttendChunk<'a> {
    pub queries: &'a Queries,
    pub scratch: &'a mut ChunkScratch,
    pub tile: &'a Tile<'a>,
    pub chunk: usize,
    pub ahead: Ahead<'a>,
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
        // SAFETY: the blocks of the positions are in the cache, the queries have `head_dim` levels.
        unsafe {
            match tile.count {
                1 => self.run_tile::<S, 1>(low, stop),
                2 => self.run_tile::<S, 2>(low, stop),
                3 => self.run_tile::<S, 3>(low, stop),
                4 => self.run_tile::<S, 4>(low, stop),
                5 | 6 => self.run_tile::<S, 6>(low, stop),
                7 | 8 => self.run_tile::<S, 8>(low, stop),
                _ => self.run_tile::<S, TILE>(low, stop),
            }
        }
    }
}

impl AttendChunk<'_> {
    #[inline(always)]
    unsafe fn run_tile<S: Simd, const R: usize>(self, low: usize, stop: usize) {
        let (tile, scratch, start) = (self.tile, self.scratch, self.chunk * CHUNK);
        let blocks = low / KV_BLOCK_TOKENS..stop.div_ceil(KV_BLOCK_TOKENS);
        let halves = Halves { tile, blocks, ahead: self.ahead };
        let covered =
            halves.blocks.start * KV_BLOCK_TOKENS - start..halves.blocks.end * KV_BLOCK_TOKENS - start;
        // SAFETY: passed on from `run`.
        unsafe {
            for (n, at) in covered.clone().step_by(KV_BLOCK_TOKENS).enumerate() {
                score_block::<S, R>(self.queries, &halves, n, scratch, at);
            }
            // One loop after the other, so that no query waits for its own peaks.
            for i in 0..R.min(tile.count) {
                let (first, end) = tile.seen[i];
                let seen = first.max(start).min(stop) - start..end.min(stop).max(start) - start;
                find_peaks::<S>(scratch, i, seen);
            }
            for i in 0..R.min(tile.count) {
                (self.out[i].peak, self.out[i].sum) = soften::<S>(scratch, i);
            }
            let values = Values { halves: &halves, scratch, covered, seen_end: stop - start };
            match R {
                ..=FEW => values.weigh_all::<S, R, 4>(self.out),
                _ => values.weigh_all::<S, R, 2>(self.out),
            }
        }
    }
}

/// What a chunk reads, in the order in which it reads it: the keys of all its blocks, then their values; after that those of
/// the chunk ahead.
struct Halves<'a> {
    tile: &'a Tile<'a>,
    blocks: Range<usize>, // of the sequence
    ahead: Ahead<'a>,
}

impl Halves<'_> {
    #[inline(always)]
    fn get(&self, n: usize) -> *const i16 {
        let count = self.blocks.len();
        match n {
            n if n < count => self.tile.half(self.blocks.start + n, false),
            n if n < 2 * count => self.tile.half(self.blocks.start + n - count, true),
            n => self.ahead(n - 2 * count),
        }
    }

    /// As `get`, of the chunk ahead.
    #[inline(always)]
    fn ahead(&self, n: usize) -> *const i16 {
        let (Ahead { tile, chunk, .. }, count) = (self.ahead, self.blocks.len());
        let block = (chunk * CHUNK / KV_BLOCK_TOKENS + n % count).min(tile.blocks.len() - 1);
        tile.half(block, n >= count)
    }
}

/// Levels in a cache line.
const LINE: usize = 64 / size_of::<i16>();

/// Scores of `R` queries against the 32 keys of a block. Meanwhile what is needed later comes from memory.
#[inline(always)]
unsafe fn score_block<S: Simd, const R: usize>(
    queries: &Queries,
    halves: &Halves<'_>,
    n: usize,
    scratch: &mut ChunkScratch,
    at: usize,
) {
    let (keys, soon) = (halves.get(n), halves.get(n + HALVES_AHEAD));
    let later = halves.ahead(n).wrapping_add(halves.ahead.line * LINE);
    // SAFETY: `keys` are (head_dim / 2, 32, 2) levels, with their powers and those of the values before them.
    unsafe {
        prefetch(soon.wrapping_sub(POWERS_LEN));
        let mut dots = [[S::zero_i(); 2]; R];
        for column in (0..halves.tile.geometry.head_dim).step_by(2) {
            prefetch(soon.wrapping_add(column * LINE));
            prefetch(soon.wrapping_add((column + 1) * LINE));
            if R > FEW {
                prefetch(later.wrapping_add(column * LINE));
            }
            let low = S::load_i(keys.add(column * KV_BLOCK_TOKENS).cast());
            let high = S::load_i(keys.add(column * KV_BLOCK_TOKENS + 2 * LANES).cast());
            for i in 0..R {
                let query = queries.levels[i].as_ptr().add(column);
                dots[i] = [S::dot_i16(dots[i][0], low, query), S::dot_i16(dots[i][1], high, query)];
            }
        }
        let powers: *const u8 = keys.sub(POWERS_LEN).cast();
        for half in 0..2 {
            let (at, powers) = (at + half * LANES, powers.add(half * LANES));
            let key = S::load_e8m0(powers);
            let value = exponents::<S>(powers.add(POWERS));
            let inverse = S::scale_by_power(S::splat(1.0), S::sub(S::splat(0.0), value));
            S::store(scratch.inverses[at..].as_mut_ptr(), inverse);
            for i in 0..R {
                let score = S::mul(S::to_f32(dots[i][half]), key);
                let score = S::fma(score, S::splat(queries.scales[i]), value);
                S::store(scratch.scores[i][at..].as_mut_ptr(), score);
            }
        }
    }
}

/// Exponents of 16 powers. Where none was ever written it is the least that there is.
#[inline(always)]
unsafe fn exponents<S: Simd>(powers: *const u8) -> S::F {
    // SAFETY: passed on.
    unsafe { S::sub(S::max(S::load_u8(powers), S::splat(POWER_MIN.into())), S::splat(127.0)) }
}

/// Where the vectors of a group begin.
#[inline(always)]
fn vectors_of(group: usize) -> std::iter::StepBy<Range<usize>> {
    (group * GROUP..(group + 1) * GROUP).step_by(LANES)
}

/// The power of two that the largest score of a query reaches in each group; scores not seen become less than all others.
#[inline(always)]
unsafe fn find_peaks<S: Simd>(scratch: &mut ChunkScratch, query: usize, seen: Range<usize>) {
    let (scores, peaks) = (&mut scratch.scores[query], &mut scratch.peaks[query]);
    if seen.is_empty() {
        *peaks = [NO_PEAK; GROUPS];
        return;
    }
    if seen.len() < CHUNK {
        scores[..seen.start].fill(f32::NEG_INFINITY);
        scores[seen.end..].fill(f32::NEG_INFINITY);
    }
    // SAFETY: a chunk is whole groups, and these are whole vectors.
    unsafe {
        let mut largest = [S::splat(f32::NEG_INFINITY); GROUPS];
        for group in 0..GROUPS {
            for at in vectors_of(group) {
                largest[group] = S::max(largest[group], S::load(scores[at..].as_ptr()));
            }
        }
        *peaks = S::largest_of_four(largest);
        for peak in peaks {
            *peak = peak.ceil().max(NO_PEAK);
        }
    }
}

/// Turns the scores of a query into shares, in each group relative to the power of two that its peak says; those not seen
/// become 0, and what little they add to the sum is lost. Gives the power for the whole chunk, and the sum.
#[inline(always)]
unsafe fn soften<S: Simd>(scratch: &mut ChunkScratch, query: usize) -> (f32, f32) {
    let ChunkScratch { scores, shares, peaks, factors, inverses } = scratch;
    let (scores, shares, peaks) = (&scores[query], &mut shares[query], &peaks[query]);
    let peak = peaks.iter().copied().fold(NO_PEAK, f32::max);
    if peak == NO_PEAK {
        shares.fill(0);
        return (NO_PEAK, 0.0);
    }
    for group in 0..GROUPS {
        factors[query][group] = power_between(peaks[group] - SHARE_BITS as f32, peak);
    }
    // SAFETY: a chunk is whole groups, and these are whole pairs of vectors.
    unsafe {
        let mut sum = S::splat(0.0);
        for group in 0..GROUPS {
            let shift = S::splat(SHARE_BITS as f32 - peaks[group]);
            let mut own = S::splat(0.0);
            for at in vectors_of(group).step_by(2) {
                let mut pair = [shift; 2];
                for i in 0..2 {
                    let at = at + i * LANES;
                    pair[i] = power_of_two::<S>(S::add(S::load(scores[at..].as_ptr()), shift));
                    own = S::fma(pair[i], S::load(inverses[at..].as_ptr()), own);
                }
                S::store_pair_i16(shares[at..].as_mut_ptr(), pair);
            }
            sum = S::fma(own, S::splat(factors[query][group]), sum);
        }
        (peak, S::sum(sum))
    }
}

/// The values of a chunk, and what they are weighed by.
struct Values<'a> {
    halves: &'a Halves<'a>,
    scratch: &'a ChunkScratch,
    covered: Range<usize>, // positions of the chunk that have shares
    seen_end: usize,       // those from here on are all 0
}

impl Values<'_> {
    /// Sums of as many columns as registers hold are made at a time: `W` vectors for each of `R` queries.
    #[inline(always)]
    unsafe fn weigh_all<S: Simd, const R: usize, const W: usize>(&self, out: &mut [Partial; TILE]) {
        let head_dim = self.halves.tile.geometry.head_dim;
        let whole = head_dim / (W * LANES) * (W * LANES);
        // SAFETY: passed on from `run`.
        unsafe {
            for at in (0..whole).step_by(W * LANES) {
                self.weigh::<S, R, W>(at, out);
            }
            for at in (whole..head_dim).step_by(LANES) {
                self.weigh::<S, R, 1>(at, out);
            }
        }
    }

    /// The columns `at..at + W * 16`.
    #[inline(always)]
    unsafe fn weigh<S: Simd, const R: usize, const W: usize>(&self, at: usize, out: &mut [Partial; TILE]) {
        let blocks = self.halves.blocks.len();
        // SAFETY: partials have `head_dim` values, and so have the tokens of all blocks.
        unsafe {
            let mut sums = [[S::zero_i(); W]; R];
            let mut first = true;
            for n in 0..blocks {
                let block = self.covered.start + n * KV_BLOCK_TOKENS;
                let positions = block..(block + KV_BLOCK_TOKENS).min(self.seen_end);
                self.weigh_block::<S, R, W>(blocks + n, at, positions, &mut sums);
                let end = block + KV_BLOCK_TOKENS;
                if end.is_multiple_of(GROUP) || n + 1 == blocks {
                    self.add_group::<S, R, W>(block / GROUP, &mut sums, first, at, out);
                    first = false;
                }
            }
        }
    }

    /// Adds the levels of the values at `positions`, all in one block, of the columns `at..at + W * 16`. Meanwhile what is needed
    /// later comes from memory.
    #[inline(always)]
    unsafe fn weigh_block<S: Simd, const R: usize, const W: usize>(
        &self,
        n: usize, // the half with the values
        at: usize,
        positions: Range<usize>,
        sums: &mut [[S::I; W]; R],
    ) {
        let halves = self.halves;
        let (values, soon) = (halves.get(n), halves.get(n + HALVES_AHEAD));
        let later = halves.ahead(n).wrapping_add(halves.ahead.line * LINE);
        let row_lines = 2 * halves.tile.geometry.head_dim / LINE; // of two tokens
        // SAFETY: the values of a block are (16, head_dim, 2). Shares come in pairs too: where the second of one is not seen it is 0.
        unsafe {
            for position in positions.step_by(2) {
                let line = position % KV_BLOCK_TOKENS / 2 * row_lines + at / LANES;
                for w in 0..W {
                    prefetch(soon.wrapping_add((line + w) * LINE));
                    if R > FEW && w % 2 == 0 {
                        prefetch(later.wrapping_add((line + w) * LINE));
                    }
                }
                let pairs: [S::I; W] =
                    std::array::from_fn(|w| S::load_i(values.add((line + w) * LINE).cast()));
                for i in 0..R {
                    let shares = self.scratch.shares[i][position..].as_ptr();
                    for w in 0..W {
                        sums[i][w] = S::dot_i16(sums[i][w], pairs[w], shares);
                    }
                }
            }
        }
    }

    /// Adds a group's sums to those of the groups before, and clears them.
    #[inline(always)]
    unsafe fn add_group<S: Simd, const R: usize, const W: usize>(
        &self,
        group: usize,
        sums: &mut [[S::I; W]; R],
        first: bool,
        at: usize,
        out: &mut [Partial; TILE],
    ) {
        // SAFETY: partials have `head_dim` values.
        unsafe {
            for i in 0..R {
                let factor = S::splat(self.scratch.factors[i][group]);
                for w in 0..W {
                    let to = out[i].values[at + w * LANES..].as_mut_ptr();
                    let before = if first { S::splat(0.0) } else { S::load(to) };
                    S::store(to, S::fma(S::to_f32(sums[i][w]), factor, before));
                    sums[i][w] = S::zero_i();
                }
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
        let peak = total.peak.max(next.peak);
        let (old, new) = (power_between(total.peak, peak), power_between(next.peak, peak));
        total.peak = peak;
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
    let sum = total.sum + sink.map_or(0.0, |sink| (sink * LOG2_E - total.peak).exp2());
    out.iter_mut().zip(&total.values).for_each(|(out, value)| *out = value / sum);
}

#[cfg(test)]
mod tests {
    use super::super::cache::{Cache, key_place, value_place};
    use super::super::simd::Isa;
    use super::*;
    use crate::model::config::{Arch, Config, Rope, RopePairs};

    /// One layer with one head.
    fn cache(head_dim: usize, tokens: usize) -> Cache {
        let rope = Rope { frequencies: vec![0.0; head_dim / 2], magnitude: 1.0, pairs: RopePairs::Halves };
        let config = Config {
            arch: Arch::Llama,
            layers: 1,
            hidden: head_dim,
            heads: 1,
            kv_heads: 1,
            head_dim,
            ffn: 0,
            experts: None,
            vocab: 0,
            context: tokens,
            norm_eps: 0.0,
            rope,
            window: None,
        };
        Cache::new(&config, tokens.div_ceil(KV_BLOCK_TOKENS)).unwrap()
    }

    /// Puts levels of the power 2^0 everywhere in a token's key and in its value.
    fn put(cache: &mut Cache, token: usize, key: i32, value: i32) {
        let geometry = cache.geometry();
        let (at, token) = (geometry.head_at(0, (token / KV_BLOCK_TOKENS) as u32, 0), token % KV_BLOCK_TOKENS);
        let data = cache.data_mut();
        let powers = at..at + POWERS_LEN;
        data[powers].fill(i16::from_ne_bytes([127; 2]));
        for column in 0..geometry.head_dim {
            data[at + POWERS_LEN + key_place(column, token)] = key as i16;
            let values = at + POWERS_LEN + geometry.half_len();
            data[values + value_place(column, token, geometry.head_dim)] = value as i16;
        }
    }

    /// A query whose columns are all `query` sees, in the first chunk, `want` in all columns.
    fn sees(isa: Isa, cache: &Cache, query: f32, want: i32) {
        let head_dim = cache.geometry().head_dim;
        let queries = vec![query; head_dim];
        let blocks: Vec<u32> = (0..(CHUNK / KV_BLOCK_TOKENS) as u32).collect();
        let tile = Tile {
            queries: [queries.as_ptr(); TILE],
            seen: [(0, CHUNK); TILE],
            count: 1,
            cache: cache.data(),
            geometry: cache.geometry(),
            blocks: &blocks,
            layer: 0,
            kv_head: 0,
        };
        let Scratch { queries: [queries, ..], chunk: scratch, next: out, .. } = &mut Scratch::default();
        let ahead = Ahead { tile: &tile, chunk: 1, line: 0 };
        isa.run(RoundQueries { tile: &tile, to: queries });
        isa.run(AttendChunk { queries, scratch, tile: &tile, chunk: 0, ahead, out });
        let mut row = vec![f32::NAN; head_dim];
        finish(&out[0], None, &mut row);
        // Shares are rounded, their sum is not.
        let off = row.iter().map(|value| (value / want as f32 - 1.0).abs()).fold(0.0, f32::max);
        assert!(off < 1e-4, "{}, {head_dim} columns of {query}: {row:?}, not {want}", isa.name());
    }

    #[test]
    fn the_largest_sums_do_not_overflow() {
        for head_dim in [16, 64, 128, HEAD_DIM_MAX] {
            let mut cache = cache(head_dim, CHUNK);
            // All see the same and are worth as much as can be: every share is the largest.
            for token in 0..CHUNK {
                put(&mut cache, token, LEVEL_MAX, -LEVEL_MAX);
            }
            for isa in Isa::available() {
                for query in [0.0, 1.0, -3.0e4, 1.0e30] {
                    sees(isa, &cache, query, -LEVEL_MAX);
                }
            }
            // The largest score and the least: only what is the most like the query counts.
            put(&mut cache, 100, -LEVEL_MAX, 77);
            for isa in Isa::available() {
                sees(isa, &cache, -1.0, 77);
            }
        }
    }
}
