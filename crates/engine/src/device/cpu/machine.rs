//! What this machine can do: its cores, how fast they read memory, and how fast they multiply.

use super::memory::{Memory, OutOfMemory};
use super::pool::Pool;
use super::simd::{Isa, Kernel, LANES, Simd};
use crate::limits::CPUS_MAX;
use std::collections::BTreeSet;
use std::time::Instant;

/// Threads to use: one for each physical core that this process may run on, and no more than it has processor time for.
pub fn default_threads() -> usize {
    // What is allowed, and what a quota leaves of it.
    let quota = std::thread::available_parallelism().map_or(1, usize::from);
    cpus_allowed().map_or(quota, |allowed| threads(&allowed, siblings, quota))
}

/// The decision: CPUs that share a core count once, those that this process may not run on do not count.
fn threads(
    allowed: &BTreeSet<usize>,
    siblings: impl Fn(usize) -> Option<BTreeSet<usize>>,
    quota: usize,
) -> usize {
    // A core goes by its first CPU. Of whose siblings nothing is known is a core by itself.
    let core = |&cpu: &usize| siblings(cpu).and_then(|cpus| cpus.first().copied()).unwrap_or(cpu);
    let cores: BTreeSet<usize> = allowed.iter().map(core).collect();
    cores.len().min(quota).max(1)
}

/// CPUs that this thread may run on, where the system tells.
fn cpus_allowed() -> Option<BTreeSet<usize>> {
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    cpu_list(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?)
}

/// CPUs that share a core with this one, itself among them.
fn siblings(cpu: usize) -> Option<BTreeSet<usize>> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    cpu_list(&std::fs::read_to_string(path).ok()?)
}

/// Such as "0-3,8".
fn cpu_list(text: &str) -> Option<BTreeSet<usize>> {
    let mut cpus = BTreeSet::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

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

    /// `siblings` is a list for each core.
    fn threads_of(allowed: &str, siblings: &[&str], quota: usize) -> usize {
        let cores: Vec<BTreeSet<usize>> = siblings.iter().map(|core| cpu_list(core).unwrap()).collect();
        let core = |cpu| cores.iter().find(|core| core.contains(&cpu)).cloned();
        threads(&cpu_list(allowed).unwrap(), core, quota)
    }

    #[test]
    fn a_thread_for_each_core_that_is_allowed_and_paid_for() {
        let pairs = ["0-1", "2-3", "4-5", "6-7"];
        let halves = ["0,4", "1,5", "2,6", "3,7"];
        for (allowed, siblings, quota, expected, why) in [
            ("0-1", &["0", "1"][..], 2, 2, "two cores of one thread"),
            ("0-7", &pairs, 8, 4, "all of the machine, siblings side by side"),
            ("0-7", &halves, 8, 4, "all of the machine, siblings far apart"),
            ("0-1", &pairs, 2, 1, "both threads of one core"),
            ("1,5", &halves, 2, 1, "both threads of one core, far apart"),
            ("0-3", &halves, 4, 4, "a thread of each core"),
            ("3-4", &pairs, 2, 2, "one thread of two cores each"),
            ("5", &pairs, 1, 1, "the second thread of a core alone"),
            ("0-7", &pairs, 2, 2, "a quota below the cores"),
            ("0-7", &pairs, 6, 4, "a quota between cores and threads"),
            ("0-1", &pairs, 1, 1, "a quota of one"),
            ("0-2", &[], 3, 3, "nothing known of siblings"),
            ("0-2", &["0-1"], 3, 2, "something known of them"),
        ] {
            assert_eq!(threads_of(allowed, siblings, quota), expected, "{why}");
        }
    }

    #[test]
    fn lists_of_cpus_are_read() {
        let list = |text| cpu_list(text).map(Vec::from_iter);
        assert_eq!(list(" 0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(list("7"), Some(vec![7]));
        for bad in ["", "a", "1-", "3-1", "0-4294967295", "1,,2"] {
            assert_eq!(list(bad), None, "{bad:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_machine_tells_which_cpus_share_a_core() {
        let allowed = cpus_allowed().unwrap();
        assert!(!allowed.is_empty());
        assert!(allowed.iter().all(|&cpu| siblings(cpu).is_none_or(|own| own.contains(&cpu))));
    }

    #[test]
    fn the_machine_has_threads_and_bandwidth() {
        assert!(default_threads() >= 1);
        assert!(read_bandwidth(1).unwrap() > 1e8);
        assert!(int8_peak(1) > 1e8);
    }
}
