//! The CPU device: SIMD kernels on packed weights, on threads that work in step.
//!
//! Each operation is one job of the pool. Inside it, threads prepare the input together and meet at a barrier, or each for
//! itself if it is short, and take panels of the matrix until none are left.

mod attend;
mod attention;
mod cache;
mod choice;
mod cores;
mod cut;
mod gated;
mod heads;
#[allow(clippy::too_many_arguments, reason = "shapes are plain numbers where a kernel begins")]
mod input;
mod machine;
#[allow(clippy::manual_is_multiple_of, reason = "the parity of a vector, not a multiple")]
mod matmul;
mod memory;
mod mixture;
mod pack;
#[allow(clippy::type_complexity, reason = "a job is a borrowed closure behind a raw pointer, in one place")]
mod pool;
mod screen;
mod simd;

pub use cores::default_threads;
pub use machine::{int8_peak, read_bandwidth};
pub use memory::OutOfMemory;
pub use simd::Isa;

use super::{Activation, Attention, Device, DeviceError, Head, Mixture, Mlp, Norm};
use crate::batch::Batch;
use crate::load::Tensor;
use crate::model::Whole;
use crate::model::config::{Config, Rope};
use crate::sample::Chunk;
use attend::AttendJob;
use attention::{CHUNK, Partial, Scratch, TILE};
use cache::Cache;
use choice::Found;
use cut::Cut;
use gated::GatedUnits;
use heads::{Angles, HEAD_DIM_MAX, Placement};
use input::{Input, InputMemory, Needs, Prepare};
use matmul::{Output, Product, Rows};
use memory::{Arena, Memory, Shared};
use mixture::MixtureScratch;
use pack::Packed;
use pool::{Pool, Worker};
use screen::Screen;
use simd::LANES;
use std::ops::Range;

/// Gate and up values that a thread has room for, for each row of the largest batch.
const RAW_VALUES_A_ROW: usize = 4 * LANES;

/// Bytes of the mappings that weights share.
const ARENA_CHUNK_BYTES: usize = 64 << 20;

pub struct Cpu {
    isa: Isa,
    pool: Pool,
    arena: Arena, // all weights
    angles: Angles,
    inputs: InputMemory,
    raw: Memory<f32>,               // (threads, rows, 2 * HIDDEN_UNIT) gate and up values
    partials: Vec<[Partial; TILE]>, // (tiles, chunks), when chunks are shared out
    scratches: Vec<Scratch>,        // (threads) for attention
    mixture: MixtureScratch,
    widest: Widest,
    held: Held,
    screen: Option<Screen>,
    found: Vec<Found>, // (threads)
}

/// The weights that products read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Held {
    pub bytes: usize,
    pub values: usize,
    pub passed_over: usize,  // of these bytes, for a token that is the likeliest
    pub expert_bytes: usize, // of all experts together, not among the others
    pub expert_values: usize,
}

/// The largest operands seen while loading: the scratch is sized by them.
#[derive(Debug, Clone, Copy, Default)]
struct Widest {
    cols: usize,         // of any matrix
    experts: usize,      // of any mixture
    expert_width: usize, // rows of any expert matrix
}

/// Stacked tensors, each packed in its own format.
pub struct Matrix {
    parts: Vec<Packed>,
    cols: usize,
}

impl Matrix {
    /// What a product with it reads of its input.
    fn needs(&self) -> Needs {
        Needs::of(&self.parts)
    }
}

/// Activations: rows of f32.
pub struct Buffer {
    values: Memory<f32>, // (rows, width)
    width: usize,
}

impl Buffer {
    fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.width..][..self.width]
    }

    fn output(&mut self) -> Output {
        Output { base: self.values.as_mut_ptr(), stride: self.width }
    }
}

impl Cpu {
    /// A device of `threads` threads with the best instruction set of this machine.
    pub fn new(threads: usize) -> Result<Cpu, OutOfMemory> {
        Cpu::with_isa(threads, Isa::detect())
    }

