//! What this machine can do: how fast its cores read memory, and how fast they multiply.

use super::memory::{Memory, OutOfMemory};
use super::pool::Pool;
use super::simd::{Isa, Kernel, LANES, Simd};
use std::time::Instant;

/// Bytes a second that `threads` threads read from memory together: the best of a few passes over more
/// than a cache holds.
pub fn read_bandwidth(threads: usize) -> Result<f64, OutOfMemory> {
    const BYTES: usize = 256 << 20;
    const PASSES: usize = 4;
    let mut memory = Memory::<f32>::huge(BYTES / size_of::<f32>())?;
    memory.fill(1.0);
    let (memory, isa) = (&*memory, Isa::detect());
    let mut pool = Pool::new(threads);
    let mut best = f64::INFINITY;
    for _ in 0..PASSES {
        let start = Instant::now();
        pool.run(|worker| {
            let share = worker.share(memory.len() / 64);
            std::hint::black_box(isa.run(Sum(&memory[share.start * 64..share.end * 64])));
        });
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(BYTES as f64 / best)
}

struct Sum<'a>(&'a [f32]);

impl Kernel for Sum<'_> {
    type Output = f32;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> f32 {
        // SAFETY: chunks of 64 values hold four vectors.
        unsafe {
            let mut sums = [S::splat(0.0); 4];
            for chunk in self.0.chunks_exact(64) {
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = S::add(*sum, S::load(chunk[i * 16..].as_ptr()));
                }
            }
            S::sum(S::add(S::add(sums[0], sums[1]), S::add(sums[2], sums[3])))
        }
    }
}

/// Operations a second of `threads` threads that do nothing but multiply and add 8-bit levels: the best of a few.
pub fn int8_peak(threads: usize) -> f64 {
    const PASSES: usize = 4;
    let (mut pool, isa) = (Pool::new(threads), Isa::detect());
    let mut best = f64::INFINITY;
    for _ in 0..PASSES {
        let start = Instant::now();
        pool.run(|_| _ = std::hint::black_box(isa.run(Dots)));
        best = best.min(start.elapsed().as_secs_f64());
    }
    (threads * Dots::ROUNDS * Dots::CHAINS * LANES * 4 * 2) as f64 / best
}

/// Dot products in chains that do not wait for each other.
struct Dots;

impl Dots {
    const ROUNDS: usize = 1 << 20;
    const CHAINS: usize = 12;
}

impl Kernel for Dots {
    type Output = f32;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> f32 {
        let levels = std::hint::black_box([3i8; 4 * Dots::CHAINS]);
        // SAFETY: registers, and four levels for each chain.
        unsafe {
            let weights = S::splat_u8(std::hint::black_box(5));
            let mut sums = [S::zero_i(); Dots::CHAINS];
            for _ in 0..Dots::ROUNDS {
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = S::dot::<false>(*sum, weights, levels.as_ptr().add(4 * i));
                }
            }
            S::sum(sums.iter().fold(S::splat(0.0), |all, &sum| S::add(all, S::to_f32(sum))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_bandwidth() {
        assert!(read_bandwidth(1).unwrap() > 1e8);
        assert!(int8_peak(1) > 1e8);
    }
}
