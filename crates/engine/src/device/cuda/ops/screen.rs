//! The likeliest tokens of some rows without reading all of the head: its rows rounded to 4 bits say which tokens may be it
//! (`screen.cu`). Whoever wants all logits of such a batch after all has them computed then.

use super::super::{Bytes, CudaError};
use super::alone::repack::{Source, THREADS};
use super::alone::{SCREENED_BYTES_MIN, SPARE_BYTES};
use super::choice::PARTS;
use super::kernels::{Grid, RepackKernels, arg};
use super::layout::{Layout, TILE_ROWS, UNIT_COLS};
use super::prepare::Prepared;
use super::product::{Target, Weights};
use super::weights::padded;
use super::{Cuda, Matrix, RANGES};
use crate::batch::Batch;

/// Threads of a warp.
const LANES: usize = 32;
/// The most rows that are looked through at once.
const ROWS_MAX: usize = 16;

/// A head, rounded.
pub struct Screen {
    head: Matrix,  // as it is
    coarse: Bytes, // (vocab, cols) levels of 4 bits
    steps: Bytes,  // (vocab) between the levels of a row
    bounds: Bytes, // (rows, blocks)
    owed: Option<Owed>,
}

/// Logits that the last batch left out.
struct Owed {
    inputs: Prepared,
    out: u64,
    rows: usize,
}

/// `Screen` of `screen.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Args {
    head: Weights,
    coarse: u64,
    steps: u64,
    x: Prepared,
    uppers: u64,
    bounds: u64,
    ranks: u64,
    host: u64,
    rows: i32,
    blocks: i32,
}

impl Screen {
    /// Bytes of shared memory for this many rows.
    fn shared_bytes(&self, rows: usize) -> usize {
        rows * (padded(self.head.cols) + 8) * 2
    }
}

impl Cuda {
    /// Rounds the head, if that is worth it and there is memory.
    pub fn screen_head(&mut self, head: &Matrix) -> Result<(), CudaError> {
        self.screen = None;
        let [part] = &head.parts[..] else { return Ok(()) };
        let bytes = part.rows.next_multiple_of(TILE_ROWS) * padded(head.cols) / 2;
        let known = matches!(part.plan.layout, Layout::Levels8 | Layout::Floats);
        if !known || bytes < SCREENED_BYTES_MIN || bytes + SPARE_BYTES > self.card.memory()?.0 {
            return Ok(());
        }
        let past = self.kernels.screening.ahead * TILE_ROWS * UNIT_COLS / 2;
        let (coarse, steps) = (self.card.zeros(bytes + past)?, self.card.zeros(4 * part.rows)?);
        let round = RepackKernels::load(&self.card, &self.folder)?.round;
        let source = Source::of(part, head.cols, 1);
        let args = [arg(&source), arg(&steps.address), arg(&coarse.address)];
        // SAFETY: the arguments of `round_rows`; the head, the rounded rows and their steps have the same rows.
        unsafe { round.launch(&self.card, Grid::rows(part.rows, THREADS), args) }?;
        self.card.finish()?;
        self.screen = Some(Screen {
            head: Matrix { parts: vec![part.clone()], rows: head.rows, cols: head.cols },
            coarse,
            steps,
            bounds: self.card.zeros(ROWS_MAX * self.card.multiprocessors * 4)?,
            owed: None,
        });
        Ok(())
    }

    /// Whether the likeliest tokens of a batch are found so.
    pub(super) fn screens(&self, batch: &Batch) -> bool {
        let rows = batch.logit_rows.len();
        let fits = |screen: &Screen| screen.shared_bytes(rows) <= self.kernels.several_bytes_max;
        batch.greedy && (1..=ROWS_MAX).contains(&rows) && self.screen.as_ref().is_some_and(fits)
    }

    /// The likeliest tokens of the rows that products read: what lies at `out` then are no logits.
    pub(super) fn find_screened(&mut self, inputs: Prepared, out: u64, rows: usize) -> Result<(), CudaError> {
        self.choice.told(rows);
        let Some(screen) = &self.screen else { return Ok(()) };
        let [part] = &screen.head.parts[..] else { return Ok(()) };
        let (ranks, host) = self.ranks();
        let args = Args {
            head: Target { part, bias: 0, out: 0 }.weights(),
            coarse: screen.coarse.address,
            steps: screen.steps.address,
            x: inputs,
            uppers: out,
            bounds: screen.bounds.address,
            ranks,
            host,
            rows: rows as i32,
            blocks: self.card.multiprocessors as i32,
        };
        let screening = &self.kernels.screening;
        let first = &screening.rows[usize::from(rows > 8)];
        let look = if part.plan.layout == Layout::Levels8 { &screening.levels8 } else { &screening.floats };
        let blocks = Grid::rows(self.card.multiprocessors, screening.threads);
        let parts = Grid { blocks: (PARTS, rows, 1), threads: RANGES * LANES };
        // SAFETY: `Args` is the kernels' struct; there is room for the bounds of these rows and for what is found, of which the
        // host looks at its own when the stream is done.
        unsafe {
            first.launch_with(&self.card, blocks, screen.shared_bytes(rows), [arg(&args)])?;
            look.launch(&self.card, parts, [arg(&args)])
        }
    }

    /// The last batch left out its logits. They can be had as long as the rows that products read are there.
    pub(super) fn owe_logits(&mut self, rows: usize, out: u64) -> Result<(), CudaError> {
        let Some(cols) = self.screen.as_ref().map(|screen| screen.head.cols) else { return Ok(()) };
        let inputs = self.inputs(rows, cols)?;
        self.screen.iter_mut().for_each(|screen| screen.owed = Some(Owed { inputs, out, rows }));
        Ok(())
    }

    pub(super) fn forget_owed_logits(&mut self) {
        self.screen.iter_mut().for_each(|screen| screen.owed = None);
    }

    /// The logits that the last batch left out, if it did.
    pub(super) fn bring_owed_logits(&mut self) -> Result<(), CudaError> {
        let owed = self.screen.as_mut().and_then(|screen| screen.owed.take());
        let (Some(Owed { inputs, out, rows }), Some(screen)) = (owed, &self.screen) else { return Ok(()) };
        self.product(&screen.head, inputs, rows, None, out, false)
    }
}
