//! A runner that computes all it is asked for, and then says what it is told to say.

use flint_engine::batch::Batch;
use flint_engine::runner::{Runner, RunnerError, RunnerFacts};
use std::sync::{Arc, Mutex, PoisonError};

/// What is to be said: all tokens of the one sequence that runs, by position; empty: what the model wants.
#[derive(Clone, Default)]
pub struct Told(Arc<Mutex<Vec<u32>>>);

impl Told {
    pub fn set(&self, tokens: Vec<u32>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = tokens;
    }

    fn token(&self, position: u32) -> Option<u32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(position as usize).copied()
    }
}

pub struct Forced<R> {
    pub runner: R,
    pub told: Told,
    pub next: Vec<u32>, // (logit rows) the position that follows each
}

impl<R: Runner> Runner for Forced<R> {
    fn facts(&self) -> RunnerFacts {
        self.runner.facts()
    }

    fn forward(&mut self, batch: &Batch) -> Result<(), RunnerError> {
        self.next.clear();
        self.next.extend(batch.logit_rows.iter().map(|&row| batch.positions[row as usize] + 1));
        self.runner.forward(batch)
    }

    fn logits(&mut self, index: usize) -> &mut [f32] {
        let logits = self.runner.logits(index);
        if let Some(token) = self.told.token(self.next[index]) {
            logits.fill(0.0);
            logits[token as usize] = 1.0;
        }
        logits
    }

    fn copy_block(&mut self, from: u32, to: u32) {
        self.runner.copy_block(from, to);
    }
}