    /// As [`Cpu::new`], with an instruction set from [`Isa::available`].
    pub fn with_isa(threads: usize, isa: Isa) -> Result<Cpu, OutOfMemory> {
        Ok(Cpu {
            isa,
            pool: Pool::new(threads.max(1)),
            arena: Arena::new(ARENA_CHUNK_BYTES)?,
            angles: Angles::default(),
            inputs: InputMemory::new(0, 0)?,
            raw: Memory::zeroed(0)?,
            partials: Vec::new(),
            scratches: (0..threads.max(1)).map(|_| Scratch::default()).collect(),
            mixture: MixtureScratch::default(),
            widest: Widest::default(),
            held: Held::default(),
            screen: None,
            found: vec![Found::NOTHING; threads.max(1)],
        })
    }
}

impl Cpu {
    /// The weights loaded so far.
    pub fn held(&self) -> Held {
        self.held
    }

    fn keep(&mut self, parts: Vec<Packed>) -> Matrix {
        let cols = parts.first().map_or(0, |part| part.cols);
        self.widest.cols = self.widest.cols.max(cols);
        self.held.bytes += parts.iter().map(Packed::bytes).sum::<usize>();
        self.held.values += parts.iter().map(|part| part.rows * part.cols).sum::<usize>();
        Matrix { parts, cols }
    }

    /// The experts of tensors of one shape; those of one number lie by turns.
    fn experts_by_turns<const N: usize>(
        &mut self,
        tensors: [&Tensor; N],
    ) -> Result<[Vec<Packed>; N], DeviceError> {
        let experts = tensors[0].shape.first().copied().unwrap_or(0);
        let (rows, cols) = (tensors[0].rows() / experts.max(1), tensors[0].cols());
        self.widest.cols = self.widest.cols.max(cols);
        self.widest.experts = self.widest.experts.max(experts);
        self.widest.expert_width = self.widest.expert_width.max(rows).max(cols);
        let mut all: [Vec<Packed>; N] = std::array::from_fn(|_| Vec::with_capacity(experts));
        for expert in 0..experts {
            let own = Packed::by_turns(&mut self.pool, &mut self.arena, tensors, expert * rows, rows)?;
            all.iter_mut().zip(own).for_each(|(all, own)| all.push(own));
        }
        tensors.iter().for_each(|tensor| tensor.release());
        for packed in all.iter().flatten() {
            self.held.expert_bytes += packed.bytes();
            self.held.expert_values += packed.rows * packed.cols;
        }
        Ok(all)
    }
}

fn norm_parts(norm: &Norm<Cpu>) -> (&[f32], f32) {
    (&norm.weight, norm.eps)
}

/// Computes all panels of a matrix together with the other threads, or for this thread's rows alone.
///
/// # Safety
/// All threads call this with the same arguments, but for their rows; the output's rows are nobody else's meanwhile.
unsafe fn multiply(worker: Worker<'_>, isa: Isa, parts: &[Packed], base: &Product<'_>, cut: Cut) {
    let units = |part: &Packed| part.units(worker.count, base.count, usize::MAX);
    let count: usize = parts.iter().map(|part| units(part).count()).sum();
    for mut taken in cut.units(worker, count) {
        let mut column = 0;
        for matrix in parts {
            let own = units(matrix).count();
            if taken < own {
                let panels = units(matrix).panels(taken);
                let at = column + panels.start * LANES;
                let bias = base.bias.map(|bias| &bias[column..column + matrix.rows]);
                // SAFETY: each unit is taken by one thread, or rows are; it writes the columns of its panels.
                unsafe { Product { matrix, bias, ..*base }.run(isa, panels, at) };
                break;
            }
            taken -= own;
            column += matrix.rows;
        }
    }
}

impl Device for Cpu {
    type Matrix = Matrix;
    type Experts = Vec<Packed>;
    type Vector = Vec<f32>;
    type Table = Tensor;
    type Buffer = Buffer;
    type Cache = Cache;

    fn kv_head_bytes(head_dim: usize) -> usize {
        cache::head_bytes(head_dim)
    }

    fn describe(&self) -> String {
        format!("cpu ({}, {} threads)", self.isa.name(), self.pool.threads())
    }

    fn matrix(&mut self, parts: &[Tensor]) -> Result<Matrix, DeviceError> {
        let mut packed = Vec::with_capacity(parts.len());
        for tensor in parts {
            packed.push(Packed::new(&mut self.pool, &mut self.arena, tensor, 0, tensor.rows())?);
            tensor.release();
        }
        Ok(self.keep(packed))
    }

