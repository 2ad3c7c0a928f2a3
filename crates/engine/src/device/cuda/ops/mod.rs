//! The operations on an NVIDIA card: every architecture, any number of rows.
//!
//! Weights stay quantised (`layout.rs`) and become f16 in registers; products run on the tensor cores with f32 sums. A
//! row's result does not depend on the rows beside it, to the last bit. Each operation is a few kernels on one stream;
//! the host waits once a batch, in `finish`.

mod alone;
mod attend;
mod blend;
mod buffer;
mod choice;
mod embed;
mod few;
mod head;
mod held;
mod kernels;
pub(crate) mod layout;
mod made_up;
mod mixture;
mod owed;
mod prepare;
mod product;
mod replay;
mod scratch;
mod screen;
mod several;
mod step;
pub(crate) mod stored;
mod weights;
mod wishes;

pub use alone::Way;
pub use buffer::Buffer;
pub use kernels::compile_operations;
pub use weights::{Experts, Matrix, Vector};

use super::card::new_enough;
use super::{Card, CudaError, Doing};
use crate::batch::Batch;
use crate::device::{Attention, Device, DeviceError, Head, Mixture, Mlp, Norm};
use crate::limits::{BATCH_SEQUENCES_MAX, KV_BLOCK_TOKENS};
use crate::load::Tensor;
use crate::model::Whole;
use crate::model::config::{Config, Rope};
use crate::sample::{CHUNK, Change, Chunk};
use alone::Alone;
use attend::Cache;
use buffer::Pinned;
use choice::Choice;
use kernels::{AttentionKernels, Grid, Kernels, arg};
use layout::TILE_ROWS;
use made_up::Maker;
use owed::Owed;
use prepare::{Prepared, ranges};
use product::{Input, Rows, Target, multiply};
use replay::Replay;
use scratch::Scratch;
use screen::Screen;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use step::Step;
use weights::padded;

/// Of the columns of a row: each has a power of two of its own.
const RANGES: usize = 8;
const HEAD_DIM_MAX: usize = 256;
/// What is read to see how fast that is: many times what the caches hold.
const READ_BYTES: usize = 4 << 30;
const GIB: f64 = (1u64 << 30) as f64;

pub struct Cuda {
    // First: what is on the card goes before the card does.
    alone: Way,
    maker: Option<Maker>,
    kernels: Kernels,
    attention: Option<AttentionKernels>,
    scratch: Scratch,
    step: Option<Step>,
    embedded: Option<Pinned>, // (rows, hidden) on their way to the card
    prepared: Option<u64>,    // the buffer whose rows `scratch.inputs` has
    measured: Option<u64>,    // the buffer of whose rows `scratch.largest` knows the magnitudes
    owed: Option<Owed>,       // to the rows of x
    choice: Choice,
    screen: Option<Screen>,
    replay: Replay,
    widest: Widest,
    decoded_alone: bool,                // the last batch was
    failed: RefCell<Option<CudaError>>, // the first that happened since `finish`
    folder: PathBuf,                    // of compiled kernels
    card: Card,
}

/// The largest operands seen while loading: the scratch is sized by them.
#[derive(Debug, Clone, Copy, Default)]
struct Widest {
    cols: usize,        // of any matrix
    experts: usize,     // of any mixture
    expert_rows: usize, // of any expert's matrix
    expert_cols: usize,
}

impl Cuda {
    /// The first card. What is compiled for it is kept in `folder`.
    pub fn open(folder: &Path) -> Result<Cuda, CudaError> {
        let card = Card::open()?;
        new_enough(&card.name, card.capability)?;
        Ok(Cuda {
            alone: Way::Off,
            maker: None,
            kernels: Kernels::load(&card, folder)?,
            attention: None,
            scratch: Scratch::default(),
            step: None,
            embedded: None,
            prepared: None,
            measured: None,
            owed: None,
            choice: Choice::new(&card)?,
            screen: None,
            replay: Replay::new(false),
            widest: Widest::default(),
            decoded_alone: false,
            failed: RefCell::new(None),
            folder: folder.into(),
            card,
        })
    }

    /// Records batches and launches the record: for a device whose operations are always called in the same order on the
    /// same buffers, as a loaded model's are.
    pub fn replaying(mut self) -> Cuda {
        self.replay = Replay::new(true);
        self
    }

    /// Lets a token alone round otherwise than one in a batch, where that is faster, from sm_90 on.
    pub fn fast(mut self) -> Cuda {
        self.alone = Way::Waiting;
        self
    }

