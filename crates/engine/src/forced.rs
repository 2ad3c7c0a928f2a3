//! A runner that computes all it is asked for, and then says what it is told to say: for measuring on texts that are known.

use crate::batch::Batch;
use crate::runner::{Runner, RunnerError, RunnerFacts};
use crate::sample::{Change, Chunk};
use std::sync::{Arc, Mutex, PoisonError};

/// What is to be said: all tokens of the one sequence that runs, by position; empty: what the model wants.
#[derive(Debug, Clone, Default)]
pub struct Told(Arc<Mutex<Vec<u32>>>);

impl Told {
    pub fn set(&self, tokens: Vec<u32>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = tokens;
    }

    fn token(&self, position: u32) -> Option<u32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(position as usize).copied()
    }
}

/// A runner whose likeliest tokens are replaced: the same work is done for others.
pub struct Forced<R> {
    runner: R,
    told: Told,
    next: Vec<u32>, // (logit rows) the position that follows each
}

impl<R: Runner> Forced<R> {
    pub fn new(runner: R, told: Told) -> Forced<R> {
        Forced { runner, told, next: Vec::new() }
    }

    fn told(&self, index: usize) -> Option<u32> {
        self.told.token(*self.next.get(index)?)
    }
}

impl<R: Runner> Runner for Forced<R> {
    fn facts(&self) -> RunnerFacts {
        self.runner.facts()
    }

    fn forward(&mut self, batch: &Batch) -> Result<(), RunnerError> {
        self.begin(batch)?;
        self.finish()
    }

    fn begin(&mut self, batch: &Batch) -> Result<(), RunnerError> {
        self.next.clear();
        self.next.extend(batch.logit_rows.iter().map(|&row| batch.positions[row as usize] + 1));
        self.runner.begin(batch)
    }

    fn finish(&mut self) -> Result<(), RunnerError> {
        self.runner.finish()
    }

    /// What is told is said, whatever is changed.
    fn change(&mut self, index: usize, change: &Change<'_>) {
        self.runner.change(index, change);
    }

    fn logits(&mut self, index: usize) -> &mut [f32] {
        let told = self.told(index);
        let logits = self.runner.logits(index);
        if let Some(logit) = told.and_then(|token| logits.get_mut(token as usize)) {
            *logit = f32::MAX;
        }
        logits
    }

    fn best(&mut self, index: usize) -> Option<u32> {
        self.runner.best(index).map(|best| self.told(index).unwrap_or(best))
    }

    fn weigh(&mut self, index: usize, scale: f32, chunks: &mut Vec<Chunk>) -> Option<f32> {
        match self.told(index) {
            None => self.runner.weigh(index, scale, chunks),
            Some(_) => None, // its logits are others
        }
    }

    fn chunks_of_logits(&mut self, index: usize, wanted: &[u32]) -> &mut [f32] {
        self.runner.chunks_of_logits(index, wanted)
    }

    fn rest(&mut self) {
        self.runner.rest();
    }

    fn copy_block(&mut self, from: u32, to: u32) {
        self.runner.copy_block(from, to);
    }
}
