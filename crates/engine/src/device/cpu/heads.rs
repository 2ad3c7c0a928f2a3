//! Between the q, k, v product and attention: norms of heads, rotary turn, and the way into the cache.

use super::cache::{Geometry, Short, key_place, value_place};
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
    pub cache: Shared<'a, u16>,
    pub at: usize,    // where the keys of the head begin in the cache
    pub token: usize, // within the block
    pub short: Short,
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
            let cache = self.cache.range_mut(self.at, 2 * half_len).as_mut_ptr();
            let mut lanes = [0u16; LANES];
            for at in (0..head_dim).step_by(LANES) {
                store_short::<S>(self.short, lanes.as_mut_ptr(), S::load(self.k[at..].as_ptr()));
                for (i, key) in lanes.into_iter().enumerate() {
                    *cache.add(key_place(at + i, self.token)) = key;
                }
                store_short::<S>(self.short, lanes.as_mut_ptr(), S::load(self.v[at..].as_ptr()));
                for (i, value) in lanes.into_iter().enumerate() {
                    *cache.add(half_len + value_place(at + i, self.token, head_dim)) = value;
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn store_short<S: Simd>(short: Short, to: *mut u16, value: S::F) {
    // SAFETY: passed on.
    unsafe {
        match short {
            Short::F16 => S::store_f16(to, value),
            Short::Bf16 => S::store_bf16(to, value),
        }
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
        cached: Shared<'_, u16>,
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
                short: geometry.short,
            });
        }
    }
}

fn span_of(batch: &Batch, row: usize) -> &Span {
    let index = batch.spans.partition_point(|span| span.rows.end <= row);
    &batch.spans[index]
}