    /// Makes made-up weights on the card instead of packing them, which would take minutes; their values are others.
    pub fn making_up(mut self) -> Result<Cuda, CudaError> {
        self.maker = Some(Maker::new(&self.card, &self.folder)?);
        Ok(self)
    }

    /// Bytes a second of a plain read of memory.
    pub fn read_bandwidth(&self) -> Result<f64, CudaError> {
        Maker::new(&self.card, &self.folder)?.read_bandwidth(&self.card, READ_BYTES)
    }

    /// Whether the last batch went through the one kernel.
    pub fn decoded_alone(&self) -> bool {
        self.decoded_alone
    }

    /// Whether it does, for the model that was loaded.
    pub fn alone(&self) -> &Way {
        &self.alone
    }

    pub fn card(&self) -> &Card {
        &self.card
    }

    /// A kernel that writes where there is no memory, as a broken one would: to see what follows.
    pub fn write_outside(&self) {
        let nowhere = 0x10u64;
        // SAFETY: not sound for the card's context, which is what it is for; the host's memory is not touched.
        let done =
            unsafe { self.kernels.write_outside.launch(&self.card, Grid::rows(1, 32), [arg(&nowhere)]) };
        self.note(done);
    }

    /// Keeps the first failure for `finish`: the operations themselves cannot fail.
    fn note(&self, outcome: Result<(), CudaError>) {
        if let Err(error) = outcome {
            self.failed.borrow_mut().get_or_insert(error);
        }
    }

    /// Where a buffer's rows are for a kernel.
    fn lies(&self, x: &Buffer) -> Result<u64, CudaError> {
        x.read_on_card(&self.card).map(|(address, _)| address)
    }

    fn norm(norm: &Norm<Cuda>) -> Option<(u64, f32)> {
        Some((norm.weight.values.address, norm.eps))
    }

    /// `out (+)= matrix * inputs + bias`
    fn product(
        &self,
        matrix: &Matrix,
        inputs: Prepared,
        rows: usize,
        bias: Option<&Vector>,
        out: u64,
        add: bool,
    ) -> Result<(), CudaError> {
        let input = Input {
            x: inputs.values,
            factors: inputs.factors,
            cols: matrix.cols,
            stride: inputs.stride as usize,
            out_stride: matrix.rows,
            add,
            rows: Rows::All(rows),
        };
        let bias = bias.map_or(0, |bias| bias.values.address);
        let mut row = 0;
        for part in &matrix.parts {
            let at = 4 * row as u64;
            let (bias, out) = (if bias == 0 { 0 } else { bias + at }, out + at);
            if !self.several_part(part, inputs, (rows, matrix.cols), (bias, out, matrix.rows), add)? {
                multiply(&self.card, &self.kernels, input, &[Target { part, bias, out }])?;
            }
            row += part.rows;
        }
        Ok(())
    }

    fn try_gate_up(
        &mut self,
        w: &Mlp<Cuda>,
        x: &Buffer,
        hidden: &mut Buffer,
        rows: usize,
    ) -> Result<(), CudaError> {
        self.settle()?;
        if self.few_gated(w, x, hidden, rows)? {
            return Ok(());
        }
        let inputs = self.prepare_buffer(x, rows, Cuda::norm(&w.norm))?;
        if self.several_gated(w, inputs, hidden, rows)? {
            return Ok(());
        }
        let width = hidden.width;
        let gate = hidden.write_on_card();
        let up = self.scratch.up.at(&self.card, rows * width * 4)?;
        match (&w.gate.parts[..], &w.up.parts[..]) {
            ([gate_part], [up_part]) => {
                let input = Input {
                    x: inputs.values,
                    factors: inputs.factors,
                    cols: w.gate.cols,
                    stride: inputs.stride as usize,
                    out_stride: width,
                    add: false,
                    rows: Rows::All(rows),
                };
                let targets = [
                    Target { part: gate_part, bias: 0, out: gate },
                    Target { part: up_part, bias: 0, out: up },
                ];
                multiply(&self.card, &self.kernels, input, &targets)?;
            }
            _ => {
                self.product(&w.gate, inputs, rows, None, gate, false)?;
                self.product(&w.up, inputs, rows, None, up, false)?;
            }
        }
        self.activate(gate, up, false, rows, width)?;
        (self.prepared, self.measured) = (Some(gate), None);
        Ok(())
    }

