//! What the host has to know to choose tokens, found on the card: the likeliest of each row, and what its logits weigh, once
//! they are as the host wants them. The logits themselves travel only if the host asks for them.

use super::super::{Bytes, Card, CudaError, Doing};
use super::buffer::{Buffer, Pinned};
use super::kernels::{Grid, arg};
use super::wishes::Wishes;
use super::{Cuda, Way};
use crate::limits::BATCH_LOGIT_ROWS_MAX;
use crate::sample::{CHUNK, Change, Chunk};
use cudarc::driver::result;

pub const PARTS: usize = 32; // of a row: each has its likeliest
const BEST_THREADS: usize = 256;
const WEIGH_THREADS: usize = 256;
const WEIGH_CHUNKS: usize = 16; // of a block
const RANK_WORDS: usize = 2;
const RANKS_BYTES: usize = PARTS * RANK_WORDS * 4; // of a row
const CHANGE_THREADS: usize = 128;
const INFINITY_ORDER: u32 = f32::INFINITY.to_bits() | 1 << 31;
const NEGATIVE_INFINITY_ORDER: u32 = !f32::NEG_INFINITY.to_bits();

pub struct Choice {
    ranks: Bytes,   // (rows, PARTS)
    host: Pinned,   // the same, once the stream is done
    rows: usize,    // of the last batch
    behind: bool,   // the stream has to be waited for before the host's are looked at
    wishes: Wishes, // what was to be changed
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
        let ranks = card.zeros(BATCH_LOGIT_ROWS_MAX * RANKS_BYTES)?;
        let host = Pinned::new(card, ranks.len() / 4)?;
        let wishes = Wishes::default();
        Ok(Choice { ranks, host, rows: 0, behind: false, wishes, weighed: None, scale: None })
    }

    /// A batch begins: nothing is known of its logits. Nothing of the one before is under way.
    pub fn forget(&mut self) {
        self.told(0);
        self.wishes.forget();
    }

    /// The ranks of so many rows are on their way.
    pub fn told(&mut self, rows: usize) {
        self.rows = if rows <= BATCH_LOGIT_ROWS_MAX { rows } else { 0 };
        (self.behind, self.scale) = (false, None);
    }

    /// Whether nobody has looked for likeliest tokens on the card.
    pub fn is_blank(&self) -> bool {
        self.rows == 0
    }

    /// Whether the ranks of some row are still on their way: whoever asks waits for the stream.
    pub fn take_behind(&mut self) -> bool {
        std::mem::take(&mut self.behind)
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
    /// Where the likeliest tokens of the rows are to be written, on both sides.
    pub(super) fn ranks(&self) -> (u64, u64) {
        (self.choice.ranks.address, self.choice.host.address())
    }

    /// Finds the likeliest tokens of the first `rows` rows of logits, which the host knows after the next wait.
    pub(super) fn find_best(&mut self, logits: u64, vocab: usize, rows: usize) -> Result<(), CudaError> {
        self.choice.told(rows);
        self.rank(logits, vocab, 0, self.choice.rows)
    }

    /// Finds those of `count` rows from the `first`-th on.
    fn rank(&self, logits: u64, vocab: usize, first: usize, count: usize) -> Result<(), CudaError> {
        let (width, logits) = (vocab as i32, logits + (first * vocab * 4) as u64);
        let at = (first * RANKS_BYTES) as u64;
        let (ranks, host) = (self.choice.ranks.address + at, self.choice.host.address() + at);
        let grid = Grid { blocks: (PARTS, count, 1), threads: BEST_THREADS };
        let args = [arg(&logits), arg(&width), arg(&ranks), arg(&host)];
        // SAFETY: the arguments of `best`; there are logits of these rows, and room for their ranks on both sides, of which the
        // host looks at its own when the stream is done.
        unsafe { self.kernels.best.launch(&self.card, grid, args) }
    }

    /// Changes a row on the card, and finds its likeliest token anew. Not if the host has the row. Whether it was done is told.
    pub(super) fn try_change(
        &mut self,
        logits: &mut Buffer,
        row: usize,
        change: &Change<'_>,
    ) -> Result<bool, CudaError> {
        self.bring_logits();
        if self.decoded_alone && self.choice.is_blank() {
            self.choice.told(1);
        }
        if row >= self.choice.rows || !logits.is_on_card(row) {
            return Ok(false);
        }
        let (address, vocab) = (logits.lies(), logits.width);
        let wish = self.choice.wishes.put(&self.card, change)?;
        let (at, width) = (address + (row * vocab * 4) as u64, vocab as i32);
        let strikers = if wish.allowed == 0 { 0 } else { vocab.div_ceil(32).div_ceil(CHANGE_THREADS) };
        let blocks = strikers + change.shifts.len().div_ceil(CHANGE_THREADS);
        let args = [
            arg(&at),
            arg(&width),
            arg(&wish.allowed),
            arg(&wish.words),
            arg(&wish.shifts),
            arg(&wish.count),
        ];
        // SAFETY: the arguments of `change`; there are logits of the row, and the host leaves the wish where it is until the
        // stream is done. No launch that still writes the row runs: what follows it waits.
        unsafe { self.kernels.change.launch(&self.card, Grid::rows(blocks, CHANGE_THREADS), args) }?;
        self.rank(address, vocab, row, 1)?;
        logits.changed_on_card(row);
        (self.choice.behind, self.choice.scale) = (true, None);
        Ok(true)
    }

    pub(super) fn try_best(&mut self, logits: &Buffer, row: usize) -> Result<Option<u32>, CudaError> {
        if !logits.is_on_card(row) {
            return Ok(None);
        }
        if self.choice.take_behind() {
            self.card.finish()?;
        }
        Ok(match &self.alone {
            Way::On(alone) if self.decoded_alone && self.choice.is_blank() => {
                alone.best().filter(|_| row == 0)
            }
            _ => self.choice.largest(row).map(|(_, token)| token),
        })
    }

    /// What a row of logits weighs. All rows are weighed at once: mostly they are asked for with one temperature.
    pub(super) fn try_weigh(
        &mut self,
        logits: &Buffer,
        row: usize,
        scale: f32,
        chunks: &mut Vec<Chunk>,
    ) -> Result<Option<f32>, CudaError> {
        self.bring_logits();
        if !logits.is_on_card(row) {
            return Ok(None);
        }
        let (address, vocab) = (logits.lies(), logits.width);
        if self.decoded_alone && self.choice.is_blank() {
            self.find_best(address, vocab, 1)?;
        }
        let (rows, count) = (self.choice.rows, vocab.div_ceil(CHUNK));
        let (ranks, known) = (self.choice.ranks.address, self.choice.scale == Some(scale));
        let behind = self.choice.take_behind();
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
        }
        if behind || !known {
            self.card.finish()?;
        }
        self.choice.scale = Some(scale);
        let Some((best, _)) = self.choice.largest(row) else { return Ok(None) };
        let Some(weighed) = &self.choice.weighed else { return Ok(None) };
        let of_row = &weighed.host.values()[row * count * 2..][..count * 2];
        chunks.clear();
        chunks.extend(of_row.chunks_exact(2).map(|pair| Chunk { sum: pair[0], max: pair[1] }));
        Ok(Some(best))
    }

    /// What the last batch may have left out is made up for.
    pub(super) fn bring_logits(&mut self) {
        let done = match &mut self.alone {
            Way::On(alone) if self.decoded_alone => alone.bring_logits(),
            _ => self.bring_owed_logits(),
        };
        self.note(done);
    }
}
