//! Threads that work in step: one job at a time, on all of them, with barriers inside.
//!
//! Between the jobs of one forward pass the threads spin, because waking one costs more than many
//! whole operations. Left without work for a millisecond they sleep.

use super::cores::{self, Core, Cores};
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long a thread without work spins before it sleeps.
const SPIN_TIME_MAX: Duration = Duration::from_millis(1);

/// Spins, a few microseconds in all, after which a waiting thread lets others run: the core may be shared,
/// and the thread that is waited for may be the one without a core.
const SPINS_BEFORE_YIELD: u32 = 256;

pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>, // all but the caller
}

struct Shared {
    count: usize,
    job: UnsafeCell<Option<*const (dyn Fn(Worker<'_>) + Sync)>>,
    generation: Apart<AtomicU32>, // bumped once a job
    done: Apart<AtomicUsize>,     // threads that have done it, without the caller
    asleep: AtomicUsize,
    quit: AtomicBool,
    barrier: Apart<Barrier>,
    shares: [Box<[Share]>; 2], // (count), for even and odd generations
}

/// In cache lines of its own, so that threads that write it do not take others' from them.
#[derive(Default)]
#[repr(align(128))]
struct Apart<T>(T);

/// How much is taken of one thread's share of the units: from its front, by that thread, in the low half of the number, and
/// from its back, by others, in the high half.
type Share = Apart<AtomicU64>;

impl Share {
    /// The next place of `len` at the front or the back. While fewer than `len` were taken in all, the two cannot meet.
    #[inline]
    fn take(&self, len: usize, back: bool) -> Option<usize> {
        let before = self.0.fetch_add(if back { 1 << 32 } else { 1 }, Ordering::Relaxed);
        let (front_taken, back_taken) = (before as u32 as usize, (before >> 32) as usize);
        let place = if back { len.wrapping_sub(1 + back_taken) } else { front_taken };
        (front_taken + back_taken < len).then_some(place)
    }
}

// SAFETY: `job` is written by the owner of the pool only while all threads wait for `generation`, and
// read by them only after they have seen it change.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer inside is only followed while `run` keeps its target alive.
unsafe impl Send for Shared {}

/// One thread's view of the job that runs.
#[derive(Clone, Copy)]
pub struct Worker<'a> {
    pub index: usize,
    pub count: usize,
    shares: &'a [Share],
    shared: &'a Shared,
}

impl Pool {
    /// A pool of `count` threads, the caller of [`Pool::run`] being the first.
    pub fn new(count: usize) -> Pool {
        Pool::placed(count, Cores::of_this_process().and_then(|cores| cores.places(count)))
    }

    /// As [`Pool::new`], each thread on a core of its own. The caller is not bound, since threads that it starts would be bound
    /// with it; the one core that the others leave free is where the system finds room for it.
    fn placed(count: usize, places: Option<Vec<Core>>) -> Pool {
        let shared = Arc::new(Shared {
            count,
            job: UnsafeCell::new(None),
            generation: Apart::default(),
            done: Apart::default(),
            asleep: AtomicUsize::new(0),
            quit: AtomicBool::new(false),
            barrier: Apart(Barrier::new(count)),
            shares: [0, 1].map(|_| (0..count).map(|_| Share::default()).collect()),
        });
        let threads = (1..count)
            .map(|index| {
                let shared = shared.clone();
                let core = places.as_ref().and_then(|cores| cores.get(index).cloned());
                std::thread::Builder::new()
                    .name(format!("flint-cpu-{index}"))
                    .spawn(move || {
                        core.iter().for_each(cores::stay);
                        shared.serve(index);
                    })
                    .expect("the system can start a thread")
            })
            .collect();
        Pool { shared, threads }
    }

    pub fn threads(&self) -> usize {
        self.shared.count
    }

