//! One sequence that decodes alone: its tokens come from the decode step in one kernel (`cuda/decode.rs`), everything else
//! from the general path.
//!
//! The general path's cache is the only truth. The kernel has a second one with the same blocks, in its own order: what it
//! lacks is brought before a step, and each step writes to both. `book.rs` decides; this does it on the card.

mod book;
pub(super) mod repack;
mod stacked;

use super::super::compile::can_run;
use super::super::decode::Told;
use super::super::params::{Params, Start};
use super::super::{Build, Bytes, Card, CudaError, Decoder, Doing, Shape};
use super::attend::Cache;
use super::buffer::Buffer;
use super::kernels::RepackKernels;
use super::{Cuda, GIB};
use crate::batch::Batch;
use crate::model::Whole;
use crate::model::config::Config;
use book::{Ahead, Mirror, Next, One};
use repack::Repack;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};

/// Memory that stays free beside it.
pub const SPARE_BYTES: usize = 1 << 30;
/// Of the head rounded to four bits. A smaller one is soon read whole; and where x has few values that count, many of its rows
/// have to be looked at again.
pub const SCREENED_BYTES_MIN: usize = 32 << 20;
/// How often the host looks for a step's token before it asks whether the card still works.
const LOOKS: usize = 4096;

pub struct Alone {
    decoder: Decoder,
    params: Params,
    weight_bytes: usize,
    cache: Bytes,
    list: Bytes,    // blocks to bring
    table: Bytes,   // of the sequence
    held: Vec<u32>, // what `table` has
    mirror: Mirror,
    ahead: Ahead,
    missing: Vec<u32>,
    last: (u32, usize),     // token and position of the step that was begun last
    silent: bool,           // it leaves no logits
    awaited: Option<usize>, // the step that was begun for the last pass, until it is over
    best: Option<u32>,      // the likeliest token of the last pass, if that was one of these
    stopping: bool,         // the launch was told to end, and may not have yet
    pub steps: u64,         // that were taken
    pub begun: u64,         // that were launched
}

impl Alone {
    /// Fails if the card, the model's shape or formats, or the memory do not allow it.
    pub fn new(
        card: &Card,
        folder: &Path,
        model: &Whole<'_, Cuda>,
        config: &Config,
        paged: &Cache,
    ) -> Result<Alone, CudaError> {
        can_run(card)?;
        let mut shape = Shape::of(config, card.multiprocessors)?;
        shape.check()?;
        repack::check(&shape, model)?;
        shape.wide_stages = repack::wide_stages(&shape, model)?;
        let blocks = paged.blocks();
        let (weights, cache) = (repack::bytes(&shape, model)?, shape.cache_bytes(blocks));
        let (need, free) = (weights + cache + SPARE_BYTES, card.memory()?.0);
        if need > free {
            let problem = format!(
                "its weights and KV once more take {:.1} GiB, and {:.1} GiB are free",
                need as f64 / GIB,
                free as f64 / GIB
            );
            return Err(CudaError::Unsupported(problem));
        }
        let build = Build { cache: folder.into(), ..Build::default() };
        let repack = Repack { card, shape: &shape, kernels: RepackKernels::load(card, folder)? };
        let packed = repack.weights(model)?;
        let mut decoder = Decoder::new(card.clone(), shape.clone(), &build, |_, _, _| Ok(packed))?;
        let cache = card.zeros(cache)?;
        let (list, table) = (card.zeros(4 * blocks)?, card.zeros(4 * blocks)?);
        let params =
            Params { paged: paged.address(), ..decoder.params(cache.address, table.address, blocks) };
        decoder.set(params)?;
        Ok(Alone {
            params,
            weight_bytes: weights,
            cache,
            list,
            table,
            held: Vec::with_capacity(blocks),
            mirror: Mirror::new(blocks),
            ahead: Ahead::default(),
            missing: Vec::with_capacity(blocks),
            last: (0, 0),
            silent: false,
            awaited: None,
            best: None,
            stopping: false,
            steps: 0,
            begun: 0,
            decoder,
        })
    }

    /// Bytes that it takes on the card.
    pub fn bytes(&self) -> usize {
        self.weight_bytes + self.cache.len()
    }

    /// (vocab, hidden) f16
    pub fn embedding(&self) -> u64 {
        self.params.embedding
    }

    pub fn best(&self) -> Option<u32> {
        self.best
    }

    /// The general path computes this batch.
    pub fn written(&mut self, batch: &Batch) {
        self.rest();
        self.best = None;
        self.mirror.written(batch);
    }