    fn gated(&mut self, gate: &Tensor, up: &Tensor) -> Result<[Matrix; 2], DeviceError> {
        let pair = Packed::by_turns(&mut self.pool, &mut self.arena, [gate, up], 0, gate.rows())?;
        gate.release();
        up.release();
        Ok(pair.map(|packed| self.keep(vec![packed])))
    }

    fn experts(&mut self, tensor: &Tensor) -> Result<Vec<Packed>, DeviceError> {
        let [packed] = self.experts_by_turns([tensor])?;
        Ok(packed)
    }

    fn gated_experts(&mut self, gate: &Tensor, up: &Tensor) -> Result<[Vec<Packed>; 2], DeviceError> {
        self.experts_by_turns([gate, up])
    }

    fn vector(&mut self, parts: &[Tensor]) -> Result<Vec<f32>, DeviceError> {
        super::plain::Plain::default().vector(parts)
    }

    fn table(&mut self, tensor: &Tensor) -> Result<Tensor, DeviceError> {
        Ok(tensor.clone())
    }

    fn buffer(&mut self, rows: usize, width: usize) -> Result<Buffer, DeviceError> {
        Ok(Buffer { values: Memory::zeroed(rows * width)?, width })
    }

    fn cache(&mut self, config: &Config, blocks: usize) -> Result<Cache, DeviceError> {
        if !config.head_dim.is_multiple_of(LANES) || config.head_dim > HEAD_DIM_MAX {
            return Err(DeviceError::Unsupported {
                name: "head_dim".into(),
                problem: format!(
                    "is {}; the cpu device takes multiples of {LANES} up to {HEAD_DIM_MAX}",
                    config.head_dim
                ),
            });
        }
        Ok(Cache::new(config, blocks)?)
    }

    fn ready(&mut self, config: &Config, rows: usize) -> Result<(), DeviceError> {
        let threads = self.pool.threads();
        let slots = rows * config.experts.as_ref().map_or(1, |experts| experts.used);
        let values = (rows * self.widest.cols).max(slots * self.widest.expert_width);
        self.inputs = InputMemory::new(values, threads)?;
        self.raw = Memory::zeroed(threads * rows * RAW_VALUES_A_ROW)?;
        self.partials = vec![[Partial::EMPTY; TILE]; 2 * threads * config.context.div_ceil(CHUNK)];
        self.angles.cos.reserve(rows * config.head_dim / 2);
        self.angles.sin.reserve(rows * config.head_dim / 2);
        self.mixture = MixtureScratch::new(rows, slots, self.widest.experts, self.widest.expert_width)?;
        Ok(())
    }

    fn begin(&mut self, rope: &Rope, batch: &Batch) {
        self.screen.iter_mut().for_each(Screen::forget);
        let Angles { cos, sin, pairs } = &mut self.angles;
        *pairs = Some(rope.pairs);
        cos.clear();
        sin.clear();
        for &position in &batch.positions {
            for frequency in &rope.frequencies {
                let (s, c) = (position as f32 * frequency).sin_cos();
                cos.push(c * rope.magnitude);
                sin.push(s * rope.magnitude);
            }
        }
    }

    fn embed(&mut self, table: &Tensor, batch: &Batch, x: &mut Buffer) {
        let width = x.width;
        let x = Shared::new(&mut x.values);
        self.pool.run(|worker| {
            for row in worker.share(batch.rows()) {
                // SAFETY: each row belongs to one thread.
                table.row_f32(batch.tokens[row] as usize, unsafe { x.range_mut(row * width, width) });
            }
        });
    }

