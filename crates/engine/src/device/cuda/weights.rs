//! A model's weights on the card, in the kernels' layout.

use super::made_up::{HostLayer, HostModel};
use super::pack::{Packing, pack_8bit, pack_mxfp4};
use super::params::Params;
use super::shape::TILE_ROWS;
use super::{Bytes, Card, CudaError, Doing, Shape};
use cudarc::driver::{CudaModule, LaunchConfig, PushKernelArg};
use half::{bf16, f16};
use std::sync::Arc;

/// The packed matrices of a layer, in the kernels' order.
pub const LAYER_MATRICES: usize = 4;

/// Where a matrix lies, and what its levels have.
#[derive(Debug, Clone, Copy)]
pub struct Placed {
    pub address: u64,
    pub wide: bool, // levels of 8 bits
}

/// Shapes stand in `kernels/params.cuh`. What a model does not have is empty.
pub struct Weights {
    pub packed: Vec<Bytes>,                      // all of the layers' matrices
    pub matrices: Vec<[Placed; LAYER_MATRICES]>, // of each layer, in `packed`
    pub qkv_scale: Bytes,
    pub qkv_bias: Bytes,
    pub out_scale: Bytes,
    pub out_bias: Bytes,
    pub gate_up_scale: Bytes,
    pub gate_up_bias: Bytes,
    pub down_scale: Bytes,
    pub down_bias: Bytes,
    pub head: Bytes,
    pub head_scale: Bytes,
    pub embedding: Bytes,
    pub router: Bytes,
    pub router_bias: Bytes,
    pub q_norm: Bytes,
    pub k_norm: Bytes,
    pub attention_norm: Bytes,
    pub mixture_norm: Bytes,
    pub final_norm: Bytes,
    pub sinks: Bytes,
    pub frequencies: Bytes,
}

/// Matrices of all layers that have the same size, one after the other in each of four.
pub fn placed_evenly(packed: &[Bytes], layers: usize) -> Vec<[Placed; LAYER_MATRICES]> {
    let at = |stage: usize, layer: usize| {
        let offset = |bytes: &Bytes| bytes.address + (layer * (bytes.len() / layers)) as u64;
        Placed { address: packed.get(stage).map_or(0, offset), wide: false }
    };
    (0..layers).map(|layer| [at(0, layer), at(1, layer), at(2, layer), at(3, layer)]).collect()
}

impl Weights {
    /// The kernels' `matrices`.
    pub fn table(&self) -> Vec<u8> {
        let word = |placed: &Placed| placed.address | u64::from(placed.wide);
        self.matrices.iter().flatten().flat_map(|placed| word(placed).to_le_bytes()).collect()
    }

    pub fn point(&self, params: &mut Params) {
        params.qkv_scale = self.qkv_scale.address;
        params.qkv_bias = self.qkv_bias.address;
        params.out_scale = self.out_scale.address;
        params.out_bias = self.out_bias.address;
        params.gate_up_scale = self.gate_up_scale.address;
        params.gate_up_bias = self.gate_up_bias.address;
        params.down_scale = self.down_scale.address;
        params.down_bias = self.down_bias.address;
        params.head = self.head.address;
        params.head_scale = self.head_scale.address;
        params.embedding = self.embedding.address;
        params.router = self.router.address;
        params.router_bias = self.router_bias.address;
        params.q_norm = self.q_norm.address;
        params.k_norm = self.k_norm.address;
        params.attention_norm = self.attention_norm.address;
        params.mixture_norm = self.mixture_norm.address;
        params.final_norm = self.final_norm.address;
        params.sinks = self.sinks.address;
        params.frequencies = self.frequencies.address;
    }

