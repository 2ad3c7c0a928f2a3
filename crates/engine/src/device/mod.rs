//! Where the arithmetic happens: a narrow seam of fused operations, not a tensor library.
//!
//! A model is a straight list of these operations. `plain` says what each one means; every other device
//! must agree with it.

#[allow(clippy::needless_range_loop, reason = "in a kernel one number indexes several arrays of a tile")]
pub mod cpu;
pub mod cuda;
pub mod plain;
pub mod scripted;

use crate::batch::Batch;
use crate::load::Tensor;
use crate::model::config::{Config, Rope};
use crate::model::{Whole, available_bytes};
use crate::sample::{Change, Chunk};

/// A device: its own layouts of weights, activations and KV, and the operations on them.
///
/// Activations are f32 with one row for each token of the batch. The residual stream is called `x`.
pub trait Device: Sized + Send {
    type Matrix: Send; // (out, in), possibly several tensors stacked
    type Experts: Send; // (experts, out, in)
    type Vector: Send; // f32 parameters
    type Table: Send; // (vocab, hidden), rows looked up by token
    type Buffer: Send; // (rows of a batch, width)
    type Cache: Send; // keys and values of all layers, in blocks

    /// It reads matrices that lie in the tiles of cards, of which no rows can be had.
    const TAKES_TILES: bool = false;

    /// Bytes of a token's key and value in one head of the KV cache.
    fn kv_head_bytes(head_dim: usize) -> usize;

    /// What the device is, in a few words, for people.
    fn describe(&self) -> String;

    /// Bytes that weights, KV and scratch can still have; `None` where nobody knows.
    fn available_bytes(&self) -> Option<u64> {
        available_bytes()
    }

    /// Bytes that a weight takes once it is loaded.
    fn held_bytes(&self, tensor: &Tensor) -> u64 {
        let bytes = tensor.bytes() as u64;
        bytes + bytes / 20
    }

    // Loading. Stacked parts have the same number of columns.
    fn matrix(&mut self, parts: &[Tensor]) -> Result<Self::Matrix, DeviceError>;
    fn experts(&mut self, tensor: &Tensor) -> Result<Self::Experts, DeviceError>;
    /// Gate and up of an MLP, of one shape, which are always read together.
    fn gated(&mut self, gate: &Tensor, up: &Tensor) -> Result<[Self::Matrix; 2], DeviceError> {
        Ok([self.matrix(std::slice::from_ref(gate))?, self.matrix(std::slice::from_ref(up))?])
    }
    /// The same of all experts.
    fn gated_experts(&mut self, gate: &Tensor, up: &Tensor) -> Result<[Self::Experts; 2], DeviceError> {
        Ok([self.experts(gate)?, self.experts(up)?])
    }
    fn vector(&mut self, parts: &[Tensor]) -> Result<Self::Vector, DeviceError>;
    fn table(&mut self, tensor: &Tensor) -> Result<Self::Table, DeviceError>;
    fn buffer(&mut self, rows: usize, width: usize) -> Result<Self::Buffer, DeviceError>;
    fn cache(&mut self, config: &Config, blocks: usize) -> Result<Self::Cache, DeviceError>;

    /// All weights are loaded: takes the scratch that batches of `rows` rows need.
    fn ready(&mut self, config: &Config, rows: usize) -> Result<(), DeviceError>;

    /// Prepares for a batch: rotary angles of its positions, scratch.
    fn begin(&mut self, rope: &Rope, batch: &Batch);

    /// `x[row] = table[token]`
    fn embed(&mut self, table: &Self::Table, batch: &Batch, x: &mut Self::Buffer);

    /// `qkv = norm(x) * weights + bias`, then heads of q and k normalised (if the model does) and turned;
    /// q scaled by `1 / sqrt(head_dim)`; k and v written to the cache.
    fn qkv(
        &mut self,
        weights: &Attention<Self>,
        x: &Self::Buffer,
        batch: &Batch,
        qkv: &mut Self::Buffer,
        cache: &mut Self::Cache,
    );

    /// Attention of each row to the cached positions of its sequence, up to itself.
    fn attend(
        &mut self,
        weights: &Attention<Self>,
        qkv: &Self::Buffer,
        batch: &Batch,
        cache: &Self::Cache,
        out: &mut Self::Buffer,
    );

    /// `x += matrix * input + bias`
    fn project_add(
        &mut self,
        matrix: &Self::Matrix,
        bias: Option<&Self::Vector>,
        input: &Self::Buffer,
        x: &mut Self::Buffer,
        batch: &Batch,
    );

    /// `hidden = silu(gate * norm(x)) * (up * norm(x))`
    fn gate_up(&mut self, weights: &Mlp<Self>, x: &Self::Buffer, hidden: &mut Self::Buffer, batch: &Batch);