    fn qkv(&mut self, w: &Attention<Cpu>, x: &Buffer, batch: &Batch, qkv: &mut Buffer, cache: &mut Cache) {
        let (isa, rows) = (self.isa, batch.rows());
        let norm = Some(norm_parts(&w.norm));
        let prepare =
            Prepare::new(isa, &mut self.inputs, &x.values, Rows::From(0), rows, x.width, norm, w.qkv.needs());
        let (bias, output) = (w.qkv_bias.as_deref(), qkv.output());
        let cut = Cut::of(self.pool.threads(), rows, &w.qkv.parts);
        let (width, values, geometry) = (qkv.width, Shared::new(&mut qkv.values), cache.geometry());
        let cached = Shared::new(cache.data_mut());
        let place =
            Placement { weights: w, batch, angles: &self.angles, isa, values, width, cached, geometry };
        self.pool.run(|worker| {
            // SAFETY: the three phases are apart by barriers, or each thread has its own rows in all of them; units within each
            // are disjoint.
            unsafe {
                let own = cut.rows(worker, rows);
                let product = base_product(&w.qkv, bias, prepare.run(worker, cut), own, output, false);
                multiply(worker, isa, &w.qkv.parts, &product, cut);
                cut.wait(worker);
                for (kv_head, rows) in cut.parts(worker, rows, w.kv_heads) {
                    place.run(kv_head, rows);
                }
            }
        });
    }

    fn attend(&mut self, w: &Attention<Cpu>, qkv: &Buffer, batch: &Batch, cache: &Cache, out: &mut Buffer) {
        let job = AttendJob { weights: w, qkv, batch, cache, isa: self.isa };
        let (tiles, together) = (job.tiles(), job.together(self.pool.threads()));
        let units = job.units(together);
        let width = out.width;
        let out = Shared::new(&mut out.values);
        // Few tiles, as in decoding: threads share the chunks of each instead.
        let chunks = batch.spans.iter().map(|s| s.position + s.rows.len()).max().unwrap_or(0).div_ceil(CHUNK);
        let split = tiles < 2 * self.pool.threads() && chunks > 1 && tiles * chunks <= self.partials.len();
        let partials = Shared::new(&mut self.partials);
        let scratches = Shared::new(&mut self.scratches);
        self.pool.run(|worker| {
            // SAFETY: each thread has its own scratch; a tile writes its own queries' part of `out`; a chunk its own
            // partials, which are read after the barrier.
            unsafe {
                let scratch = &mut scratches.range_mut(worker.index, 1)[0];
                if !split {
                    while let Some(unit) = worker.take(units) {
                        job.whole_unit(unit, together, scratch, out, width);
                    }
                    return;
                }
                while let Some(unit) = worker.take(tiles * chunks) {
                    let partial = &mut partials.range_mut(unit, 1)[0];
                    job.one_chunk(unit / chunks, unit % chunks, scratch, partial);
                }
                worker.barrier();
                for unit in worker.share(tiles) {
                    let partials = partials.range(unit * chunks, chunks);
                    job.merge(unit, partials, &mut scratch.totals[0], out, width);
                }
            }
        });
    }

    fn project_add(
        &mut self,
        matrix: &Matrix,
        bias: Option<&Vec<f32>>,
        input: &Buffer,
        x: &mut Buffer,
        batch: &Batch,
    ) {
        let (isa, rows) = (self.isa, batch.rows());
        let prepare = Prepare::new(
            isa,
            &mut self.inputs,
            &input.values,
            Rows::From(0),
            rows,
            matrix.cols,
            None,
            matrix.needs(),
        );
        let (bias, output) = (bias.map(Vec::as_slice), x.output());
        let cut = Cut::of(self.pool.threads(), rows, &matrix.parts);
        self.pool.run(|worker| {
            // SAFETY: what is read of the input is there; panels or rows are disjoint.
            unsafe {
                let own = cut.rows(worker, rows);
                let product = base_product(matrix, bias, prepare.run(worker, cut), own, output, true);
                multiply(worker, isa, &matrix.parts, &product, cut);
            }
        });
    }

