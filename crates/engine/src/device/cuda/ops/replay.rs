//! Batches of a shape that came before are one launch: what their operations launched was recorded.
//!
//! The first batch of a shape runs as it is and takes what memory it needs; the second is recorded; from then on the
//! operations launch nothing, and `finish` launches the record. Everything that differs between batches of a shape lies
//! in memory that `begin` fills.

use super::super::{Card, CudaError, Doing};
use crate::batch::Batch;
use cudarc::driver::CudaGraph;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use std::collections::HashMap;

/// Batches with more rows compute for longer than their launches take.
const ROWS_MAX: usize = 64;
/// Records that are kept; with more, all are made anew.
const RECORDS_MAX: usize = 128;

/// Batches that launch the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Shape {
    spans: Vec<usize>, // rows of each
    logit_rows: usize,
    screened: bool, // their likeliest tokens are found without all logits
    chunks: usize,
}

/// A graph, used by whoever has the device.
struct Record(CudaGraph);

// SAFETY: it is reached through the device alone, by one thread at a time.
unsafe impl Send for Record {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Direct,
    Record,
    Replay,
}

pub struct Replay {
    on: bool,
    mode: Mode,
    shape: Shape, // of this batch
    seen: HashMap<Shape, Option<Record>>,
    addresses: Vec<u64>, // of memory that records use
}

impl Replay {
    pub fn new(on: bool) -> Replay {
        Replay {
            on,
            mode: Mode::Direct,
            shape: Shape::default(),
            seen: HashMap::new(),
            addresses: Vec::new(),
        }
    }

    /// Decides what becomes of this batch. Records of other memory than `addresses` are worth nothing.
    pub fn begin(
        &mut self,
        batch: &Batch,
        (chunks, screened): (usize, bool),
        addresses: impl Iterator<Item = u64> + Clone,
    ) {
        self.mode = Mode::Direct;
        if !self.on || batch.rows() > ROWS_MAX {
            return;
        }
        if !addresses.clone().eq(self.addresses.iter().copied()) || self.seen.len() > RECORDS_MAX {
            self.seen.clear();
            self.addresses.clear();
            self.addresses.extend(addresses);
        }
        self.shape.spans.clear();
        self.shape.spans.extend(batch.spans.iter().map(|span| span.rows.len()));
        self.shape.logit_rows = batch.logit_rows.len();
        (self.shape.chunks, self.shape.screened) = (chunks, screened);
        match self.seen.get(&self.shape) {
            Some(Some(_)) => self.mode = Mode::Replay,
            Some(None) => self.mode = Mode::Record,
            None => _ = self.seen.insert(self.shape.clone(), None),
        }
    }

    /// The inputs are on the card: what is launched from now on is recorded, if it is to be.
    pub fn inputs_are_there(&self, card: &Card) -> Result<(), CudaError> {
        if self.mode != Mode::Record {
            return Ok(());
        }
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        card.stream.begin_capture(mode).doing("recording a batch")
    }

    /// Whether there is nothing to launch: the record will be.
    pub fn replays(&self) -> bool {
        self.mode == Mode::Replay
    }

    /// The last operation was called.
    pub fn end(&mut self, card: &Card) -> Result<(), CudaError> {
        let mode = std::mem::replace(&mut self.mode, Mode::Direct);
        if mode == Mode::Record {
            let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
            let graph = card.stream.end_capture(flags).doing("recording a batch")?;
            self.seen.insert(self.shape.clone(), graph.map(Record));
        }
        match self.seen.get(&self.shape) {
            Some(Some(record)) if mode != Mode::Direct => {
                record.0.launch().doing("launching a recorded batch")
            }
            _ => Ok(()),
        }
    }
}