    /// A gpt-oss model.
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
        let packed = vec![
            packed(&|l| pack_8bit(&l.qkv.values, l.qkv.cols))?,
            packed(&|l| pack_8bit(&l.out.values, l.out.cols))?,
            packed(&|l| pack_mxfp4(&l.gate.by_turns(&l.up), l.gate.cols))?,
            packed(&|l| pack_mxfp4(&l.down.blocks, l.down.cols))?,
        ];
        Ok(Weights {
            matrices: placed_evenly(&packed, shape.layers),
            packed,
            qkv_scale: all(&|l| l.qkv.scales.clone())?,
            qkv_bias: all(&|l| l.qkv_bias.clone())?,
            out_scale: all(&|l| l.out.scales.clone())?,
            out_bias: all(&|l| l.out_bias.clone())?,
            gate_up_scale: nothing(card)?,
            gate_up_bias: all(&|l| l.gate_bias.iter().zip(&l.up_bias).flat_map(|(g, u)| [*g, *u]).collect())?,
            down_scale: nothing(card)?,
            down_bias: all(&|l| l.down_bias.clone())?,
            head: card.upload(&pack_8bit(&model.head.values, model.head.cols))?,
            head_scale: card.upload(&model.head.scales)?,
            embedding: card
                .upload(&model.embedding.iter().map(|&v| f16::from_f32(v).to_bits()).collect::<Vec<u16>>())?,
            router: bf16s(routers)?,
            router_bias: all(&|l| l.router_bias.clone())?,
            q_norm: nothing(card)?,
            k_norm: nothing(card)?,
            attention_norm: all(&|l| l.attention_norm.clone())?,
            mixture_norm: all(&|l| l.mixture_norm.clone())?,
            final_norm: card.upload(&model.final_norm)?,
            sinks: all(&|l| l.sinks.clone())?,
            frequencies: card.upload(&shape.rope.frequencies)?,
        })
    }

    /// Random weights of the exact shape, made on the card. Levels have 4 bits.
    pub fn random(card: &Card, shape: &Shape, kernels: &Arc<CudaModule>) -> Result<Weights, CudaError> {
        let Shape { layers, hidden, heads, head_dim, experts, ffn, vocab, .. } = *shape;
        let (qkv_rows, q_rows) = (shape.qkv_rows(), shape.q_rows());
        let fill = Fill { card, kernels };
        let (attention, inner) = match shape.gpt_oss {
            true => (Packing::Rows8, Packing::Mxfp4),
            false => (Packing::Levels4, Packing::Levels4),
        };
        // Uniform bytes have a deviation of 74; levels of 4.6, times their scale.
        let step =
            |packing: Packing| if packing == Packing::Rows8 { 74.0 } else { 4.6 * LEVELS_SCALE as f32 };
        let row_scale = |packing: Packing, cols: usize| 1.0 / (step(packing) * (cols as f32).sqrt());
        let sizes = [
            (attention, qkv_rows, hidden),
            (attention, hidden, q_rows),
            (inner, experts * 2 * ffn, hidden),
            (inner, experts * hidden, ffn),
        ];
        let packed: Result<Vec<Bytes>, CudaError> = (1..)
            .zip(sizes)
            .map(|(seed, (packing, rows, cols))| {
                fill.packed(packing, layers * packing.bytes(rows, cols), cols, seed)
            })
            .collect();
        let packed = packed?;
        Ok(Weights {
            matrices: placed_evenly(&packed, layers),
            packed,
            qkv_scale: fill.f32(layers * qkv_rows, row_scale(attention, hidden), 0.0, 5)?,
            qkv_bias: fill.f32(layers * qkv_rows, 0.0, 0.3, 6)?,
            out_scale: fill.f32(layers * hidden, row_scale(attention, q_rows), 0.0, 7)?,
            out_bias: fill.f32(layers * hidden, 0.0, 0.1, 8)?,
            gate_up_scale: fill.f32(layers * 2 * ffn, row_scale(inner, hidden), 0.0, 9)?,
            gate_up_bias: fill.f32(layers * experts * 2 * ffn, 0.0, 0.1, 10)?,
            down_scale: fill.f32(layers * hidden, row_scale(inner, ffn), 0.0, 11)?,
            down_bias: fill.f32(layers * experts * hidden, 0.0, 0.1, 12)?,
            head: fill.packed(Packing::Rows8, Packing::Rows8.bytes(vocab, hidden), hidden, 13)?,
            head_scale: fill.f32(vocab, row_scale(Packing::Rows8, hidden), 0.0, 14)?,
            embedding: fill.f16(vocab * hidden, 1.7, 15)?,
            router: fill.bf16(layers * hidden * experts, 1.7 / (hidden as f32).sqrt(), 16)?,
            router_bias: fill.f32(layers * experts, 0.0, 0.1, 17)?,
            q_norm: fill.f32(layers * head_dim, 1.0, 0.3, 18)?,
            k_norm: fill.f32(layers * head_dim, 1.0, 0.3, 19)?,
            attention_norm: fill.f32(layers * hidden, 1.0, 0.3, 20)?,
            mixture_norm: fill.f32(layers * hidden, 1.0, 0.3, 21)?,
            final_norm: fill.f32(hidden, 1.0, 0.3, 22)?,
            sinks: fill.f32(layers * heads, 0.0, 1.0, 23)?,
            frequencies: card.upload(&shape.rope.frequencies)?,
        })
    }
}