    pub fn overwritten(&mut self, block: u32) {
        self.rest();
        self.mirror.overwritten(block);
    }

    /// What runs ahead ends soon: within the step that it is in, or the next.
    pub fn rest(&mut self) {
        if self.ahead.stop() {
            self.decoder.stop();
            self.stopping = true;
        }
    }

    /// Begins to compute a batch, if it is one row. Whether it is is told. Who wants its logits has to bring them first.
    pub fn forward(&mut self, batch: &Batch, logits: &mut Buffer) -> Result<bool, CudaError> {
        let Some(one) = One::of(batch) else { return Ok(false) };
        self.params.logits = logits.write_on_card();
        let step = match self.ahead.next(&one) {
            Next::UnderWay { step } => step,
            Next::Begin { steps } => {
                self.begin(&one, steps)?;
                0
            }
        };
        (self.awaited, self.last) = (Some(step), (one.token, one.position));
        self.mirror.decoded(&one);
        self.steps += 1;
        Ok(true)
    }

    /// Sees to it that the last step leaves its logits in the buffer. Steps ahead leave none: such a step is taken again, and none are
    /// begun ahead of who may want their logits as well.
    pub fn bring_logits(&mut self) -> Result<(), CudaError> {
        self.ahead.logits_wanted();
        if !self.silent {
            return Ok(());
        }
        let (over, (token, position), table) = (self.awaited.is_none(), self.last, self.held.clone());
        self.begin(&One { token, position, table: &table }, 1)?;
        self.awaited = Some(0);
        if over { self.finish() } else { Ok(()) }
    }

    /// Waits for the step that was begun, if it is not over.
    pub fn finish(&mut self) -> Result<(), CudaError> {
        let Some(step) = self.awaited.take() else { return Ok(()) };
        self.best = match self.wait(step)? {
            Told::Token(token) => Some(token),
            Told::Odd => None,
        };
        self.ahead.took(self.best);
        Ok(())
    }

    fn begin(&mut self, one: &One<'_>, steps: usize) -> Result<(), CudaError> {
        self.rest();
        let card = self.decoder.card();
        card.context.bind_to_thread().doing("binding the card")?;
        if self.stopping {
            card.finish()?;
            self.stopping = false;
        }
        self.mirror.bring(one, &mut self.missing);
        if !self.missing.is_empty() {
            put(card, &mut self.list, 0, &self.missing)?;
            self.decoder.bring(self.list.address, self.missing.len())?;
        }
        let same = self.held.iter().zip(one.table).take_while(|(held, block)| held == block).count();
        if same < one.table.len() {
            put(card, &mut self.table, same, &one.table[same..])?;
            self.held.truncate(same);
            self.held.extend_from_slice(&one.table[same..]);
        }
        let silent = steps > 1;
        let logits = if silent { 0 } else { self.params.logits };
        self.decoder.set(Params { logits, ..self.params })?;
        let screened = silent && self.decoder.shape.coarse_bytes() >= SCREENED_BYTES_MIN;
        self.decoder.begin(Start {
            forced_count: 1,
            token: one.token,
            position: one.position as u32,
            steps: steps as u32,
            screened: u32::from(screened),
            ..Start::default()
        })?;
        self.silent = silent;
        self.ahead.begun(one, steps);
        self.begun += steps as u64;
        Ok(())
    }

    /// What a step ended with. A card that failed, or ended without a word, is an error.
    fn wait(&self, step: usize) -> Result<Told, CudaError> {
        loop {
            for _ in 0..LOOKS {
                if let Some(told) = self.decoder.told(step) {
                    fence(Ordering::Acquire);
                    return Ok(told);
                }
                std::hint::spin_loop();
            }
            if self.decoder.card().is_done()? && self.decoder.told(step).is_none() {
                return Err(CudaError::Unsupported("the decode kernel ended without a token".into()));
            }
        }
    }
}

/// Writes words to the card, from the `first`-th on.
fn put(card: &Card, to: &mut Bytes, first: usize, words: &[u32]) -> Result<(), CudaError> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let range = 4 * first..4 * first + bytes.len();
    if range.end > to.len() {
        return Err(CudaError::Unsupported("a block table longer than the pool".into()));
    }
    card.stream.memcpy_htod(&bytes, &mut to.slice.slice_mut(range)).doing("copying a table")
}

/// Whether tokens alone have a way of their own.
pub enum Way {
    Off,         // nobody asked
    Waiting,     // for the model to be loaded
    Not(String), // why
    On(Box<Alone>),
}
