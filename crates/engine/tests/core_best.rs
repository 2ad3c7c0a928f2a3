//! A device that knows the likeliest token itself is believed, is told what is to be changed before, and when nobody waits.

mod common;

use common::{request, run, tokens_of};
use flint_engine::batch::Batch;
use flint_engine::message::{Base, Command, SequenceId};
use flint_engine::runner::{Runner, RunnerError, RunnerFacts};
use flint_engine::sample::{Change, Sampling};
use flint_engine::step::Engine;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const VOCAB: usize = 8;
const BY_LOGITS: u32 = 2;
const BY_DEVICE: u32 = 5;
const BY_CHANGED: u32 = 6;

/// Its logits say one thing and it says another, so that it shows who was asked; where it heard of a change, a third.
struct Telling {
    logits: [f32; VOCAB],
    best: u32,
    computes: bool,
    rests: Arc<AtomicUsize>,
}

impl Runner for Telling {
    fn facts(&self) -> RunnerFacts {
        RunnerFacts { vocab: VOCAB, context: 256, kv_blocks: 8 }
    }

    fn forward(&mut self, _: &Batch) -> Result<(), RunnerError> {
        self.logits = [0.0; VOCAB];
        self.logits[BY_LOGITS as usize] = 50.0;
        self.best = BY_DEVICE;
        self.computes = true;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), RunnerError> {
        self.computes = false;
        Ok(())
    }

    fn change(&mut self, _: usize, change: &Change<'_>) {
        assert!(self.computes, "nobody waits for what can be changed at once");
        assert!(!change.is_empty());
        self.best = BY_CHANGED;
    }

    fn best(&mut self, _: usize) -> Option<u32> {
        assert!(!self.computes);
        Some(self.best)
    }

    fn rest(&mut self) {
        self.rests.fetch_add(1, Ordering::Relaxed);
    }

    fn logits(&mut self, _: usize) -> &mut [f32] {
        &mut self.logits
    }

    fn copy_block(&mut self, _: u32, _: u32) {}
}

fn engine() -> (Engine, Arc<AtomicUsize>) {
    let rests = Arc::new(AtomicUsize::new(0));
    (
        Engine::new(Box::new(Telling {
            logits: [0.0; VOCAB],
            best: 0,
            computes: false,
            rests: rests.clone(),
        })),
        rests,
    )
}

fn answer(sampling: Sampling) -> Vec<u32> {
    let (mut engine, _) = engine();
    let mut asked = request(1, Base::New, &[1, 1], 3);
    asked.sampling = sampling;
    engine.command(&Command::Generate(asked), &mut Vec::new());
    tokens_of(&run(&mut engine), 1)
}

#[test]
fn the_device_chooses_the_likeliest_of_what_it_was_told_to_change_meanwhile() {
    let greedy = Sampling::default;
    let cases = [
        (greedy(), BY_DEVICE),
        (Sampling { temperature: 0.5, ..greedy() }, BY_LOGITS),
        (Sampling { repetition_penalty: 1.01, ..greedy() }, BY_CHANGED),
        (Sampling { presence_penalty: 0.1, ..greedy() }, BY_CHANGED),
        (Sampling { bias: vec![(3, 1.0)], ..greedy() }, BY_CHANGED),
    ];
    for (sampling, token) in cases {
        let told = answer(sampling.clone());
        assert!(told.ends_with(&[token; 2]), "{sampling:?}: {told:?}");
    }
}

#[test]
fn an_idle_engine_lets_the_device_rest() {
    let (mut engine, rests) = engine();
    let mut events = Vec::new();
    engine.command(&Command::Generate(request(1, Base::New, &[1, 1], 40)), &mut events);
    (0..5).for_each(|_| _ = engine.step(&mut events).unwrap());
    assert_eq!(rests.load(Ordering::Relaxed), 0);
    engine.command(&Command::Cancel { sequence: SequenceId(1) }, &mut events);
    assert_eq!(rests.load(Ordering::Relaxed), 1);
    engine.command(&Command::Generate(request(2, Base::New, &[1], 2)), &mut events);
    run(&mut engine);
    assert!(rests.load(Ordering::Relaxed) > 1);
}
