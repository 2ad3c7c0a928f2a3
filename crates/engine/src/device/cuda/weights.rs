//! A model's weights on the card, in the kernels' layout.

use super::made_up::{HostLayer, HostModel};
use super::pack::{pack_8bit, pack_mxfp4, packed_bytes_8bit, packed_bytes_mxfp4};
use super::params::Params;
use super::{Bytes, Card, CudaError, Doing, Shape};
use cudarc::driver::{CudaModule, LaunchConfig, PushKernelArg};
use half::{bf16, f16};
use std::sync::Arc;

/// Shapes stand in `kernels/params.cuh`.
pub struct Weights {
    pub qkv: Bytes,
    pub qkv_scale: Bytes,
    pub qkv_bias: Bytes,
    pub out: Bytes,
    pub out_scale: Bytes,
    pub out_bias: Bytes,
    pub gate_up: Bytes,
    pub gate_up_bias: Bytes,
    pub down: Bytes,
    pub down_bias: Bytes,
    pub head: Bytes,
    pub head_scale: Bytes,
    pub embedding: Bytes,
    pub router: Bytes,
    pub router_bias: Bytes,
    pub attention_norm: Bytes,
    pub mixture_norm: Bytes,
    pub final_norm: Bytes,
    pub sinks: Bytes,
    pub frequencies: Bytes,
}

impl Weights {
    pub fn point(&self, params: &mut Params) {
        params.qkv = self.qkv.address;
        params.qkv_scale = self.qkv_scale.address;
        params.qkv_bias = self.qkv_bias.address;
        params.out = self.out.address;
        params.out_scale = self.out_scale.address;
        params.out_bias = self.out_bias.address;
        params.gate_up = self.gate_up.address;
        params.gate_up_bias = self.gate_up_bias.address;
        params.down = self.down.address;
        params.down_bias = self.down_bias.address;
        params.head = self.head.address;
        params.head_scale = self.head_scale.address;
        params.embedding = self.embedding.address;
        params.router = self.router.address;
        params.router_bias = self.router_bias.address;
        params.attention_norm = self.attention_norm.address;
        params.mixture_norm = self.mixture_norm.address;
        params.final_norm = self.final_norm.address;
        params.sinks = self.sinks.address;
        params.frequencies = self.frequencies.address;
    }

    pub fn upload(card: &Card, shape: &Shape, model: &HostModel) -> Result<Weights, CudaError> {
        let all = |part: &dyn Fn(&HostLayer) -> Vec<f32>| {
            card.upload(&model.layers.iter().flat_map(part).collect::<Vec<f32>>())
        };
        let packed = |part: &dyn Fn(&HostLayer) -> Vec<u8>| {
            card.upload(&model.layers.iter().flat_map(part).collect::<Vec<u8>>())
        };
        let bf16s = |values: Vec<f32>| {
            card.upload(&values.into_iter().map(|v| bf16::from_f32(v).to_bits()).collect::<Vec<u16>>())
        };
        let routers = model.layers.iter().flat_map(|l| transposed(&l.router, shape.experts)).collect();
        Ok(Weights {
            qkv: packed(&|l| pack_8bit(&l.qkv.values, l.qkv.cols))?,
            qkv_scale: all(&|l| l.qkv.scales.clone())?,
            qkv_bias: all(&|l| l.qkv_bias.clone())?,
            out: packed(&|l| pack_8bit(&l.out.values, l.out.cols))?,
            out_scale: all(&|l| l.out.scales.clone())?,
            out_bias: all(&|l| l.out_bias.clone())?,
            gate_up: packed(&|l| pack_mxfp4(&l.gate.by_turns(&l.up), l.gate.cols))?,
            gate_up_bias: all(&|l| l.gate_bias.iter().zip(&l.up_bias).flat_map(|(g, u)| [*g, *u]).collect())?,
            down: packed(&|l| pack_mxfp4(&l.down.blocks, l.down.cols))?,
            down_bias: all(&|l| l.down_bias.clone())?,
            head: card.upload(&pack_8bit(&model.head.values, model.head.cols))?,
            head_scale: card.upload(&model.head.scales)?,
            embedding: card
                .upload(&model.embedding.iter().map(|&v| f16::from_f32(v).to_bits()).collect::<Vec<u16>>())?,
            router: bf16s(routers)?,
            router_bias: all(&|l| l.router_bias.clone())?,
            attention_norm: all(&|l| l.attention_norm.clone())?,
            mixture_norm: all(&|l| l.mixture_norm.clone())?,
            final_norm: card.upload(&model.final_norm)?,
            sinks: all(&|l| l.sinks.clone())?,
            frequencies: card.upload(&shape.rope.frequencies)?,
        })
    }

