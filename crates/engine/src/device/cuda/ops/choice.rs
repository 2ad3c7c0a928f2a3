//! What the host has to know to choose tokens, found on the card: the likeliest of each row, and what its logits weigh. The
//! logits themselves travel only if the host asks for them.

use super::super::{Bytes, Card, CudaError, Doing};
use super::buffer::{Buffer, Pinned};
use super::kernels::{Grid, arg};
use super::{Cuda, Way};
use crate::limits::BATCH_LOGIT_ROWS_MAX;
use crate::sample::{CHUNK, Chunk};
use cudarc::driver::result;

const PARTS: usize = 16; // of a row: each has its likeliest
const BEST_THREADS: usize = 512;
const WEIGH_THREADS: usize = 256;
const WEIGH_CHUNKS: usize = 16; // of a block
const RANK_WORDS: usize = 2;
const INFINITY_ORDER: u32 = f32::INFINITY.to_bits() | 1 << 31;
const NEGATIVE_INFINITY_ORDER: u32 = !f32::NEG_INFINITY.to_bits();

pub struct Choice {
    ranks: Bytes, // (rows, PARTS)
    host: Pinned, // the same, once the stream is done
    rows: usize,  // of the last batch
    weighed: Option<Weighed>,
    scale: Option<f32>, // that the last batch was weighed by
}

/// Sums and maxima of all chunks, on both sides.
struct Weighed {
    card: Bytes, // (rows, chunks, 2)
    host: Pinned,
}

impl Choice {
    pub fn new(card: &Card) -> Result<Choice, CudaError> {
        let words = BATCH_LOGIT_ROWS_MAX * PARTS * RANK_WORDS;
        let (ranks, host) = (card.zeros(words * 4)?, Pinned::new(card, words)?);
        Ok(Choice { ranks, host, rows: 0, weighed: None, scale: None })
    }

    /// A batch begins: nothing is known of its logits.
    pub fn forget(&mut self) {
        self.told(0);
    }

    /// The ranks of so many rows are on their way.
    pub fn told(&mut self, rows: usize) {
        self.rows = if rows <= BATCH_LOGIT_ROWS_MAX { rows } else { 0 };
        self.scale = None;
    }

    /// The largest logit of a row and its token, the first of equals; none if some logit is no number, or none is finite.
    fn largest(&self, row: usize) -> Option<(f32, u32)> {
        let words = self.host.values().chunks_exact(PARTS * RANK_WORDS).take(self.rows).nth(row)?;
        let ranks = words.chunks_exact(RANK_WORDS).map(|rank| (rank[1].to_bits(), rank[0].to_bits()));
        let (order, token) = ranks.max()?;
        let bits = if order >> 31 == 1 { order & 0x7FFF_FFFF } else { !order };
        let sound = (NEGATIVE_INFINITY_ORDER + 1..INFINITY_ORDER).contains(&order);
        sound.then_some((f32::from_bits(bits), !token))
    }

    pub fn best(&self, row: usize) -> Option<u32> {
        self.largest(row).map(|(_, token)| token)
    }

    /// Room for the chunks of all rows.
    fn room(&mut self, card: &Card, words: usize) -> Result<&mut Weighed, CudaError> {
        let held = match self.weighed.take() {
            Some(held) if held.card.len() >= words * 4 => held,
            _ => Weighed { card: card.zeros(words * 4)?, host: Pinned::new(card, words)? },
        };
        Ok(self.weighed.insert(held))
    }
}

impl Cuda {
    /// Finds the likeliest tokens of the first `rows` rows of logits.
    pub(super) fn find_best(&mut self, logits: u64, vocab: usize, rows: usize) -> Result<(), CudaError> {
        self.choice.told(rows);
        if self.choice.rows == 0 {
            return Ok(());
        }
        let (width, ranks) = (vocab as i32, self.choice.ranks.address);
        let grid = Grid { blocks: (PARTS, rows, 1), threads: BEST_THREADS };
        // SAFETY: the arguments of `best`; there are logits of these rows, and room for their ranks on both sides.
        unsafe {
            self.kernels.best.launch(&self.card, grid, [arg(&logits), arg(&width), arg(&ranks)])?;
            let host = &mut self.choice.host.values_mut()[..rows * PARTS * RANK_WORDS];
            result::memcpy_dtoh_async(host, ranks, self.card.stream.cu_stream())
        }
        .doing("copying from the card")
    }

    /// What a row of logits weighs. All rows are weighed at once: mostly they are asked for with one temperature.
    pub(super) fn try_weigh(
        &mut self,
        logits: &Buffer,
        row: usize,
        scale: f32,
        chunks: &mut Vec<Chunk>,
    ) -> Result<Option<f32>, CudaError> {
        let (address, vocab) = (logits.lies(), logits.width);
        if self.decoded_alone && self.choice.rows == 0 {
            if self.runs_ahead() {
                return Ok(None); // the card is busy with what comes next
            }
            self.find_best(address, vocab, 1)?;
            self.card.finish()?;
        }
        let Some((best, _)) = self.choice.largest(row) else { return Ok(None) };
        let (rows, count) = (self.choice.rows, vocab.div_ceil(CHUNK));
        let (ranks, known) = (self.choice.ranks.address, self.choice.scale == Some(scale));
        let weighed = self.choice.room(&self.card, BATCH_LOGIT_ROWS_MAX * count * 2)?;
        if !known {
            let (width, to) = (vocab as i32, weighed.card.address);
            let args = [arg(&address), arg(&width), arg(&ranks), arg(&scale), arg(&to)];
            let blocks = (count.div_ceil(WEIGH_CHUNKS), rows, 1);
            let grid = Grid { blocks, threads: WEIGH_THREADS };
            // SAFETY: the arguments of `weigh`; there are logits and ranks of these rows, and room for their chunks on both sides.
            unsafe {
                self.kernels.weigh.launch(&self.card, grid, args)?;
                let host = &mut weighed.host.values_mut()[..rows * count * 2];
                result::memcpy_dtoh_async(host, to, self.card.stream.cu_stream())
            }
            .doing("copying from the card")?;
            self.card.finish()?;
        }
        let of_row = &weighed.host.values()[row * count * 2..][..count * 2];
        chunks.clear();
        chunks.extend(of_row.chunks_exact(2).map(|pair| Chunk { sum: pair[0], max: pair[1] }));
        self.choice.scale = Some(scale);
        Ok(Some(best))
    }

    fn runs_ahead(&self) -> bool {
        matches!(&self.alone, Way::On(alone) if alone.runs_ahead())
    }
}
