//! What is asked of a row of logits: which token is the likeliest, and what all of them weigh. The arithmetic is the sampler's,
//! compiled for the instruction set at hand and shared out among the threads, so it gives the same bits.

use super::memory::Shared;
use super::pool::{Pool, Worker};
use super::simd::{Isa, Kernel, Simd};
use crate::sample::{CHUNK, Chunk, Largest, largest, weight_of};

/// What one thread found in its share of a row.
#[derive(Clone, Copy)]
#[repr(align(128))]
pub struct Found(Largest);

impl Found {
    pub const NOTHING: Found = Found(Largest::OF_NONE);
}

/// A row of logits, in shares of whole chunks.
#[derive(Clone, Copy)]
struct Row<'a>(&'a [f32]);

impl<'a> Row<'a> {
    fn chunks(&self) -> usize {
        self.0.len().div_ceil(CHUNK)
    }

    /// A thread's share, and the place of its first logit.
    fn share(&self, worker: Worker<'_>) -> (&'a [f32], usize) {
        let chunks = worker.share(self.chunks());
        let start = chunks.start * CHUNK;
        (&self.0[start..self.0.len().min(chunks.end * CHUNK)], start)
    }
}

/// The token of the largest logit, the lowest of equals, if the logits make sense. There is a `found` for each thread.
pub fn likeliest(pool: &mut Pool, isa: Isa, found: &mut [Found], logits: &[f32]) -> Option<u32> {
    let row = Row(logits);
    let all = Shared::new(found);
    pool.run(|worker| {
        // SAFETY: each thread has its own.
        unsafe { look(worker, isa, row, &all) };
    });
    Some(sound(found)?.place as u32)
}

/// What each chunk of a row weighs beside the best logit, which is told; nothing if the logits make no sense.
pub fn weigh(
    pool: &mut Pool,
    isa: Isa,
    found: &mut [Found],
    logits: &[f32],
    scale: f32,
    chunks: &mut Vec<Chunk>,
) -> Option<f32> {
    let (row, threads) = (Row(logits), found.len());
    chunks.clear();
    chunks.resize(row.chunks(), Chunk { sum: 0.0, max: 0.0 });
    let (all, weights) = (Shared::new(found), Shared::new(chunks));
    pool.run(|worker| {
        // SAFETY: each thread writes what is its own, and reads the others' after the barrier.
        unsafe {
            look(worker, isa, row, &all);
            worker.barrier();
            if let Some(Largest { value: best, .. }) = sound(all.range(0, threads)) {
                let own = worker.share(row.chunks());
                let weights = weights.range_mut(own.start, own.len());
                isa.run(Weigh { logits: row.share(worker).0, best, scale, weights });
            }
        }
    });
    sound(found).map(|best| best.value)
}

/// # Safety
/// Nobody else uses this thread's place in `found`.
unsafe fn look(worker: Worker<'_>, isa: Isa, row: Row<'_>, found: &Shared<'_, Found>) {
    let (logits, start) = row.share(worker);
    let own = isa.run(Look(logits));
    // SAFETY: passed on.
    unsafe { found.range_mut(worker.index, 1)[0] = Found(Largest { place: start + own.place, ..own }) };
}

/// The largest of all, if a token can be chosen by it.
fn sound(found: &[Found]) -> Option<Largest> {
    let all = found.iter().fold(Largest::OF_NONE, |all, found| all.or(found.0));
    (all.value.is_finite() && !all.nan).then_some(all)
}

struct Look<'a>(&'a [f32]);

impl Kernel for Look<'_> {
    type Output = Largest;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> Largest {
        largest(self.0)
    }
}

struct Weigh<'a> {
    logits: &'a [f32],
    best: f32,
    scale: f32,
    weights: &'a mut [Chunk],
}

impl Kernel for Weigh<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for (logits, weight) in self.logits.chunks(CHUNK).zip(self.weights) {
            *weight = weight_of(logits, self.best, self.scale);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::likeliest as plain;

    fn made_up(len: usize) -> Vec<f32> {
        (0..len).map(|i| ((i * 7919) % 1009) as f32 / 40.0 - 12.0).collect()
    }

    /// On every instruction set, on one thread to three.
    fn everywhere(mut see: impl FnMut(&mut Pool, Isa, &mut [Found])) {
        for threads in 1..4 {
            let mut pool = Pool::new(threads);
            for isa in Isa::available() {
                see(&mut pool, isa, &mut vec![Found::NOTHING; threads]);
            }
        }
    }

    #[test]
    fn the_likeliest_token_is_the_samplers() {
        for len in [1, 63, 64, 65, 1000, 5003] {
            let mut rows = vec![made_up(len), vec![0.25; len], vec![f32::NEG_INFINITY; len]];
            for place in [0, len / 2, len - 1] {
                for value in [f32::NAN, f32::INFINITY, 99.0, f32::NEG_INFINITY] {
                    let mut row = made_up(len);
                    row[place] = value;
                    rows.push(row);
                }
            }
            for row in rows {
                everywhere(|pool, isa, found| assert_eq!(likeliest(pool, isa, found, &row), plain(&row)));
            }
        }
    }

    #[test]
    fn weights_are_the_samplers_to_the_bit() {
        for len in [1, 64, 100, 5003] {
            let row = made_up(len);
            let best = row.iter().copied().fold(f32::MIN, f32::max);
            for scale in [0.3, 1.0, 7.5] {
                let want: Vec<Chunk> =
                    row.chunks(CHUNK).map(|logits| weight_of(logits, best, scale)).collect();
                everywhere(|pool, isa, found| {
                    let mut chunks = vec![Chunk { sum: 9.0, max: 9.0 }; 3];
                    assert_eq!(weigh(pool, isa, found, &row, scale, &mut chunks), Some(best));
                    let bits = |chunk: &Chunk| (chunk.sum.to_bits(), chunk.max.to_bits());
                    assert!(chunks.iter().map(bits).eq(want.iter().map(bits)), "{}", isa.name());
                });
            }
        }
    }

    #[test]
    fn nothing_is_weighed_where_a_logit_is_no_number() {
        let mut row = made_up(300);
        row[299] = f32::NAN;
        everywhere(|pool, isa, found| assert_eq!(weigh(pool, isa, found, &row, 1.0, &mut Vec::new()), None));
    }
}
