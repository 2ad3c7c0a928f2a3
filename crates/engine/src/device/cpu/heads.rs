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

/// Values of one head, at most.
pub const HEAD_DIM_MAX: usize = 256;

/// Angles of the rows of a batch.
#[derive(Default)]
pub struct Angles {
    pub cos: Vec<f32>, // (rows, head_dim / 2)
    pub sin: Vec<f32>, // (rows, head_dim / 2)
    pub pairs: Option<RopePairs>,
}

/// One row's heads of one KV head: its query heads, its key and its value.
pub struct PlaceHeads<'a> {
    pub q: &'a mut [f32], // (query heads of the KV head, head_dim)
    pub k: &'a mut [f32], // (head_dim)
    pub v: &'a [f32],     // (head_dim)
    pub cos: &'a [f32],   // (head_dim / 2)
    pub sin: &'a [f32],
    pub pairs: RopePairs,
    pub q_norm: Option<(&'a [f32], f32)>,
    pub k_norm: Option<(&'a [f32], f32)>,
    pub cache: Shared<'a, i16>,
    pub at: usize,    // where the head begins in the cache
    pub token: usize, // within the block
}

impl Kernel for PlaceHeads<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let head_dim = self.k.len();
        let scale = 1.0 / (head_dim as f32).sqrt();
        // SAFETY: slices have the lengths stated; the token's place in the cache is this call's own.
        unsafe {
            for head in self.q.chunks_exact_mut(head_dim) {
                if let Some((weight, eps)) = self.q_norm {
                    normalise_in_place::<S>(head, weight, eps);
                }
                turn::<S>(head, self.cos, self.sin, self.pairs);
                for at in (0..head_dim).step_by(LANES) {
                    let p = head[at..].as_mut_ptr();
                    S::store(p, S::mul(S::load(p), S::splat(scale)));
                }
            }
            if let Some((weight, eps)) = self.k_norm {
                normalise_in_place::<S>(self.k, weight, eps);
            }
            turn::<S>(self.k, self.cos, self.sin, self.pairs);
            let half_len = head_dim * KV_BLOCK_TOKENS;
            let head = self.cache.range_mut(self.at, POWERS_LEN + 2 * half_len).as_mut_ptr();
            let powers = head.cast::<u8>().add(self.token);
            let (keys, values) = (head.add(POWERS_LEN), head.add(POWERS_LEN + half_len));
            *powers = place::<S>(self.k, |column, level| *keys.add(key_place(column, self.token)) = level);
            *powers.add(POWERS) = place::<S>(self.v, |column, level| {
                *values.add(value_place(column, self.token, head_dim)) = level;
            });
        }
    }
}

/// Puts a key or a value into the cache, and says which power of two its levels have.
#[inline(always)]
unsafe fn place<S: Simd>(values: &[f32], mut put: impl FnMut(usize, i16)) -> u8 {
    // SAFETY: whole vectors of values.
    unsafe {
        let power = power_for(largest_of::<S>(values));
        let inverse = f32::from_bits(u32::from(2 * 127 - power) << 23);
        let mut levels = [0; LANES];
        for at in (0..values.len()).step_by(LANES) {
            store_levels::<S>(levels.as_mut_ptr(), S::load(values[at..].as_ptr()), inverse, LEVEL_MAX);
            for (i, level) in levels.into_iter().enumerate() {
                put(at + i, level);
            }
        }
        power
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
unsafe fn turn<S: Simd>(head: &mut [f32], cos: &[f32], sin: &[f32], pairs: RopePairs) {
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
    pub width: usize, // of a row of q, k and v
}

impl Placement<'_> {
    /// # Safety
    /// Nobody else handles the same row and KV head meanwhile.
    pub unsafe fn run(
        &self,
        row: usize,
        kv_head: usize,
        values: Shared<'_, f32>,
        cached: Shared<'_, i16>,
        geometry: Geometry,
    ) {
        let w = self.weights;
        let (head_dim, group) = (w.head_dim, w.heads / w.kv_heads);
        let span = span_of(self.batch, row);
        let position = span.position + row - span.rows.start;
        let blocks = &self.batch.blocks[span.blocks.clone()];
        let (at, token) = geometry.place(w.layer, blocks, position, kv_head);
        let base = row * self.width;
        let k_at = base + (w.heads + kv_head) * head_dim;
        let v_at = k_at + w.kv_heads * head_dim;
        let half = head_dim / 2;
        // SAFETY: the ranges are this row's and this head's own.
        unsafe {
            self.isa.run(PlaceHeads {
                q: values.range_mut(base + kv_head * group * head_dim, group * head_dim),
                k: values.range_mut(k_at, head_dim),
                v: values.range(v_at, head_dim),
                cos: &self.angles.cos[row * half..][..half],
                sin: &self.angles.sin[row * half..][..half],
                pairs: self.angles.pairs.unwrap_or(RopePairs::Halves),
                q_norm: w.q_norm.as_ref().map(norm_parts),
                k_norm: w.k_norm.as_ref().map(norm_parts),
                cache: cached,
                at,
                token,
            });
        }
    }
}

fn span_of(batch: &Batch, row: usize) -> &Span {
    let index = batch.spans.partition_point(|span| span.rows.end <= row);
    &batch.spans[index]
}
