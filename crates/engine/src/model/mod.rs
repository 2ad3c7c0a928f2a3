//! What a model is: its sizes, and which operations make a token.
//!
//! One file an architecture. Each is a list of weights and, in `forward`, the operations on them in the
//! order in which a paper would write them down.

pub mod config;
mod gpt_oss;
mod llama;
mod loaded;
mod memory;
mod qwen2;
mod qwen3;
mod qwen3_moe;
mod weights;

pub use loaded::{LoadProgress, Loaded, ModelError};
pub use memory::{MemoryNeed, TooLarge, available_bytes};

use crate::batch::Batch;
use crate::device::{Attention, Device, Head, Mixture, Mlp};
use config::{Config, Rope};

/// An architecture with its weights on a device.
pub trait Model<D: Device>: Send {
    /// Computes a batch: KV of every row into the cache, logits of the rows that want them.
    fn forward(&self, device: &mut D, batch: &Batch, state: &mut State<D>);

    /// Everything is loaded, and all memory that must be had is taken: what is left may serve to be faster.
    fn ready(&self, _device: &mut D, _config: &Config, _state: &State<D>) {}
}

/// A loaded model's weights, whatever its architecture.
pub struct Whole<'a, D: Device> {
    pub rope: &'a Rope,
    pub embedding: &'a D::Table,
    pub layers: Vec<(&'a Attention<D>, Ffn<'a, D>)>,
    pub head: &'a Head<D>,
}

/// What follows attention in a layer.
pub enum Ffn<'a, D: Device> {
    Mlp(&'a Mlp<D>),
    Mixture(&'a Mixture<D>),
}

/// The activations of one batch, and the KV of all sequences.
pub struct State<D: Device> {
    pub x: D::Buffer,        // (rows, hidden) the residual stream
    pub qkv: D::Buffer,      // (rows, (heads + 2 kv_heads) * head_dim)
    pub attended: D::Buffer, // (rows, heads * head_dim)
    pub inner: D::Buffer,    // (rows, ffn)
    pub logits: D::Buffer,   // (logit rows, vocab)
    pub cache: D::Cache,
}
