//! What the kernels must know of a batch: where its rows stand, and the angles that they are turned by.

use super::super::{Bytes, Card, CudaError, Doing};
use super::buffer::Pinned;
use crate::batch::Batch;
use crate::limits::{BATCH_SEQUENCES_MAX, KV_BLOCK_TOKENS};
use crate::model::config::{Rope, RopePairs};
use cudarc::driver::result;

/// Words on the card, each section at a place that is the same for all batches of so many rows.
pub struct Step {
    host: Pinned,
    card: Bytes,
    rows_max: usize,
    rows: usize,       // of the batch
    half: usize,       // head_dim / 2
    blocks_max: usize, // words for block tables
    pub adjacent: bool,
    pub chunks: usize, // of 128 positions, at least those of the longest sequence
}

/// Words of a span: first row, rows, position, first block of its table.
const SPAN_WORDS: usize = 4;
const SPANS_WORDS: usize = SPAN_WORDS * BATCH_SEQUENCES_MAX;
/// What is told of chunks is at most so many parts more.
const CHUNK_STEPS: usize = 8;
/// Positions that attention sums up by themselves.
pub const CHUNK_TOKENS: usize = 128;

impl Step {
    pub fn new(card: &Card, rows_max: usize, half: usize, blocks_max: usize) -> Result<Step, CudaError> {
        let words = SPANS_WORDS + 4 * rows_max + 2 * rows_max * half + blocks_max;
        Ok(Step {
            host: Pinned::new(card, words)?,
            card: card.zeros(words * 4)?,
            rows_max,
            rows: 0,
            half,
            blocks_max,
            adjacent: false,
            chunks: 0,
        })
    }

    /// Whether a batch has room.
    pub fn holds(&self, rope: &Rope, batch: &Batch) -> bool {
        batch.rows() <= self.rows_max
            && rope.frequencies.len() == self.half
            && batch.blocks.len() <= self.blocks_max
            && batch.spans.len() <= BATCH_SEQUENCES_MAX
    }

    fn positions_at(&self) -> usize {
        SPANS_WORDS
    }

    fn places_at(&self) -> usize {
        self.positions_at() + self.rows_max
    }

    fn logit_rows_at(&self) -> usize {
        self.places_at() + self.rows_max
    }

    fn tokens_at(&self) -> usize {
        self.logit_rows_at() + self.rows_max
    }

    fn angles_at(&self) -> usize {
        self.tokens_at() + self.rows_max
    }

    fn blocks_at(&self) -> usize {
        self.angles_at() + 2 * self.rows * self.half
    }

    fn address(&self, word: usize) -> u64 {
        self.card.address + 4 * word as u64
    }

    pub fn spans(&self) -> u64 {
        self.card.address
    }

    pub fn positions(&self) -> u64 {
        self.address(self.positions_at())
    }

    pub fn places(&self) -> u64 {
        self.address(self.places_at())
    }

    pub fn logit_rows(&self) -> u64 {
        self.address(self.logit_rows_at())
    }

    pub fn tokens(&self) -> u64 {
        self.address(self.tokens_at())
    }

    pub fn angles(&self) -> u64 {
        self.address(self.angles_at())
    }

    pub fn blocks(&self) -> u64 {
        self.address(self.blocks_at())
    }

    /// Brings a batch to the card. What the card still copies of the one before must be done.
    pub fn begin(&mut self, card: &Card, rope: &Rope, batch: &Batch) -> Result<(), CudaError> {
        self.adjacent = rope.pairs == RopePairs::Adjacent;
        self.rows = batch.rows();
        let reach = |span: &crate::batch::Span| span.position + span.rows.len();
        let chunks = batch.spans.iter().map(reach).max().unwrap_or(0).div_ceil(CHUNK_TOKENS);
        self.chunks = in_steps(chunks);
        let (positions, places, logits) = (self.positions_at(), self.places_at(), self.logit_rows_at());
        let (tokens, angles, blocks) = (self.tokens_at(), self.angles_at(), self.blocks_at());
        let words = self.host.values_mut();
        for (index, span) in batch.spans.iter().enumerate() {
            let of = [span.rows.start, span.rows.len(), span.position, span.blocks.start];
            put(&mut words[index * SPAN_WORDS..], of.map(|word| word as u32));
            let table = &batch.blocks[span.blocks.clone()];
            let place = span.rows.clone().map(|row| {
                let position = span.position + row - span.rows.start;
                table[position / KV_BLOCK_TOKENS] * KV_BLOCK_TOKENS as u32
                    + (position % KV_BLOCK_TOKENS) as u32
            });
            put(&mut words[places + span.rows.start..], place);
        }
        put(&mut words[positions..], batch.positions.iter().copied());
        put(&mut words[logits..], batch.logit_rows.iter().copied());
        put(&mut words[tokens..], batch.tokens.iter().copied());
        put(&mut words[blocks..], batch.blocks.iter().copied());
        for (row, &position) in batch.positions.iter().enumerate() {
            let at = angles + 2 * row * self.half;
            if row > 0 && position == batch.positions[row - 1] {
                words.copy_within(at - 2 * self.half..at, at);
            } else {
                put_angles(&mut words[at..], rope, position);
            }
        }
        let words = &self.host.values()[..blocks + batch.blocks.len()];
        // SAFETY: both sides have these words, and live until the next batch begins.
        unsafe { result::memcpy_htod_async(self.card.address, words, card.stream.cu_stream()) }
            .doing("copying to the card")
    }
}

/// Cosine and sine of each pair of dims.
fn put_angles(to: &mut [f32], rope: &Rope, position: u32) {
    for (to, frequency) in to.chunks_exact_mut(2).zip(&rope.frequencies) {
        let (sin, cos) = (position as f32 * frequency).sin_cos();
        (to[0], to[1]) = (cos * rope.magnitude, sin * rope.magnitude);
    }
}

/// So many chunks or a few more, so that batches of many depths launch the same.
fn in_steps(chunks: usize) -> usize {
    chunks.next_multiple_of((chunks.next_power_of_two() / CHUNK_STEPS).max(1))
}

/// Whole numbers among the floats.
fn put(to: &mut [f32], words: impl IntoIterator<Item = u32>) {
    to.iter_mut().zip(words).for_each(|(to, word)| *to = f32::from_bits(word));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_grow_by_an_eighth() {
        assert_eq!([0, 1, 3, 8, 9, 16, 17, 33, 64].map(in_steps), [0, 1, 3, 8, 10, 16, 20, 40, 64]);
    }
}
