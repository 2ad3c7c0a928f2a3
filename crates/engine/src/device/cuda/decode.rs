//! A model on the card that continues one sequence, greedily.

use super::card::Mapped;
use super::compile::{Build, kernels};
use super::params::{Params, Start};
use super::shape::SHARERS_MAX;
use super::weights::{Fill, Weights};
use super::{Bytes, Card, CudaError, Doing, HostModel, Shape};
use crate::limits::KV_BLOCK_TOKENS;
use cudarc::driver::sys::{CUevent_flags, CUfunction_attribute_enum};
use cudarc::driver::{CudaEvent, CudaFunction, CudaModule, LaunchConfig, PushKernelArg};
use std::sync::Arc;

/// Marks in the kernel between which it measures time: `Mark` in `kernels/decode.cu`.
pub const MARKS: [&str; 18] = [
    "embed",
    "qkv input",
    "qkv product",
    "qkv finish",
    "attend",
    "out input",
    "out product",
    "out finish",
    "gate-up input",
    "gate-up choose",
    "gate-up product",
    "gate-up finish",
    "down input",
    "down product",
    "down finish",
    "head input",
    "head product",
    "head finish",
];

pub struct Decoder {
    pub shape: Shape,
    card: Card,
    modules: Arc<CudaModule>,
    kernel: CudaFunction,
    shared_bytes: u32,
    weights: Weights,
    coarse: Bytes, // the head rounded to four bits
    scratch: Scratch,
    told: Mapped,   // stop flag, tokens
    params: Params, // as the card has them
    counted: u32,   // steps begun in all launches
}

/// Activations and counters.
struct Scratch {
    exchanged: Vec<Bytes>, // in the order of `Params`: qkv_parts to inner
    router_sums: Bytes,
    best: Bytes,
    bounds: Bytes,
    clocks: Bytes,
}

/// A sequence's KV on the card.
pub struct Sequence {
    cache: Bytes,
    blocks: Bytes,
    block_count: usize,
}

/// What one launch did.
pub struct Run {
    pub tokens: Vec<u32>,
    pub seconds: f64,
    pub logits: Option<Vec<f32>>, // (steps, vocab)
    pub clocks_ns: Vec<u64>,      // (MARKS)
}