    /// Random weights of the exact shape, made on the card.
    pub fn random(card: &Card, shape: &Shape, kernels: &Arc<CudaModule>) -> Result<Weights, CudaError> {
        let Shape { layers, hidden, heads, experts, ffn, vocab, .. } = *shape;
        let (qkv_rows, q_rows) = (shape.qkv_rows(), shape.q_rows());
        let fill = Fill { card, kernels };
        let row_scale = |cols: usize| 1.0 / (74.0 * (cols as f32).sqrt()); // uniform bytes have an rms of 74
        Ok(Weights {
            qkv: fill.bits8(layers * packed_bytes_8bit(qkv_rows, hidden), 1)?,
            qkv_scale: fill.f32(layers * qkv_rows, row_scale(hidden), 0.0, 2)?,
            qkv_bias: fill.f32(layers * qkv_rows, 0.0, 0.3, 3)?,
            out: fill.bits8(layers * packed_bytes_8bit(hidden, q_rows), 4)?,
            out_scale: fill.f32(layers * hidden, row_scale(q_rows), 0.0, 5)?,
            out_bias: fill.f32(layers * hidden, 0.0, 0.1, 6)?,
            gate_up: fill.mxfp4(layers * experts * packed_bytes_mxfp4(2 * ffn, hidden), hidden, 7)?,
            gate_up_bias: fill.f32(layers * experts * 2 * ffn, 0.0, 0.1, 8)?,
            down: fill.mxfp4(layers * experts * packed_bytes_mxfp4(hidden, ffn), ffn, 9)?,
            down_bias: fill.f32(layers * experts * hidden, 0.0, 0.1, 10)?,
            head: fill.bits8(packed_bytes_8bit(vocab, hidden), 11)?,
            head_scale: fill.f32(vocab, row_scale(hidden), 0.0, 12)?,
            embedding: fill.f16(vocab * hidden, 1.7, 13)?,
            router: fill.bf16(layers * hidden * experts, 1.7 / (hidden as f32).sqrt(), 14)?,
            router_bias: fill.f32(layers * experts, 0.0, 0.1, 15)?,
            attention_norm: fill.f32(layers * hidden, 1.0, 0.3, 16)?,
            mixture_norm: fill.f32(layers * hidden, 1.0, 0.3, 17)?,
            final_norm: fill.f32(hidden, 1.0, 0.3, 18)?,
            sinks: fill.f32(layers * heads, 0.0, 1.0, 19)?,
            frequencies: card.upload(&shape.rope.frequencies)?,
        })
    }
}

fn transposed(values: &[f32], rows: usize) -> Vec<f32> {
    let cols = values.len() / rows;
    (0..cols).flat_map(|col| (0..rows).map(move |row| values[row * cols + col])).collect()
}

/// Fills memory with random values.
pub struct Fill<'a> {
    pub card: &'a Card,
    pub kernels: &'a Arc<CudaModule>,
}

const FILL: LaunchConfig =
    LaunchConfig { grid_dim: (1024, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };

impl Fill<'_> {
    pub fn f32(&self, count: usize, middle: f32, spread: f32, seed: u64) -> Result<Bytes, CudaError> {
        let bytes = self.card.zeros(count * 4)?;
        let kernel = self.kernels.load_function("fill_f32").doing("finding a kernel")?;
        let mut launch = self.card.stream.launch_builder(&kernel);
        let seed = seed << 40;
        launch.arg(&bytes.address).arg(&count).arg(&middle).arg(&spread).arg(&seed);
        // SAFETY: the kernel writes `count` floats, and the bytes hold as many.
        unsafe { launch.launch(FILL) }.doing("filling memory")?;
        Ok(bytes)
    }

    pub fn f16(&self, count: usize, spread: f32, seed: u64) -> Result<Bytes, CudaError> {
        self.halves("fill_f16", count, spread, seed)
    }

    fn bf16(&self, count: usize, spread: f32, seed: u64) -> Result<Bytes, CudaError> {
        self.halves("fill_bf16", count, spread, seed)
    }

    fn halves(&self, kernel: &str, count: usize, spread: f32, seed: u64) -> Result<Bytes, CudaError> {
        let bytes = self.card.zeros(count * 2)?;
        let kernel = self.kernels.load_function(kernel).doing("finding a kernel")?;
        let mut launch = self.card.stream.launch_builder(&kernel);
        let seed = seed << 40;
        launch.arg(&bytes.address).arg(&count).arg(&spread).arg(&seed);
        // SAFETY: as above, with halves.
        unsafe { launch.launch(FILL) }.doing("filling memory")?;
        Ok(bytes)
    }

    fn bits8(&self, len: usize, seed: u64) -> Result<Bytes, CudaError> {
        let bytes = self.card.zeros(len)?;
        let kernel = self.kernels.load_function("fill_8bit").doing("finding a kernel")?;
        let mut launch = self.card.stream.launch_builder(&kernel);
        let (words, seed) = (len / 4, seed << 40);
        launch.arg(&bytes.address).arg(&words).arg(&seed);
        // SAFETY: as above, with words.
        unsafe { launch.launch(FILL) }.doing("filling memory")?;
        Ok(bytes)
    }

    fn mxfp4(&self, len: usize, cols: usize, seed: u64) -> Result<Bytes, CudaError> {
        let bytes = self.card.zeros(len)?;
        let kernel = self.kernels.load_function("fill_mxfp4").doing("finding a kernel")?;
        let mut launch = self.card.stream.launch_builder(&kernel);
        let (words, seed, blocks) = (len / 4, seed << 40, (cols / 32) as i32);
        let scale = 126 - (3.0 * (cols as f32).sqrt()).log2() as i32;
        launch.arg(&bytes.address).arg(&words).arg(&blocks).arg(&scale).arg(&seed);
        // SAFETY: as above, with words.
        unsafe { launch.launch(FILL) }.doing("filling memory")?;
        Ok(bytes)
    }
}