    fn gate_up(&mut self, w: &Mlp<Cpu>, x: &Buffer, hidden: &mut Buffer, batch: &Batch) {
        let (isa, rows) = (self.isa, batch.rows());
        let matrices = || w.gate.parts.iter().chain(&w.up.parts);
        let needs = Needs::of(matrices());
        let norm = Some(norm_parts(&w.norm));
        let prepare =
            Prepare::new(isa, &mut self.inputs, &x.values, Rows::From(0), rows, x.width, norm, needs);
        let threads = self.pool.threads();
        let cut = Cut::of(threads, rows, matrices());
        let room = self.raw.len() / threads;
        let units = GatedUnits::split(&w.gate.parts[0], threads, rows, room);
        let hidden = hidden.output();
        let raw = Shared::new(&mut self.raw);
        self.pool.run(|worker| {
            // SAFETY: what is read of the input is there; units are disjoint columns, or rows are, and each thread has its own part of
            // `raw`.
            unsafe {
                let own = cut.rows(worker, rows);
                let job = GatedUnits {
                    isa,
                    units,
                    gate: &w.gate.parts[0],
                    up: &w.up.parts[0],
                    gate_bias: None,
                    up_bias: None,
                    input: prepare.run(worker, cut),
                    from: Rows::From(own.start),
                    to: Rows::From(own.start),
                    count: own.len(),
                    activation: Activation::Swiglu,
                    hidden,
                };
                let raw = raw.range_mut(worker.index * room, room);
                for unit in cut.units(worker, units.count()) {
                    job.run(unit, raw);
                }
            }
        });
    }

    fn mixture(&mut self, w: &Mixture<Cpu>, x: &mut Buffer, batch: &Batch) {
        mixture::run(self, w, x, batch);
    }

    fn head(&mut self, w: &Head<Cpu>, x: &Buffer, batch: &Batch, logits: &mut Buffer) {
        let (isa, rows) = (self.isa, batch.logit_rows.len());
        let norm = Some(norm_parts(&w.norm));
        let from = Rows::List(&batch.logit_rows);
        let prepare =
            Prepare::new(isa, &mut self.inputs, &x.values, from, rows, x.width, norm, w.matrix.needs());
        let output = logits.output();
        if let Some(screen) = self.screen.as_mut().filter(|_| batch.greedy && rows == 1)
            && screen.find(&mut self.pool, isa, &prepare, output.base)
        {
            return;
        }
        let cut = Cut::of(self.pool.threads(), rows, &w.matrix.parts);
        self.pool.run(|worker| {
            // SAFETY: what is read of the input is there; panels or rows are disjoint.
            unsafe {
                let own = cut.rows(worker, rows);
                let product = base_product(&w.matrix, None, prepare.run(worker, cut), own, output, false);
                multiply(worker, isa, &w.matrix.parts, &product, cut);
            }
        });
    }

    fn alone_ready(&mut self, model: &Whole<'_, Cpu>, _: &Config, _: &Cache) {
        self.screen = Screen::of(&model.head.matrix.parts, &mut self.pool);
        self.held.passed_over = self.screen.as_ref().map_or(0, Screen::saved);
    }

    fn best(&mut self, logits: &Buffer, row: usize) -> Option<u32> {
        let logits = logits.row(row);
        match &self.screen {
            Some(screen) if screen.stands_for(logits.as_ptr()) => screen.best(logits.as_ptr()),
            _ => choice::likeliest(&mut self.pool, self.isa, &mut self.found, logits),
        }
    }

    fn weigh(&mut self, logits: &Buffer, row: usize, scale: f32, chunks: &mut Vec<Chunk>) -> Option<f32> {
        let logits = logits.row(row);
        match &self.screen {
            // They are made when they are read.
            Some(screen) if screen.stands_for(logits.as_ptr()) => None,
            _ => choice::weigh(&mut self.pool, self.isa, &mut self.found, logits, scale, chunks),
        }
    }

    fn read<'a>(&mut self, buffer: &'a mut Buffer, row: usize) -> &'a mut [f32] {
        let values = &mut buffer.values[row * buffer.width..][..buffer.width];
        if let Some(screen) = &mut self.screen {
            screen.make_logits(&mut self.pool, self.isa, &self.inputs.places(1, screen.cols()), values);
        }
        values
    }

    fn copy_block(&mut self, cache: &mut Cache, from: u32, to: u32) {
        cache.copy_block(from, to);
    }
}

/// A product whose matrix part is still to be chosen by [`multiply`].
fn base_product<'a>(
    matrix: &'a Matrix,
    bias: Option<&'a [f32]>,
    input: Input<'a>,
    rows: Range<usize>,
    output: Output,
    add: bool,
) -> Product<'a> {
    let (from, to, count) = (Rows::From(rows.start), Rows::From(rows.start), rows.len());
    Product { matrix: &matrix.parts[0], bias, input, from, to, count, output, add }
}
