//! The steady decode step makes no heap allocation, nor does telling what it did.

mod common;

use common::{engine, generate, options, request};
use flint_engine::device::scripted::Script;
use flint_engine::link::encode_frame;
use flint_engine::message::{Base, Generate};
use flint_engine::sample::Sampling;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches only a thread-local number
// that needs neither allocation nor a destructor.
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
    let (mut events, mut frames) = (Vec::with_capacity(64), Vec::with_capacity(4096));
    for _ in 0..8 {
        engine.step(&mut events).unwrap();
        events.clear();
    }
    let before = ALLOCATIONS.get();
    let mut tokens = 0;
    for _ in 0..300 {
        engine.step(&mut events).unwrap();
        tokens += events.len();
        frames.clear();
        encode_frame(&events, &mut frames).unwrap();
        events.clear();
    }
    assert_eq!(tokens, 4 * 300, "all four sequences decode in every step");
    assert_eq!(ALLOCATIONS.get() - before, 0);
}

#[test]
fn the_counter_counts() {
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(vec![1u8; 100]));
    assert_eq!(ALLOCATIONS.get() - before, 1);
}