    /// `gate = activation(gate, up)`, in f32 and as what products read.
    fn activate(
        &mut self,
        gate: u64,
        up: u64,
        clamped: bool,
        rows: usize,
        width: usize,
    ) -> Result<Prepared, CudaError> {
        let to = self.inputs(rows, width)?;
        let (clamped, width) = (i32::from(clamped), width as i32);
        let args = [arg(&gate), arg(&up), arg(&clamped), arg(&width), arg(&to)];
        // SAFETY: the arguments of `activate`; both operands have the rows, the inputs have room for them.
        unsafe { self.kernels.activate.launch(&self.card, ranges(rows), args) }?;
        Ok(to)
    }

    fn try_project_add(
        &mut self,
        matrix: &Matrix,
        bias: Option<&Vector>,
        input: &Buffer,
        x: &Buffer,
        rows: usize,
    ) -> Result<(), CudaError> {
        self.settle()?;
        let (out, _) = x.read_on_card(&self.card)?;
        if let Some(inputs) = self.prepared_rows(input, rows)?.filter(|_| rows > 1)
            && self.held_ready(matrix, bias, (inputs, rows), out, true)?
        {
            return Ok(());
        }
        if self.few_added(matrix, bias, input, out, rows)? {
            return Ok(());
        }
        let inputs = self.prepare_buffer(input, rows, None)?;
        if self.held_ready(matrix, bias, (inputs, rows), out, true)? {
            return Ok(());
        }
        self.product(matrix, inputs, rows, bias, out, true)
    }

    fn try_begin(&mut self, rope: &Rope, batch: &Batch) -> Result<(), CudaError> {
        self.card.context.bind_to_thread().doing("binding the card")?;
        if let Way::On(alone) = &mut self.alone {
            alone.written(batch);
        }
        (self.prepared, self.measured, self.owed) = (None, None, None);
        self.choice.forget();
        self.forget_owed_logits();
        let screened = self.screens(batch);
        self.card.finish()?;
        if !self.step.as_ref().is_some_and(|step| step.holds(rope, batch)) {
            let (rows, blocks) = (batch.rows(), batch.blocks.len());
            self.step = Some(Step::new(&self.card, rows, rope.frequencies.len(), blocks)?);
        }
        if let Some(step) = &mut self.step {
            step.begin(&self.card, rope, batch)?;
            let addresses = self.scratch.addresses().into_iter().chain([step.spans()]);
            self.replay.begin(batch, (step.chunks, screened), addresses);
        }
        Ok(())
    }

    /// Waits for the logits, as they were changed. Steps that run ahead are not waited for.
    fn wait_for_batch(&mut self) -> Result<(), CudaError> {
        if let (true, Way::On(alone)) = (self.decoded_alone, &mut self.alone) {
            alone.finish()?;
        }
        if self.choice.take_behind() || !self.decoded_alone {
            self.card.finish()?;
        }
        Ok(())
    }

    /// Takes all scratch that batches of `rows` rows need.
    fn take_scratch(&mut self, config: &Config, rows: usize) -> Result<(), CudaError> {
        let (card, scratch, widest) = (&self.card, &mut self.scratch, self.widest);
        let experts = config.experts.as_ref();
        let slots = rows * experts.map_or(1, |experts| experts.used);
        let blocks = BATCH_SEQUENCES_MAX * config.context.div_ceil(KV_BLOCK_TOKENS);
        self.step = Some(Step::new(card, rows, config.head_dim / 2, blocks)?);
        let inputs = (rows * padded(widest.cols)).max(slots * padded(widest.expert_cols));
        scratch.inputs.at(card, inputs * 2)?;
        scratch.factors.at(card, slots * RANGES * 4)?;
        scratch.up.at(card, slots * config.ffn * 4)?;
        scratch.largest.at(card, slots * config.ffn.div_ceil(TILE_ROWS) * 4)?;
        if let Some(experts) = experts.filter(|_| widest.experts > 0) {
            scratch.gate.at(card, slots * config.ffn * 4)?;
            scratch.down.at(card, slots * config.hidden * 4)?;
            scratch.router.at(card, rows * experts.count * 4)?;
            scratch.chosen.at(card, slots * 4)?;
            scratch.shares.at(card, slots * 4)?;
            scratch.slots.at(card, slots * 4)?;
            scratch.tiles.at(card, (slots + experts.count) * 16)?;
            scratch.tile_count.at(card, 4)?;
        }
        if experts.is_some() {
            self.hidden_words(config.ffn)?;
        }
        self.take_partials(config.heads, config.head_dim)?;
        self.embedded = Some(Pinned::new(&self.card, rows * config.hidden)?);
        Ok(())
    }
}

