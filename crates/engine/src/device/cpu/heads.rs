//! Between the q, k, v product and attention: norms of heads, rotary turn, and the way into the cache.

use super::cache::{Geometry, LEVEL_MAX, POWERS, POWERS_LEN, key_place, power_for, value_place};
use super::input::normalise_in_place;
use super::memory::Shared;
use super::simd::{Isa, Kernel, LANES, Simd};
use super::{Cpu, norm_parts};
use crate::batch::{Batch, Span};
use crate::device::Attention;
use crate::limits::KV_BLOCK_TOKENS;
use crate::model::config::RopePairs;
use std::ops::Range;

/// Values of one head, at most.
pub const HEAD_DIM_MAX: usize = 256;

/// Angles of the rows of a batch.
#[derive(Default)]
pub struct Angles {
    pub cos: Vec<f32>, // (rows, head_dim / 2)
    pub sin: Vec<f32>, // (rows, head_dim / 2)
    pub pairs: Option<RopePairs>,
}

/// Rows whose keys and values go into the cache together. Of a key's pairs of columns those of many tokens share a cache line: by
/// turns with another thread that line would go back and forth for each row.
const RUN: usize = 8;

/// A KV head of some rows, whose tokens lie after each other in one block.
struct PlaceRun<'a> {
    place: &'a Placement<'a>,
    kv_head: usize,
    row: usize,
    count: usize, // of rows, at most `RUN`
    at: usize,    // where the head begins in the cache
    token: usize, // within the block
}

impl Kernel for PlaceRun<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let PlaceRun { place, kv_head, row, count, at, token } = self;
        let head_dim = place.weights.head_dim;
        let half_len = head_dim * KV_BLOCK_TOKENS;
        let mut levels = [[[0; HEAD_DIM_MAX]; RUN]; 2]; // of keys and values
        // SAFETY: rows are this thread's own in this KV head, and so are the tokens' places in the cache.
        unsafe {
            let cached = place.cached.place(at, POWERS_LEN + 2 * half_len);
            let powers = cached.cast::<u8>();
            for i in 0..count {
                let mut heads = place.heads(row + i, kv_head);
                heads.turn::<S>(place);
                *powers.add(token + i) = round::<S>(heads.k, &mut levels[0][i]);
                *powers.add(POWERS + token + i) = round::<S>(heads.v, &mut levels[1][i]);
            }
            let [keys, values] = &levels;
            put_keys(cached.add(POWERS_LEN), token, &keys[..count], head_dim);
            put_values(cached.add(POWERS_LEN + half_len), token, &values[..count], head_dim);
        }
    }
}

/// One row's heads of one KV head: its query heads, its key and its value.
struct Heads<'a> {
    q: &'a mut [f32], // (query heads of the KV head, head_dim)
    k: &'a mut [f32], // (head_dim)
    v: &'a [f32],     // (head_dim)
    cos: &'a [f32],   // (head_dim / 2)
    sin: &'a [f32],
}

impl Heads<'_> {
    /// Normalises and turns q and k, and scales q.
    #[inline(always)]
    unsafe fn turn<S: Simd>(&mut self, place: &Placement<'_>) {
        let (w, head_dim) = (place.weights, self.k.len());
        let pairs = place.angles.pairs.unwrap_or(RopePairs::Halves);
        let scale = 1.0 / (head_dim as f32).sqrt();
        // SAFETY: heads are whole vectors.
        unsafe {
            for head in self.q.chunks_exact_mut(head_dim) {
                if let Some((weight, eps)) = w.q_norm.as_ref().map(norm_parts) {
                    normalise_in_place::<S>(head, weight, eps);
                }
                turn(head, self.cos, self.sin, pairs);
                for at in (0..head_dim).step_by(LANES) {
                    let p = head[at..].as_mut_ptr();
                    S::store(p, S::mul(S::load(p), S::splat(scale)));
                }
            }
            if let Some((weight, eps)) = w.k_norm.as_ref().map(norm_parts) {
                normalise_in_place::<S>(self.k, weight, eps);
            }
            turn(self.k, self.cos, self.sin, pairs);
        }
    }
}

/// A key or a value as levels. Which power of two they have is told.
#[inline(always)]
unsafe fn round<S: Simd>(values: &[f32], levels: &mut [i16; HEAD_DIM_MAX]) -> u8 {
    // SAFETY: whole vectors of values.
    unsafe {
        let power = power_for(largest_of::<S>(values));
        let inverse = f32::from_bits(u32::from(2 * 127 - power) << 23);
        for at in (0..values.len()).step_by(LANES) {
            let to = levels[at..].as_mut_ptr();
            store_levels::<S>(to, S::load(values[at..].as_ptr()), inverse, LEVEL_MAX);
        }
        power
    }
}

