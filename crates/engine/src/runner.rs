//! The seam between deciding (scheduler, sequences, sampling) and computing (a model on a device).

use crate::batch::Batch;
use crate::limits::KV_BLOCK_TOKENS;
use crate::sample::{Change, Chunk};
use serde::{Deserialize, Serialize};

/// A loaded model with its KV pool: runs one batch at a time and allocates nothing while doing so.
pub trait Runner: Send {
    /// Facts that the scheduler needs.
    fn facts(&self) -> RunnerFacts;

    /// Computes the batch: writes KV for every row, and logits for `batch.logit_rows`.
    fn forward(&mut self, batch: &Batch) -> Result<(), RunnerError>;

    /// As `forward`, but a device that works by itself need not be done before `finish`. Until then only `change` may be called.
    fn begin(&mut self, batch: &Batch) -> Result<(), RunnerError> {
        self.forward(batch)
    }

    /// Waits for what was begun.
    fn finish(&mut self) -> Result<(), RunnerError> {
        Ok(())
    }

    /// Logits of the `index`-th entry of the last batch's `logit_rows`, (vocab). The sampler works in place.
    fn logits(&mut self, index: usize) -> &mut [f32];

    /// Changes the `index`-th logits in place: all that is told of them afterwards is of the changed ones.
    fn change(&mut self, index: usize, change: &Change<'_>) {
        change.apply(self.logits(index));
    }

    /// The token with the largest of these logits, the lowest id of equals, if the device tells it and they make sense.
    fn best(&mut self, _index: usize) -> Option<u32> {
        None
    }

    /// What the `index`-th logits weigh, `e^((logit - best) * scale)`, by chunks and to the bit as the sampler would find it;
    /// and their best. Where the device tells nothing, or they make no sense, the sampler looks at all of them.
    fn weigh(&mut self, _index: usize, _scale: f32, _chunks: &mut Vec<Chunk>) -> Option<f32> {
        None
    }

    /// The `index`-th logits as `logits` has them, but only those of the `wanted` chunks need to be there.
    fn chunks_of_logits(&mut self, index: usize, _wanted: &[u32]) -> &mut [f32] {
        self.logits(index)
    }

    /// Nothing is to be computed now: a device that runs ahead may stop.
    fn rest(&mut self) {}

    /// Copies one KV block over another, in every layer: copy-on-write.
    fn copy_block(&mut self, from: u32, to: u32);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerFacts {
    pub vocab: usize,
    pub context: usize,   // tokens in one sequence, at most
    pub kv_blocks: usize, // blocks in the pool
}

impl RunnerFacts {
    /// Tokens that one sequence can have: as many as the model and the whole pool allow.
    pub fn sequence_tokens_max(&self) -> usize {
        self.context.min(self.kv_blocks.saturating_mul(KV_BLOCK_TOKENS))
    }
}

/// The device failed: the worker that holds it must be replaced.
#[derive(Debug, thiserror::Error)]
#[error("the device failed: {0}")]
pub struct RunnerError(pub String);