fn failed(error: CudaError) -> DeviceError {
    DeviceError::Failed(error.to_string())
}

impl Device for Cuda {
    type Matrix = Matrix;
    type Experts = Experts;
    type Vector = Vector;
    type Table = Tensor;
    type Buffer = Buffer;
    type Cache = Cache;

    const TAKES_TILES: bool = true;

    fn kv_head_bytes(head_dim: usize) -> usize {
        2 * head_dim * size_of::<u16>()
    }

    fn describe(&self) -> String {
        format!("cuda ({})", self.card.name)
    }

    fn available_bytes(&self) -> Option<u64> {
        self.card.memory().ok().map(|(free, _)| free as u64)
    }

    fn held_bytes(&self, tensor: &Tensor) -> u64 {
        weights::held_bytes(tensor)
    }

    fn matrix(&mut self, parts: &[Tensor]) -> Result<Matrix, DeviceError> {
        let matrix = Matrix::load(&self.card, self.maker.as_ref(), parts).map_err(failed)?;
        self.widest.cols = self.widest.cols.max(matrix.cols);
        Ok(matrix)
    }

    fn experts(&mut self, tensor: &Tensor) -> Result<Experts, DeviceError> {
        let experts = Experts::load(&self.card, self.maker.as_ref(), tensor).map_err(failed)?;
        let Widest { experts: count, expert_rows, expert_cols, .. } = &mut self.widest;
        *count = experts.count.max(*count);
        *expert_rows = experts.part.rows.max(*expert_rows);
        *expert_cols = experts.cols.max(*expert_cols);
        Ok(experts)
    }

    fn vector(&mut self, parts: &[Tensor]) -> Result<Vector, DeviceError> {
        let values = crate::device::plain::Plain::default().vector(parts)?;
        Ok(Vector { values: self.card.upload(&values).map_err(failed)? })
    }

    fn table(&mut self, tensor: &Tensor) -> Result<Tensor, DeviceError> {
        match &self.maker {
            Some(maker) => maker.table(tensor).map_err(|error| DeviceError::Failed(error.to_string())),
            None => Ok(tensor.clone()),
        }
    }

    fn buffer(&mut self, rows: usize, width: usize) -> Result<Buffer, DeviceError> {
        Buffer::new(&self.card, rows, width).map_err(failed)
    }

    fn cache(&mut self, config: &Config, blocks: usize) -> Result<Cache, DeviceError> {
        if !config.head_dim.is_multiple_of(16) || config.head_dim > HEAD_DIM_MAX {
            let problem =
                format!("is {}; the cuda device takes multiples of 16 up to {HEAD_DIM_MAX}", config.head_dim);
            return Err(DeviceError::Unsupported { name: "head_dim".into(), problem });
        }
        let attention = AttentionKernels::load(&self.card, config.head_dim, &self.folder).map_err(failed)?;
        self.attention = Some(attention);
        Cache::new(&self.card, config, blocks).map_err(failed)
    }

    fn ready(&mut self, config: &Config, rows: usize) -> Result<(), DeviceError> {
        self.take_scratch(config, rows).map_err(failed)
    }

    fn begin(&mut self, rope: &Rope, batch: &Batch) {
        let done = self.try_begin(rope, batch);
        self.note(done);
    }

    fn embed(&mut self, table: &Tensor, batch: &Batch, x: &mut Buffer) {
        let done = self.try_embed(table, batch, x);
        self.note(done);
    }

    fn qkv(&mut self, w: &Attention<Cuda>, x: &Buffer, batch: &Batch, qkv: &mut Buffer, cache: &mut Cache) {
        if !self.replay.replays() {
            let done = self.try_qkv(w, x, batch, qkv, cache);
            self.note(done);
        }
    }

    fn attend(&mut self, w: &Attention<Cuda>, qkv: &Buffer, batch: &Batch, cache: &Cache, out: &mut Buffer) {
        if !self.replay.replays() {
            let done = self.try_attend(w, qkv, batch, cache, out);
            self.note(done);
        }
    }

    fn project_add(
        &mut self,
        matrix: &Matrix,
        bias: Option<&Vector>,
        input: &Buffer,
        x: &mut Buffer,
        batch: &Batch,
    ) {
        if !self.replay.replays() {
            let done = self.try_project_add(matrix, bias, input, x, batch.rows());
            self.note(done);
        }
        x.write_on_card();
    }

