//! The steady decode step makes no heap allocation, nor does telling what it did.

mod common;
mod golden_data;

use common::{engine, generate, options, request};
use flint_engine::device::cpu::Cpu;
use flint_engine::device::scripted::Script;
use flint_engine::draft::Pace;
use flint_engine::limits::KV_BLOCK_TOKENS;
use flint_engine::link::encode_frame;
use flint_engine::load::ModelFile;
use flint_engine::message::{Base, Generate};
use flint_engine::model::Loaded;
use flint_engine::sample::Sampling;
use flint_engine::step::Engine;
use golden_data::{Prompt, Reference, files};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Those of the CPU device's own threads, whichever test they work for: only one test has any.
static POOL_ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

fn count() {
    ALLOCATIONS.with(|allocations| allocations.set(allocations.get() + 1));
    if is_pool_thread() {
        POOL_ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
    }
}

fn is_pool_thread() -> bool {
    let mut name = [0u8; 16];
    // SAFETY: the name of this thread goes into a buffer whose length is given.
    let failed =
        unsafe { libc::pthread_getname_np(libc::pthread_self(), name.as_mut_ptr().cast(), name.len()) };
    failed == 0 && name.starts_with(b"flint-cpu-")
}

/// Of this thread and of the CPU device's.
fn allocations() -> u64 {
    ALLOCATIONS.get() + POOL_ALLOCATIONS.load(Ordering::SeqCst)
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches only numbers that need neither
// allocation nor a destructor, and asks for the thread's name, which needs none either.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Steps until all sequences decode, then sees to it that many steps more allocate nothing.
fn check_steady(what: &str, engine: &mut Engine, sequences: usize, steps: usize) {
    let (mut events, mut frames) = (Vec::with_capacity(64), Vec::with_capacity(4096));
    for _ in 0..8 {
        engine.step(&mut events).unwrap();
        events.clear();
    }
    let before = allocations();
    let mut tokens = 0;
    for _ in 0..steps {
        engine.step(&mut events).unwrap();
        tokens += events.len();
        frames.clear();
        encode_frame(&events, &mut frames).unwrap();
        events.clear();
    }
    assert!(tokens >= sequences * steps, "{what}: all sequences decode in every step");
    assert_eq!(allocations() - before, 0, "{what}: allocations in {steps} steps");
}

#[test]
fn decoding_allocates_nothing() {
    let samplings = [
        Sampling::default(),
        Sampling { temperature: 1.0, seed: 1, ..Sampling::default() },
        Sampling { temperature: 0.8, top_k: 40, top_p: 0.9, min_p: 0.05, ..Sampling::default() },
        Sampling {
            repetition_penalty: 1.1,
            presence_penalty: 0.2,
            frequency_penalty: 0.1,
            bias: vec![(3, 1.5)],
            ..Sampling::default()
        },
    ];
    let mut engine = engine(options(Script::Noise));
    for (id, sampling) in (1..).zip(samplings) {
        let prompt: Vec<u32> = (0..70).map(|i| i * id as u32 % 256).collect();
        generate(&mut engine, Generate { sampling, ..request(id, Base::New, &prompt, 400) });
    }
    check_steady("scripted", &mut engine, 4, 300);
}

/// Guesses, some right and some wrong, beside a sequence that is not guessed.
#[test]
fn decoding_with_guesses_allocates_nothing() {
    // What is played repeats after 200 tokens; the prompts end with half of that, and an error.
    let cycle: Vec<u32> = (0..200).map(|i| i * i % 251).collect();
    let mut engine = engine(options(Script::Cycle(cycle.clone()))).with_pace(Pace::Flat);
    for id in 1..=3 {
        let mut prompt: Vec<u32> = cycle.iter().cycle().copied().take(330).collect();
        prompt[140] = 255;
        let references = vec![cycle.clone(); id as usize];
        let request = request(id, Base::New, &prompt, 1600);
        generate(&mut engine, Generate { references, speculate: id > 1, ..request });
    }
    check_steady("scripted, guessing", &mut engine, 3, 30);
    let stats = engine.stats();
    assert!(stats.rows_accepted > 400 && stats.rows_drafted > stats.rows_accepted, "{stats:?}");
}

fn cpu_engine(path: &Path, threads: usize, prompts: &[Prompt]) -> Engine {
    let file = ModelFile::open(path).unwrap();
    let blocks = prompts.len() * file.config.context / KV_BLOCK_TOKENS;
    let runner = Loaded::new(&file, Cpu::new(threads).unwrap(), blocks, &mut |_, _| ()).unwrap();
    let mut engine = Engine::new(Box::new(runner));
    for (id, prompt) in (1..).zip(prompts) {
        generate(&mut engine, request(id, Base::New, &prompt.tokens, 300));
    }
    engine
}

fn check_that_the_counter_sees_the_threads_of_the_device() {
    let before = POOL_ALLOCATIONS.load(Ordering::SeqCst);
    let allocate = || drop(std::hint::black_box(vec![1u8; 100]));
    std::thread::Builder::new().name("flint-cpu-1".into()).spawn(allocate).unwrap().join().unwrap();
    assert!(POOL_ALLOCATIONS.load(Ordering::SeqCst) > before);
}

/// Dense and mixture, exact and quantised, with sinks and windows; past 256 positions, where threads share one
/// row's attention.
#[test]
fn decoding_on_the_cpu_allocates_nothing() {
    check_that_the_counter_sees_the_threads_of_the_device();
    for name in ["llama", "qwen2", "qwen3", "qwen3-moe", "gpt-oss-mxfp4", "quantised", "quantised-moe"] {
        let Reference { prompts } = Reference::read(name);
        for (threads, sequences) in [(1, 1), (1, 4), (2, 1), (2, 4)] {
            let path = &files(name)[0];
            let what = format!("{}, {threads} threads, {sequences} sequences", path.display());
            let mut engine = cpu_engine(path, threads, &prompts[..sequences]);
            check_steady(&what, &mut engine, sequences, 200);
        }
    }
}

#[test]
fn the_counter_counts() {
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(vec![1u8; 100]));
    assert_eq!(ALLOCATIONS.get() - before, 1);
}