    /// `x += sum over the chosen experts of share * down(activation(gate_up(norm(x))))`
    fn mixture(&mut self, weights: &Mixture<Self>, x: &mut Self::Buffer, batch: &Batch);

    /// `logits[i] = matrix * norm(x[batch.logit_rows[i]])`
    fn head(&mut self, weights: &Head<Self>, x: &Self::Buffer, batch: &Batch, logits: &mut Self::Buffer);

    /// All of a model is loaded, and there is memory left: a device that has a faster way for a token alone makes ready for it.
    fn alone_ready(&mut self, _model: &Whole<'_, Self>, _config: &Config, _cache: &Self::Cache) {}

    /// Computes a whole batch of that model in that way, if it is a token alone. Whether it did is told.
    fn forward_alone(&mut self, _batch: &Batch, _logits: &mut Self::Buffer) -> bool {
        false
    }

    /// The last operation of a batch was called: what is asked from now on is about its logits.
    fn submit(&mut self) {}

    /// Changes the `row`-th row of logits in place.
    fn change(&mut self, logits: &mut Self::Buffer, row: usize, change: &Change<'_>) {
        change.apply(self.read(logits, row));
    }

    /// The token of the largest logit of the `row`-th row of logits, where the device looks by itself.
    fn best(&mut self, _logits: &Self::Buffer, _row: usize) -> Option<u32> {
        None
    }

    /// What the `row`-th row of logits weighs: see `Runner::weigh`.
    fn weigh(
        &mut self,
        _logits: &Self::Buffer,
        _row: usize,
        _scale: f32,
        _chunks: &mut Vec<Chunk>,
    ) -> Option<f32> {
        None
    }

    /// As `read`, but only these chunks of the row need to be there.
    fn read_chunks<'a>(
        &mut self,
        buffer: &'a mut Self::Buffer,
        row: usize,
        _wanted: &[u32],
    ) -> &'a mut [f32] {
        self.read(buffer, row)
    }

    /// Nobody waits for anything: what runs ahead may end.
    fn rest(&mut self) {}

    /// Waits for what was begun. A device that computes at once is done already.
    fn finish(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Row `row` of a buffer, as the host sees it.
    fn read<'a>(&mut self, buffer: &'a mut Self::Buffer, row: usize) -> &'a mut [f32];

    /// Copies a block of the cache over another, in every layer.
    fn copy_block(&mut self, cache: &mut Self::Cache, from: u32, to: u32);
}

/// The weights of one layer's attention.
pub struct Attention<D: Device> {
    pub layer: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub window: Option<usize>, // tokens seen, itself included
    pub norm: Norm<D>,         // (hidden)
    pub qkv: D::Matrix,        // (heads * head_dim + 2 * kv_heads * head_dim, hidden)
    pub qkv_bias: Option<D::Vector>,
    pub q_norm: Option<Norm<D>>,  // (head_dim)
    pub k_norm: Option<Norm<D>>,  // (head_dim)
    pub sinks: Option<D::Vector>, // (heads) logits of a key that is always there and has no value
    pub out: D::Matrix,           // (hidden, heads * head_dim)
    pub out_bias: Option<D::Vector>,
}

/// A dense gated MLP.
pub struct Mlp<D: Device> {
    pub norm: Norm<D>,
    pub gate: D::Matrix, // (ffn, hidden)
    pub up: D::Matrix,   // (ffn, hidden)
    pub down: D::Matrix, // (hidden, ffn)
}

/// A mixture of gated experts.
pub struct Mixture<D: Device> {
    pub norm: Norm<D>,
    pub used: usize,
    pub normalize: bool, // shares of the used experts sum to 1
    pub activation: Activation,
    pub router: D::Matrix, // (experts, hidden)
    pub router_bias: Option<D::Vector>,
    pub gate: D::Experts, // (experts, ffn, hidden)
    pub gate_bias: Option<D::Vector>,
    pub up: D::Experts, // (experts, ffn, hidden)
    pub up_bias: Option<D::Vector>,
    pub down: D::Experts, // (experts, hidden, ffn)
    pub down_bias: Option<D::Vector>,
}

/// The way from the residual stream to logits.
pub struct Head<D: Device> {
    pub norm: Norm<D>,
    pub matrix: D::Matrix, // (vocab, hidden)
}

/// Root-mean-square normalisation.
pub struct Norm<D: Device> {
    pub weight: D::Vector,
    pub eps: f32,
}

/// How an expert's gate and up values become its hidden values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `gate * sigmoid(gate) * up`
    Swiglu,
    /// gpt-oss: both limited to 7, `gate * sigmoid(1.702 * gate) * (up + 1)`
    ClampedSwiglu,
}

#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    #[error(transparent)]
    OutOfMemory(#[from] cpu::OutOfMemory),
    #[error("{name}: {problem}")]
    Unsupported { name: String, problem: String },
    #[error("{0}")]
    Failed(String),
}