    fn gate_up(&mut self, w: &Mlp<Cuda>, x: &Buffer, hidden: &mut Buffer, batch: &Batch) {
        if !self.replay.replays() {
            let done = self.try_gate_up(w, x, hidden, batch.rows());
            self.note(done);
        }
    }

    fn mixture(&mut self, w: &Mixture<Cuda>, x: &mut Buffer, batch: &Batch) {
        if !self.replay.replays() {
            let done = self.try_mixture(w, x, batch.rows());
            self.note(done);
        }
        x.write_on_card();
    }

    fn head(&mut self, w: &Head<Cuda>, x: &Buffer, batch: &Batch, logits: &mut Buffer) {
        if self.replay.replays() {
            let (out, rows) = (logits.write_on_card(), batch.logit_rows.len());
            self.choice.told(rows);
            let owed = if self.screens(batch) { self.owe_logits(rows, out) } else { Ok(()) };
            return self.note(owed);
        }
        let done = self.try_head(w, x, batch, logits);
        self.note(done);
    }

    fn alone_ready(&mut self, model: &Whole<'_, Cuda>, config: &Config, cache: &Cache) {
        if matches!(self.alone, Way::Waiting) {
            self.alone = match Alone::new(&self.card, &self.folder, model, config, cache) {
                Ok(alone) => Way::On(Box::new(alone)),
                Err(error) => Way::Not(error.to_string()),
            };
            let screened = self.screen_head(&model.head.matrix);
            self.note(screened);
        }
    }

    fn forward_alone(&mut self, batch: &Batch, logits: &mut Buffer) -> bool {
        let Way::On(alone) = &mut self.alone else { return false };
        self.choice.forget();
        let done = alone.forward(batch, logits);
        self.decoded_alone = !matches!(done, Ok(false));
        self.note(done.map(|_| ()));
        self.decoded_alone
    }

    fn submit(&mut self) {
        if !self.decoded_alone {
            let launched = self.replay.end(&self.card);
            self.note(launched);
        }
    }

    fn change(&mut self, logits: &mut Buffer, row: usize, change: &Change<'_>) {
        let done = self.try_change(logits, row, change);
        if !matches!(done, Ok(true)) {
            change.apply(self.read(logits, row));
        }
        self.note(done.map(|_| ()));
    }

    fn best(&mut self, logits: &Buffer, row: usize) -> Option<u32> {
        self.try_best(logits, row).unwrap_or_else(|error| {
            self.note(Err(error));
            None
        })
    }

    fn weigh(&mut self, logits: &Buffer, row: usize, scale: f32, chunks: &mut Vec<Chunk>) -> Option<f32> {
        self.try_weigh(logits, row, scale, chunks).unwrap_or_else(|error| {
            self.note(Err(error));
            None
        })
    }

    fn read_chunks<'a>(&mut self, buffer: &'a mut Buffer, row: usize, wanted: &[u32]) -> &'a mut [f32] {
        self.bring_logits();
        let width = buffer.width;
        let parts =
            wanted.iter().map(|&chunk| chunk as usize * CHUNK..((chunk as usize + 1) * CHUNK).min(width));
        buffer.parts_of_row(&self.card, row, parts).unwrap_or_else(|error| {
            self.note(Err(error));
            &mut []
        })
    }

    fn rest(&mut self) {
        if let Way::On(alone) = &mut self.alone {
            alone.rest();
        }
    }

    fn finish(&mut self) -> Result<(), DeviceError> {
        let settled = self.settle();
        self.note(settled);
        self.submit();
        let waited = self.wait_for_batch();
        self.note(waited);
        self.failed.take().map_or(Ok(()), |error| Err(failed(error)))
    }

    fn read<'a>(&mut self, buffer: &'a mut Buffer, row: usize) -> &'a mut [f32] {
        let settled = self.settle();
        self.note(settled);
        self.bring_logits();
        buffer.row(&self.card, row).unwrap_or_else(|error| {
            self.note(Err(error));
            &mut []
        })
    }

    fn copy_block(&mut self, cache: &mut Cache, from: u32, to: u32) {
        if let Way::On(alone) = &mut self.alone {
            alone.overwritten(to);
        }
        let done = cache.copy_block(&self.card, from, to);
        self.note(done);
    }
}