/// Tokens that one launch tells the host of, at most. `Best` in `kernels/decode.cu` has 13 bits for the step.
pub const STEPS_MAX: usize = 4096;
const ROUTER_SUM_STRIDE: usize = 16; // `SUM_STRIDE` in `kernels/router.cuh`
const BRING_THREADS: u32 = 256;
const BOUND_STRIDE: usize = 32; // words: `BOUND_STRIDE` in `kernels/screen.cuh`
const ROUNDING: LaunchConfig =
    LaunchConfig { grid_dim: (1024, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
const ODD_LOGIT: u32 = u32::MAX; // `ODD_LOGIT` in `kernels/params.cuh`
const TOLD_STOP: usize = 0;
const TOLD_TOKENS: usize = 32; // words: another cache line than the flag

/// What a step ended with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    Token(u32), // of the largest logit
    Odd,        // which is infinite or not a number
}

impl Told {
    fn token(self) -> u32 {
        match self {
            Told::Token(token) => token,
            Told::Odd => 0,
        }
    }
}

impl Decoder {
    pub fn with_model(
        card: Card,
        shape: Shape,
        model: &HostModel,
        build: &Build,
    ) -> Result<Decoder, CudaError> {
        Decoder::new(card, shape, build, |card, shape, _| Weights::upload(card, shape, model))
    }

    /// Weights made on the card.
    pub fn with_random_weights(card: Card, shape: Shape, build: &Build) -> Result<Decoder, CudaError> {
        Decoder::new(card, shape, build, Weights::random)
    }

    pub fn new(
        card: Card,
        shape: Shape,
        build: &Build,
        weights: impl FnOnce(&Card, &Shape, &Arc<CudaModule>) -> Result<Weights, CudaError>,
    ) -> Result<Decoder, CudaError> {
        let modules = kernels(&card, &shape, build)?;
        let kernel = modules.load_function("decode_steps").doing("finding a kernel")?;
        let shared_bytes = shared_bytes(&card, &modules)?;
        kernel
            .set_attribute(
                CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                shared_bytes as i32,
            )
            .doing("asking for shared memory")?;
        let weights = weights(&card, &shape, &modules)?;
        let mut table = modules.get_global("matrices", &card.stream).doing("finding a constant")?;
        card.stream.memcpy_htod(&weights.table(), &mut table).doing("setting the matrices' places")?;
        let coarse = rounded(&card, &shape, &modules, &weights)?;
        card.finish()?;
        let scratch = Scratch::new(&card, &shape)?;
        let told = Mapped::new(&card, TOLD_TOKENS + STEPS_MAX)?;
        let params = Params::default();
        Ok(Decoder {
            shape,
            card,
            modules,
            kernel,
            shared_bytes,
            weights,
            coarse,
            scratch,
            told,
            params,
            counted: 0,
        })
    }

    pub fn card(&self) -> &Card {
        &self.card
    }

    /// Registers a thread and bytes of spilled ones.
    pub fn registers(&self) -> Result<(i32, i32), CudaError> {
        Ok((
            self.kernel.num_regs().doing("asking for registers")?,
            self.kernel.local_size_bytes().doing("asking for registers")?,
        ))
    }

    /// Room for `tokens` tokens, in blocks that lie in the order `order` gives them.
    pub fn sequence(&self, tokens: usize, order: impl Fn(u32) -> u32) -> Result<Sequence, CudaError> {
        let block_count = tokens.div_ceil(KV_BLOCK_TOKENS);
        let table: Vec<u32> = (0..block_count as u32).map(order).collect();
        if table.iter().any(|&block| block as usize >= block_count) {
            return Err(CudaError::Unsupported("a block table that points outside the cache".into()));
        }
        let fill = Fill { card: &self.card, kernels: &self.modules };
        let cache = fill.cache(self.shape.cache_bytes(block_count), 20)?;
        Ok(Sequence { cache, blocks: self.card.upload(&table)?, block_count })
    }

    /// Makes `steps` tokens from `position` on. The first inputs are `forced`, the later ones what the model said.
    pub fn run(
        &mut self,
        sequence: &Sequence,
        position: usize,
        forced: &[u32],
        steps: usize,
        want_logits: bool,
    ) -> Result<Run, CudaError> {
        self.check(sequence, position, forced, steps)?;
        let forced_tokens = self.card.upload(forced)?;
        let logits = match want_logits {
            // NaN everywhere: what is not written shows.
            true => Some(self.card.upload(&vec![f32::NAN; steps * self.shape.vocab])?),
            false => None,
        };
        let mut params = self.params(sequence.cache.address, sequence.blocks.address, sequence.block_count);
        params.logits = logits.as_ref().map_or(0, |logits| logits.address);
        self.set(params)?;
        self.card.stream.memset_zeros(&mut self.scratch.clocks.slice).doing("clearing clocks")?;
        let start = Start {
            forced: forced_tokens.address,
            forced_count: forced.len() as u32,
            token: forced[0],
            position: position as u32,
            steps: steps as u32,
            screened: u32::from(!want_logits),
            ..Start::default()
        };
        let begun = self.event()?;
        self.begin(start)?;
        let ended = self.event()?;
        self.card.finish()?;
        let seconds = f64::from(begun.elapsed_ms(&ended).doing("measuring time")?) / 1000.0;
        let clocks = self.card.stream.clone_dtoh(&self.scratch.clocks.slice).doing("reading clocks")?;
        Ok(Run {
            tokens: (0..steps).map_while(|step| self.told(step)).map(Told::token).collect(),
            seconds,
            logits: logits.map(|l| self.card.download_f32(&l, steps * self.shape.vocab)).transpose()?,
            clocks_ns: clocks
                .chunks_exact(8)
                .map(|b| u64::from_le_bytes(b.try_into().unwrap_or_default()))
                .collect(),
        })
    }

    fn check(
        &self,
        sequence: &Sequence,
        position: usize,
        forced: &[u32],
        steps: usize,
    ) -> Result<(), CudaError> {
        let problem = if forced.is_empty() || steps == 0 || steps > STEPS_MAX {
            format!("{steps} steps with {} given tokens", forced.len())
        } else if forced.iter().any(|&token| token as usize >= self.shape.vocab) {
            "a token outside the vocabulary".into()
        } else if position + steps > sequence.block_count * KV_BLOCK_TOKENS {
            format!("{} tokens in a sequence of {} blocks", position + steps, sequence.block_count)
        } else {
            return Ok(());
        };
        Err(CudaError::Unsupported(problem))
    }

    /// With this cache, whose blocks `table` lists in order.
    pub fn params(&self, cache: u64, table: u64, cache_blocks: usize) -> Params {
        let mut params =
            Params { cache, blocks: table, cache_blocks: cache_blocks as u32, ..Params::default() };
        self.weights.point(&mut params);
        params.head_coarse = self.coarse.address;
        self.scratch.point(&mut params);
        params.stop = self.told.at(TOLD_STOP);
        params.told_tokens = self.told.at(TOLD_TOKENS);
        params.norm_eps = self.shape.norm_eps;
        params.rope_magnitude = self.shape.rope.magnitude;
        params
    }

    /// Gives the kernels their parameters.
    pub fn set(&mut self, params: Params) -> Result<(), CudaError> {
        if params == self.params {
            return Ok(());
        }
        let mut constant =
            self.modules.get_global("params", &self.card.stream).doing("finding a constant")?;
        self.card.stream.memcpy_htod(params.bytes(), &mut constant).doing("setting parameters")?;
        self.params = params;
        Ok(())
    }

    /// Begins to make tokens. The launch before must be over, or at its end.
    pub fn begin(&mut self, start: Start) -> Result<(), CudaError> {
        // Words carry their layer's number in two bits. With layers in fours, what a launch leaves behind has the number
        // before the first; otherwise it must go.
        if self.counted == 0 || !self.shape.layers.is_multiple_of(4) {
            self.scratch.clear(&self.card)?;
        }
        self.told.set(TOLD_STOP, 0);
        (0..start.steps as usize).for_each(|step| self.told.set(TOLD_TOKENS + step, 0));
        let start = Start { counted: self.counted, ..start };
        self.counted = self.counted.wrapping_add(start.steps);
        let config = LaunchConfig {
            grid_dim: (self.shape.grid as u32, 1, 1),
            block_dim: (self.shape.threads(), 1, 1),
            shared_mem_bytes: self.shared_bytes,
        };
        let mut launch = self.card.stream.launch_builder(&self.kernel);
        launch.arg(&start);
        // SAFETY: the parameters are the kernel's struct and point to buffers of the shapes it was compiled for, all
        // of which outlive the launch. Cooperative: all blocks are there at once, so waiting for one another ends.
        unsafe { launch.launch_cooperative(config) }.doing("launching the decode kernel")?;
        Ok(())
    }

    /// What the launch said at its `step`-th step, once it is there.
    pub fn told(&self, step: usize) -> Option<Told> {
        match self.told.get(TOLD_TOKENS + step) {
            0 => None,
            ODD_LOGIT => Some(Told::Odd),
            more => Some(Told::Token(more - 1)),
        }
    }

    /// The launch ends with the step that it is in, or with the one after.
    pub fn stop(&self) {
        self.told.set(TOLD_STOP, 1);
    }

    /// Brings blocks of the general path's cache, `count` that are listed at `list`.
    pub fn bring(&self, list: u64, count: usize) -> Result<(), CudaError> {
        let kernel = self.modules.load_function("bring_blocks").doing("finding a kernel")?;
        let config = LaunchConfig {
            grid_dim: (count as u32, self.shape.layers as u32, self.shape.kv_heads as u32),
            block_dim: (BRING_THREADS, 1, 1),
            shared_mem_bytes: 0,
        };
        let mut launch = self.card.stream.launch_builder(&kernel);
        launch.arg(&list);
        // SAFETY: the list has `count` blocks of both caches, which the parameters point to.
        unsafe { launch.launch(config) }.doing("bringing keys and values")?;
        Ok(())
    }

    fn event(&self) -> Result<CudaEvent, CudaError> {
        self.card.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).doing("measuring time")
    }
}

