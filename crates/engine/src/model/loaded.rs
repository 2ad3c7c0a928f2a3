//! A model on a device, ready to run batches.

use super::config::Arch;
use super::memory::{MemoryNeed, TooLarge};
use super::{Model, State, gpt_oss, llama, qwen2, qwen3, qwen3_moe};
use crate::batch::Batch;
use crate::device::{Device, DeviceError};
use crate::limits::{BATCH_LOGIT_ROWS_MAX, BATCH_ROWS_MAX};
use crate::load::{LoadError, ModelFile, Tensor};
use crate::runner::{Runner, RunnerError, RunnerFacts};
use crate::sample::{Change, Chunk};
use std::path::PathBuf;

/// Why a model cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error(transparent)]
    File(#[from] LoadError),
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(
        "{} is laid out for NVIDIA cards: use --device cuda, or make one for this device of its source, with flint quantize --device cpu",
        path.display()
    )]
    ForCards { path: PathBuf },
    #[error("the configuration names no experts, but the architecture is a mixture of them")]
    NoExperts,
}

/// Told of the bytes that are on the device so far, and of all bytes.
pub type LoadProgress<'a> = &'a mut dyn FnMut(u64, u64);

/// Brings the weights of a file to a device.
pub struct Loader<'a, D: Device> {
    pub file: &'a ModelFile,
    pub device: &'a mut D,
    progress: LoadProgress<'a>,
    done: u64, // bytes
}

impl<D: Device> Loader<'_, D> {
    pub fn tensors(&mut self, names: &[String]) -> Result<Vec<Tensor>, ModelError> {
        let tensors: Result<Vec<Tensor>, LoadError> =
            names.iter().map(|name| self.file.tensor(name)).collect();
        let tensors = tensors?;
        self.done += tensors.iter().map(|tensor| tensor.bytes() as u64).sum::<u64>();
        (self.progress)(self.done.min(self.file.bytes), self.file.bytes);
        Ok(tensors)
    }

    fn model(&mut self) -> Result<Box<dyn Model<D>>, ModelError>
    where
        D: 'static,
    {
        Ok(match self.file.config.arch {
            Arch::Llama => Box::new(llama::Llama::load(self)?),
            Arch::Qwen2 => Box::new(qwen2::Qwen2::load(self)?),
            Arch::Qwen3 => Box::new(qwen3::Qwen3::load(self)?),
            Arch::Qwen3Moe => Box::new(qwen3_moe::Qwen3Moe::load(self)?),
            Arch::GptOss => Box::new(gpt_oss::GptOss::load(self)?),
        })
    }
}

/// A model with its weights, activations and KV pool on a device.
pub struct Loaded<D: Device> {
    device: D,
    model: Box<dyn Model<D>>,
    state: State<D>,
    facts: RunnerFacts,
}

impl<D: Device + 'static> Loaded<D> {
    /// Loads a model with a pool of `kv_blocks` blocks, if it fits in memory.
    pub fn new(
        file: &ModelFile,
        mut device: D,
        kv_blocks: usize,
        progress: LoadProgress<'_>,
    ) -> Result<Loaded<D>, ModelError> {
        if !D::TAKES_TILES && file.is_for_cards() {
            return Err(ModelError::ForCards { path: file.path.clone() });
        }
        let config = &file.config;
        let weights = file.tensors().map(|tensor| device.held_bytes(tensor)).sum();
        let need = MemoryNeed::of(config, weights, kv_blocks, D::kv_head_bytes(config.head_dim));
        if let Some(available) = device.available_bytes() {
            need.check(available)?;
        }
        let mut loader = Loader { file, device: &mut device, progress, done: 0 };
        let model = loader.model()?;
        device.ready(config, BATCH_ROWS_MAX)?;
        let qkv = (config.heads + 2 * config.kv_heads) * config.head_dim;
        let state = State {
            x: device.buffer(BATCH_ROWS_MAX, config.hidden)?,
            qkv: device.buffer(BATCH_ROWS_MAX, qkv)?,
            attended: device.buffer(BATCH_ROWS_MAX, config.heads * config.head_dim)?,
            inner: device.buffer(BATCH_ROWS_MAX, config.ffn)?,
            logits: device.buffer(BATCH_LOGIT_ROWS_MAX, config.vocab)?,
            cache: device.cache(config, kv_blocks)?,
        };
        model.ready(&mut device, config, &state);
        let facts = RunnerFacts { vocab: config.vocab, context: config.context, kv_blocks };
        Ok(Loaded { device, model, state, facts })
    }

    pub fn device(&self) -> &D {
        &self.device
    }
}

impl<D: Device> Runner for Loaded<D> {
    fn facts(&self) -> RunnerFacts {
        self.facts
    }

    fn forward(&mut self, batch: &Batch) -> Result<(), RunnerError> {
        self.begin(batch)?;
        self.finish()
    }

    fn begin(&mut self, batch: &Batch) -> Result<(), RunnerError> {
        self.model.forward(&mut self.device, batch, &mut self.state);
        self.device.submit();
        Ok(())
    }

    fn finish(&mut self) -> Result<(), RunnerError> {
        self.device.finish().map_err(|error| RunnerError(error.to_string()))
    }

    fn change(&mut self, index: usize, change: &Change<'_>) {
        self.device.change(&mut self.state.logits, index, change);
    }

    fn best(&mut self, index: usize) -> Option<u32> {
        self.device.best(&self.state.logits, index)
    }

    fn weigh(&mut self, index: usize, scale: f32, chunks: &mut Vec<Chunk>) -> Option<f32> {
        self.device.weigh(&self.state.logits, index, scale, chunks)
    }

    fn chunks_of_logits(&mut self, index: usize, wanted: &[u32]) -> &mut [f32] {
        self.device.read_chunks(&mut self.state.logits, index, wanted)
    }

    fn rest(&mut self) {
        self.device.rest();
    }

    fn logits(&mut self, index: usize) -> &mut [f32] {
        self.device.read(&mut self.state.logits, index)
    }

    fn copy_block(&mut self, from: u32, to: u32) {
        self.device.copy_block(&mut self.state.cache, from, to);
    }
}