/// Puts the keys of tokens from `token` on among those of their block, a pair of columns after the other.
#[inline(always)]
unsafe fn put_keys(to: *mut i16, token: usize, keys: &[[i16; HEAD_DIM_MAX]], head_dim: usize) {
    for column in (0..head_dim).step_by(2) {
        for (i, key) in keys.iter().enumerate() {
            // SAFETY: the block has a place for each of the tokens' columns, in pairs.
            unsafe { *to.add(key_place(column, token + i)).cast() = [key[column], key[column + 1]] };
        }
    }
}

/// As [`put_keys`], values, of which two tokens' lie in pairs.
#[inline(always)]
unsafe fn put_values(to: *mut i16, token: usize, values: &[[i16; HEAD_DIM_MAX]], head_dim: usize) {
    let mut i = 0;
    while i < values.len() {
        let first = value_place(0, token + i, head_dim);
        // SAFETY: the block has a place for each of the tokens' columns.
        unsafe {
            if (token + i).is_multiple_of(2) && i + 1 < values.len() {
                let to: *mut [i16; 2] = to.add(first).cast();
                for column in 0..head_dim {
                    *to.add(column) = [values[i][column], values[i + 1][column]];
                }
                i += 2;
            } else {
                for column in 0..head_dim {
                    *to.add(first + 2 * column) = values[i][column];
                }
                i += 1;
            }
        }
    }
}

/// The largest absolute value.
#[inline(always)]
pub unsafe fn largest_of<S: Simd>(values: &[f32]) -> f32 {
    // SAFETY: whole vectors of values.
    unsafe {
        let starts = (0..values.len()).step_by(LANES);
        let largest =
            starts.fold(S::splat(0.0), |largest, at| S::max(S::abs(S::load(values[at..].as_ptr())), largest));
        S::largest(largest)
    }
}

/// Rounds `values * inverse` to levels of at most `most`, whatever the values are.
#[inline(always)]
pub unsafe fn store_levels<S: Simd>(to: *mut i16, values: S::F, inverse: f32, most: i32) {
    // SAFETY: passed on.
    unsafe {
        let levels = S::max(S::mul(values, S::splat(inverse)), S::splat(-most as f32));
        S::store_i16(to, S::min(levels, S::splat(most as f32)));
    }
}

#[inline(always)]
fn turn(head: &mut [f32], cos: &[f32], sin: &[f32], pairs: RopePairs) {
    let half = head.len() / 2;
    match pairs {
        RopePairs::Adjacent => {
            for (pair, (cos, sin)) in head.chunks_exact_mut(2).zip(cos.iter().zip(sin)) {
                (pair[0], pair[1]) = (pair[0] * cos - pair[1] * sin, pair[1] * cos + pair[0] * sin);
            }
        }
        RopePairs::Halves => {
            let (a, b) = head.split_at_mut(half);
            for i in 0..half {
                (a[i], b[i]) = (a[i] * cos[i] - b[i] * sin[i], b[i] * cos[i] + a[i] * sin[i]);
            }
        }
    }
}

/// The last phase of `qkv`.
pub struct Placement<'a> {
    pub weights: &'a Attention<Cpu>,
    pub batch: &'a Batch,
    pub angles: &'a Angles,
    pub isa: Isa,
    pub values: Shared<'a, f32>, // (rows, width) q, k and v
    pub width: usize,
    pub cached: Shared<'a, i16>,
    pub geometry: Geometry,
}

impl Placement<'_> {
    /// Places one KV head of some rows.
    ///
    /// # Safety
    /// Nobody else handles the same rows of this head meanwhile.
    pub unsafe fn run(&self, kv_head: usize, rows: Range<usize>) {
        let mut row = rows.start;
        while row < rows.end {
            let span = span_of(self.batch, row);
            let position = span.position + row - span.rows.start;
            let blocks = &self.batch.blocks[span.blocks.clone()];
            let (at, token) = self.geometry.place(self.weights.layer, blocks, position, kv_head);
            let count = RUN.min(KV_BLOCK_TOKENS - token).min(rows.end.min(span.rows.end) - row);
            self.isa.run(PlaceRun { place: self, kv_head, row, count, at, token });
            row += count;
        }
    }

    /// # Safety
    /// Nobody else handles the row and KV head while these are used.
    #[inline(always)]
    unsafe fn heads(&self, row: usize, kv_head: usize) -> Heads<'_> {
        let w = self.weights;
        let (head_dim, group) = (w.head_dim, w.heads / w.kv_heads);
        let base = row * self.width;
        let k_at = base + (w.heads + kv_head) * head_dim;
        let v_at = k_at + w.kv_heads * head_dim;
        let half = head_dim / 2;
        // SAFETY: the ranges are this row's and this head's own.
        unsafe {
            Heads {
                q: self.values.range_mut(base + kv_head * group * head_dim, group * head_dim),
                k: self.values.range_mut(k_at, head_dim),
                v: self.values.range(v_at, head_dim),
                cos: &self.angles.cos[row * half..][..half],
                sin: &self.angles.sin[row * half..][..half],
            }
        }
    }
}

fn span_of(batch: &Batch, row: usize) -> &Span {
    let index = batch.spans.partition_point(|span| span.rows.end <= row);
    &batch.spans[index]
}