/// The head's levels rounded to four bits.
fn rounded(
    card: &Card,
    shape: &Shape,
    modules: &Arc<CudaModule>,
    weights: &Weights,
) -> Result<Bytes, CudaError> {
    let coarse = card.zeros(shape.coarse_bytes())?;
    let kernel = modules.load_function("round_rows").doing("finding a kernel")?;
    let mut launch = card.stream.launch_builder(&kernel);
    launch.arg(&weights.head.address).arg(&coarse.address);
    // SAFETY: both are packed matrices of the shape that the kernel was compiled for.
    unsafe { launch.launch(ROUNDING) }.doing("rounding the head")?;
    Ok(coarse)
}

/// What the kernels' `Shared` takes.
fn shared_bytes(card: &Card, modules: &Arc<CudaModule>) -> Result<u32, CudaError> {
    let global = modules.get_global("shared_bytes", &card.stream).doing("finding a constant")?;
    let bytes: Vec<u8> = card.stream.clone_dtoh(&global).doing("reading a constant")?;
    card.finish()?;
    let word = bytes.first_chunk::<4>().copied().unwrap_or_default();
    Ok(u32::from_le_bytes(word))
}

impl Scratch {
    fn new(card: &Card, shape: &Shape) -> Result<Scratch, CudaError> {
        let splits = shape.grid / shape.kv_heads;
        let heads = shape.heads * splits;
        let exchanged = [
            4 * SHARERS_MAX * shape.qkv_rows(),
            2 * SHARERS_MAX * shape.hidden,
            2 * SHARERS_MAX * shape.hidden,
            4 * heads * shape.head_dim,
            4 * heads,
            2 * shape.q_rows(),
            2 * shape.used * shape.ffn,
        ];
        Ok(Scratch {
            exchanged: exchanged.into_iter().map(|bytes| card.zeros(bytes)).collect::<Result<_, _>>()?,
            router_sums: card.zeros(8 * ROUTER_SUM_STRIDE * shape.layers * shape.experts)?,
            best: card.zeros(8 * shape.grid)?,
            bounds: card.zeros(2 * 4 * BOUND_STRIDE)?,
            clocks: card.zeros(8 * MARKS.len())?,
        })
    }

    /// No word may have a tag of the layers to come.
    fn clear(&mut self, card: &Card) -> Result<(), CudaError> {
        for bytes in self.exchanged.iter_mut().chain([&mut self.best, &mut self.clocks]) {
            card.stream.memset_zeros(&mut bytes.slice).doing("clearing counters")?;
        }
        Ok(())
    }

    fn point(&self, params: &mut Params) {
        let exchanged = [
            &mut params.qkv_parts,
            &mut params.out_parts,
            &mut params.down_parts,
            &mut params.partial_values,
            &mut params.partial_weights,
            &mut params.attended,
            &mut params.inner,
        ];
        for (to, bytes) in exchanged.into_iter().zip(&self.exchanged) {
            *to = bytes.address;
        }
        params.router_sums = self.router_sums.address;
        params.best = self.best.address;
        params.bounds = self.bounds.address;
        params.clocks = self.clocks.address;
    }
}