    /// Runs `job` on every thread and returns when all are done.
    pub fn run(&mut self, job: impl Fn(Worker<'_>) + Sync) {
        let shared = &*self.shared;
        if shared.count == 1 {
            let generation = shared.generation.0.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            return job(shared.worker(0, generation));
        }
        let pointer: *const (dyn Fn(Worker<'_>) + Sync + '_) = &job;
        // SAFETY: the threads wait for `generation`, so nobody reads `job` now. The lifetime is only
        // erased until this function returns, and it returns after the last barrier.
        unsafe {
            *shared.job.get() = Some(std::mem::transmute::<
                *const (dyn Fn(Worker<'_>) + Sync + '_),
                *const (dyn Fn(Worker<'_>) + Sync + 'static),
            >(pointer));
        }
        let generation = shared.generation.0.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        if shared.asleep.load(Ordering::SeqCst) > 0 {
            self.threads.iter().map(JoinHandle::thread).for_each(Thread::unpark);
        }
        shared.work(0, generation, &job);
        // The others wait for the next generation, not for each other.
        spin_until(|| shared.done.0.load(Ordering::Acquire) == shared.count - 1);
        shared.done.0.store(0, Ordering::Relaxed);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.quit.store(true, Ordering::SeqCst);
        self.shared.generation.0.fetch_add(1, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// A thread's view of the job of a generation. Of the next one's units nothing is taken yet: each thread sees to its own share.
    fn worker(&self, index: usize, generation: u32) -> Worker<'_> {
        let (own, next) = (generation as usize % 2, (generation as usize + 1) % 2);
        self.shares[next][index].0.store(0, Ordering::Relaxed);
        Worker { index, count: self.count, shares: &self.shares[own], shared: self }
    }

    fn serve(&self, index: usize) {
        let mut seen = 0;
        loop {
            seen = self.wait_for_job(seen);
            if self.quit.load(Ordering::SeqCst) {
                return;
            }
            // SAFETY: the generation has changed, so `run` has set the job and waits for us.
            let job = unsafe { (*self.job.get()).map(|job| &*job) };
            if let Some(job) = job {
                self.work(index, seen, job);
                self.done.0.fetch_add(1, Ordering::Release);
            }
        }
    }

    fn work(&self, index: usize, generation: u32, job: &(dyn Fn(Worker<'_>) + Sync)) {
        // A panic here would leave the other threads waiting for ever: end the process instead, its
        // supervisor starts another.
        let guard = AbortOnPanic;
        job(self.worker(index, generation));
        std::mem::forget(guard);
    }

    fn wait_for_job(&self, seen: u32) -> u32 {
        let mut since = None;
        loop {
            for _ in 0..SPINS_BEFORE_YIELD {
                let now = self.generation.0.load(Ordering::Acquire);
                if now != seen {
                    return now;
                }
                std::hint::spin_loop();
            }
            if since.get_or_insert_with(Instant::now).elapsed() < SPIN_TIME_MAX {
                std::thread::yield_now();
                continue;
            }
            self.asleep.fetch_add(1, Ordering::SeqCst);
            while self.generation.0.load(Ordering::SeqCst) == seen {
                std::thread::park();
            }
            self.asleep.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        std::process::abort();
    }
}

impl Worker<'_> {
    /// Waits until every thread has come here.
    #[inline]
    pub fn barrier(&self) {
        if self.count > 1 {
            self.shared.barrier.0.wait();
        }
    }

    /// Takes one of `units` units of work that no thread has taken yet. Those of a thread's own share come one after the other,
    /// as memory likes it; who has no more helps others, from the end of their shares.
    #[inline]
    pub fn take(&self, units: usize) -> Option<usize> {
        (0..self.count).find_map(|step| {
            let index = (self.index + step) % self.count;
            let share = share(units, index, self.count);
            self.shares[index].take(share.len(), step > 0).map(|place| share.start + place)
        })
    }

    /// This thread's even share of `units`.
    #[inline]
    pub fn share(&self, units: usize) -> Range<usize> {
        share(units, self.index, self.count)
    }
}

/// The even share of `units` that one of `count` threads has.
#[inline]
fn share(units: usize, index: usize, count: usize) -> Range<usize> {
    units * index / count..units * (index + 1) / count
}

/// A barrier that spins.
struct Barrier {
    count: usize,
    arrived: AtomicUsize,
    phase: AtomicU32,
}

impl Barrier {
    fn new(count: usize) -> Barrier {
        Barrier { count, arrived: AtomicUsize::new(0), phase: AtomicU32::new(0) }
    }

    fn wait(&self) {
        let phase = self.phase.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.count {
            self.arrived.store(0, Ordering::Relaxed);
            self.phase.store(phase.wrapping_add(1), Ordering::Release);
            return;
        }
        spin_until(|| self.phase.load(Ordering::Acquire) != phase);
    }
}

fn spin_until(done: impl Fn() -> bool) {
    let mut spins = 0u32;
    while !done() {
        std::hint::spin_loop();
        spins += 1;
        if spins.is_multiple_of(SPINS_BEFORE_YIELD) {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_taken_once_in_each_job() {
        let mut pool = Pool::new(3);
        for round in 0..200 {
            let units = round % 17 + 1;
            let taken: Vec<AtomicUsize> = (0..units).map(|_| AtomicUsize::new(0)).collect();
            let early = AtomicBool::new(false);
            pool.run(|worker| {
                while let Some(unit) = worker.take(units) {
                    taken[unit].fetch_add(1, Ordering::Relaxed);
                }
                worker.barrier();
                if taken.iter().any(|t| t.load(Ordering::Relaxed) == 0) {
                    early.store(true, Ordering::Relaxed);
                }
            });
            assert!(taken.iter().all(|t| t.load(Ordering::Relaxed) == 1), "round {round}");
            assert!(!early.load(Ordering::Relaxed), "round {round}: a thread passed the barrier early");
        }
    }

    /// Whether a thread of this process runs or could run: 'R', as the system says it.
    #[cfg(target_os = "linux")]
    fn is_awake(thread: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        stat.rsplit(')').next().unwrap().trim_start().starts_with('R')
    }

    /// Which threads of the system the pool's own are.
    #[cfg(target_os = "linux")]
    fn system_threads(pool: &mut Pool) -> Vec<i32> {
        let ids: Vec<AtomicU32> = (0..pool.threads()).map(|_| AtomicU32::new(0)).collect();
        // SAFETY: asking for a thread's number has no preconditions.
        pool.run(|worker| ids[worker.index].store(unsafe { libc::gettid() } as u32, Ordering::Relaxed));
        ids[1..].iter().map(|id| id.load(Ordering::Relaxed) as i32).collect()
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn threads_without_work_sleep_and_wake_again() {
        const PATIENCE: Duration = Duration::from_secs(20);
        const QUIET: Duration = Duration::from_millis(20);
        let mut pool = Pool::new(3);
        let threads = system_threads(&mut pool);
        for round in 0..20 {
            let deadline = Instant::now() + PATIENCE;
            let mut asleep = Instant::now();
            // All at once, and not for a moment only.
            while asleep.elapsed() < QUIET {
                assert!(Instant::now() < deadline, "round {round}: a thread without work does not sleep");
                if threads.iter().any(|&thread| is_awake(thread)) {
                    asleep = Instant::now();
                }
            }
            assert_eq!(system_threads(&mut pool), threads, "round {round}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn threads_run_on_their_cores_and_the_caller_anywhere() {
        let cpu = || {
            // SAFETY: asking where this thread runs has no preconditions.
            unsafe { libc::sched_getcpu() }
        };
        let bound = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let allowed = status.lines().find(|line| line.starts_with("Cpus_allowed_list:"));
            allowed.unwrap().to_owned()
        };
        let (here, free) = (cpu() as usize, bound());
        let mut pool = Pool::placed(3, Some(vec![Core::from([here]); 3]));
        let seen: Vec<std::sync::Mutex<String>> = (0..3).map(|_| Default::default()).collect();
        pool.run(|worker| *seen[worker.index].lock().unwrap() = bound());
        let seen: Vec<String> = seen.into_iter().map(|seen| seen.into_inner().unwrap()).collect();
        let own = format!("Cpus_allowed_list:\t{here}");
        assert_eq!(seen, [free, own.clone(), own]);
    }

    #[test]
    fn a_job_that_comes_as_threads_fall_asleep_is_done() {
        let mut pool = Pool::new(3);
        let done = AtomicUsize::new(0);
        for round in 0..400 {
            let pause = SPIN_TIME_MAX * (80 + round % 40) / 100;
            let since = Instant::now();
            while since.elapsed() < pause {
                std::thread::yield_now();
            }
            pool.run(|_| _ = done.fetch_add(1, Ordering::Relaxed));
        }
        assert_eq!(done.load(Ordering::Relaxed), 400 * 3);
    }

    #[test]
    fn shares_cover_all_units() {
        for count in 1..5 {
            let mut pool = Pool::new(count);
            let done: Vec<AtomicUsize> = (0..13).map(|_| AtomicUsize::new(0)).collect();
            pool.run(|worker| {
                for unit in worker.share(13) {
                    done[unit].fetch_add(1, Ordering::Relaxed);
                }
            });
            assert!(done.iter().all(|d| d.load(Ordering::Relaxed) == 1));
        }
    }
}