/// Of what a model does not have.
pub fn nothing(card: &Card) -> Result<Bytes, CudaError> {
    card.zeros(4)
}

/// Of made-up levels, and the level that means 0 in sixteenths.
const LEVELS_SCALE: u32 = 128;
const LEVELS_ZERO: u32 = 120;

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

    /// Cached keys and values between -2 and 2.
    pub fn cache(&self, len: usize, seed: u64) -> Result<Bytes, CudaError> {
        let bytes = self.card.zeros(len)?;
        let kernel = self.kernels.load_function("fill_cache").doing("finding a kernel")?;
        let mut launch = self.card.stream.launch_builder(&kernel);
        let (words, seed) = (len / 4, seed << 40);
        let scale = 0x0001_0001 * u32::from(f16::ONE.to_bits()); // `Rounding` in `kernels/cache.cuh`: 1 / 64
        launch.arg(&bytes.address).arg(&words).arg(&scale).arg(&seed);
        // SAFETY: as above, with words.
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

    /// A packed matrix of random codes, whose products are about as large as their inputs.
    fn packed(&self, packing: Packing, len: usize, cols: usize, seed: u64) -> Result<Bytes, CudaError> {
        match packing {
            Packing::Rows8 | Packing::Levels8 => self.bits8(len, seed),
            Packing::Mxfp4 => {
                let scale = 126 - (3.0 * (cols as f32).sqrt()).log2() as u32;
                self.blocks(packing, len, cols, 0x0101_0101 * scale, 0x0101_0101, seed)
            }
            Packing::Levels4 => {
                let both = LEVELS_SCALE | LEVELS_ZERO << 8;
                self.blocks(packing, len, cols, both << 16 | both, 0, seed)
            }
        }
    }

    fn blocks(
        &self,
        packing: Packing,
        len: usize,
        cols: usize,
        scales: u32,
        random: u32,
        seed: u64,
    ) -> Result<Bytes, CudaError> {
        let bytes = self.card.zeros(len)?;
        let kernel = self.kernels.load_function("fill_blocks").doing("finding a kernel")?;
        let mut launch = self.card.stream.launch_builder(&kernel);
        let (words, seed, blocks) = (len / 4, seed << 40, (cols / 32) as i32);
        let block_words = (packing.bytes(TILE_ROWS, 32) / 4) as i32;
        launch
            .arg(&bytes.address)
            .arg(&words)
            .arg(&blocks)
            .arg(&block_words)
            .arg(&scales)
            .arg(&random)
            .arg(&seed);
        // SAFETY: as above, with words.
        unsafe { launch.launch(FILL) }.doing("filling memory")?;
        Ok(bytes)
    }
}
