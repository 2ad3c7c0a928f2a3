//! The decode kernel's weights, made on the card from those that the general path has there.

use super::super::super::weights::Weights;
use super::super::super::{Bytes, Card, CudaError, Doing, Shape, packed_bytes_8bit, packed_bytes_mxfp4};
use super::super::kernels::{Grid, Kernel, RepackKernels, arg};
use super::super::layout::Layout;
use super::super::weights::Part;
use super::super::{Cuda, Experts, Matrix, Vector};
use crate::load::Tensor;
use crate::model::GptOss;
use cudarc::driver::result;
use half::f16;
use std::ffi::c_void;

/// `Source` of `repack.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Source {
    codes: u64,
    scales: u64,
    factor: f32,
    layout: i32,
    rows: i32,
    cols: i32,
    group: i32,
    experts: i32,
}

impl Source {
    fn of(part: &Part, cols: usize, experts: usize) -> Source {
        Source {
            codes: part.codes.address,
            scales: part.scales.address,
            factor: part.factor,
            layout: part.plan.layout as i32,
            rows: part.rows as i32,
            cols: cols as i32,
            group: part.plan.group as i32,
            experts: experts as i32,
        }
    }
}

const THREADS: usize = 256;
const BLOCKS: usize = 2048;
/// Rows of the embedding that are brought at once.
const EMBEDDED_ROWS: usize = 4096;

/// What the kernel takes for granted, beside the shape: every bias, and experts as MXFP4.
pub fn check(model: &GptOss<Cuda>) -> Result<(), CudaError> {
    let whole = model.layers.iter().all(|(attention, mixture)| {
        let biases = [&attention.qkv_bias, &attention.out_bias, &attention.sinks, &mixture.router_bias];
        let expert_biases = [&mixture.gate_bias, &mixture.up_bias, &mixture.down_bias];
        biases.into_iter().chain(expert_biases).all(Option::is_some)
    });
    let experts = |experts: &Experts| experts.part.plan.layout == Layout::Fp4;
    let mxfp4 = model.layers.iter().all(|(_, w)| experts(&w.gate) && experts(&w.up) && experts(&w.down));
    match (whole, mxfp4) {
        (true, true) => Ok(()),
        (false, _) => Err(CudaError::Unsupported("a gpt-oss model without all of its biases".into())),
        (_, false) => Err(CudaError::Unsupported("experts in another format than MXFP4".into())),
    }
}

/// Bytes that the weights take.
pub fn bytes(shape: &Shape) -> usize {
    let Shape { layers, hidden, heads, experts, ffn, vocab, .. } = *shape;
    let (qkv, q) = (shape.qkv_rows(), shape.q_rows());
    let packed = packed_bytes_8bit(qkv, hidden) + packed_bytes_8bit(hidden, q);
    let expert = packed_bytes_mxfp4(2 * ffn, hidden) + packed_bytes_mxfp4(hidden, ffn);
    let vectors = 2 * qkv + 4 * hidden + heads + experts * (1 + 2 * ffn + hidden);
    let layer = packed + experts * expert + 2 * experts * hidden + 4 * vectors;
    layers * layer + vocab * (packed_bytes_8bit(1, hidden) + 4 + 2 * hidden)
}

pub struct Repack<'a> {
    pub card: &'a Card,
    pub shape: &'a Shape,
    pub kernels: RepackKernels,
}

impl Repack<'_> {
    pub fn weights(&self, model: &GptOss<Cuda>) -> Result<Weights, CudaError> {
        let Shape { layers, hidden, heads, experts, ffn, vocab, .. } = *self.shape;
        let (qkv_rows, q_rows) = (self.shape.qkv_rows(), self.shape.q_rows());
        let zeros = |bytes: usize| self.card.zeros(bytes);
        let floats = |count: usize| zeros(layers * count * 4);
        let weights = Weights {
            qkv: zeros(layers * packed_bytes_8bit(qkv_rows, hidden))?,
            qkv_scale: floats(qkv_rows)?,
            qkv_bias: floats(qkv_rows)?,
            out: zeros(layers * packed_bytes_8bit(hidden, q_rows))?,
            out_scale: floats(hidden)?,
            out_bias: floats(hidden)?,
            gate_up: zeros(layers * experts * packed_bytes_mxfp4(2 * ffn, hidden))?,
            gate_up_bias: floats(experts * 2 * ffn)?,
            down: zeros(layers * experts * packed_bytes_mxfp4(hidden, ffn))?,
            down_bias: floats(experts * hidden)?,
            head: zeros(packed_bytes_8bit(vocab, hidden))?,
            head_scale: zeros(vocab * 4)?,
            embedding: self.embedding(&model.embedding)?,
            router: zeros(layers * hidden * experts * 2)?,
            router_bias: floats(experts)?,
            attention_norm: floats(hidden)?,
            mixture_norm: floats(hidden)?,
            final_norm: zeros(hidden * 4)?,
            sinks: floats(heads)?,
            frequencies: self.card.upload(&model.rope.frequencies)?,
        };
        self.rows(&model.head.matrix, &weights.head, &weights.head_scale, 0)?;
        self.copy(Some(&model.head.norm.weight), &weights.final_norm, 0, hidden)?;
        for layer in 0..layers {
            self.attention(model, &weights, layer)?;
            self.mixture(model, &weights, layer)?;
        }
        self.card.finish()?;
        Ok(weights)
    }

    fn attention(&self, model: &GptOss<Cuda>, to: &Weights, layer: usize) -> Result<(), CudaError> {
        let w = &model.layers[layer].0;
        self.rows(&w.qkv, &to.qkv, &to.qkv_scale, layer)?;
        self.rows(&w.out, &to.out, &to.out_scale, layer)?;
        self.copy(w.qkv_bias.as_ref(), &to.qkv_bias, layer, self.shape.qkv_rows())?;
        self.copy(w.out_bias.as_ref(), &to.out_bias, layer, self.shape.hidden)?;
        self.copy(w.sinks.as_ref(), &to.sinks, layer, self.shape.heads)?;
        self.copy(Some(&w.norm.weight), &to.attention_norm, layer, self.shape.hidden)
    }

    fn mixture(&self, model: &GptOss<Cuda>, to: &Weights, layer: usize) -> Result<(), CudaError> {
        let Shape { hidden, experts, ffn, .. } = *self.shape;
        let w = &model.layers[layer].1;
        self.copy(Some(&w.norm.weight), &to.mixture_norm, layer, hidden)?;
        self.copy(w.router_bias.as_ref(), &to.router_bias, layer, experts)?;
        self.copy(w.down_bias.as_ref(), &to.down_bias, layer, experts * hidden)?;
        let gate_up = to.gate_up.address + (layer * experts * packed_bytes_mxfp4(2 * ffn, hidden)) as u64;
        let down = to.down.address + (layer * experts * packed_bytes_mxfp4(hidden, ffn)) as u64;
        self.experts(&w.gate, 2, 0, gate_up)?;
        self.experts(&w.up, 2, 1, gate_up)?;
        self.experts(&w.down, 1, 0, down)?;
        let router = to.router.address + (2 * layer * hidden * experts) as u64;
        for part in &w.router.parts {
            let source = Source::of(part, w.router.cols, 1);
            self.launch(&self.kernels.transpose, BLOCKS, [arg(&source), arg(&router)])?;
        }
        let (Some(gate), Some(up)) = (&w.gate_bias, &w.up_bias) else { return Ok(()) };
        let (gate, up, count) = (gate.values.address, up.values.address, (experts * ffn) as u64);
        let biases = to.gate_up_bias.address + 8 * layer as u64 * count;
        self.launch(&self.kernels.by_turns, BLOCKS, [arg(&gate), arg(&up), arg(&count), arg(&biases)])
    }

    /// A matrix as 8-bit rows, the `layer`-th of its kind.
    fn rows(&self, matrix: &Matrix, to: &Bytes, scales: &Bytes, layer: usize) -> Result<(), CudaError> {
        let out = to.address + (layer * packed_bytes_8bit(matrix.rows, matrix.cols)) as u64;
        let scales = scales.address + (4 * layer * matrix.rows) as u64;
        let mut first = 0i32;
        for part in &matrix.parts {
            let source = Source::of(part, matrix.cols, 1);
            let args = [arg(&source), arg(&first), arg(&scales), arg(&out)];
            self.launch(&self.kernels.rows, part.rows, args)?;
            first += part.rows as i32;
        }
        Ok(())
    }

    fn experts(&self, experts: &Experts, step: i32, offset: i32, out: u64) -> Result<(), CudaError> {
        let source = Source::of(&experts.part, experts.cols, experts.count);
        self.launch(&self.kernels.experts, BLOCKS, [arg(&source), arg(&step), arg(&offset), arg(&out)])
    }

    fn launch<const N: usize>(
        &self,
        kernel: &Kernel,
        blocks: usize,
        args: [*mut c_void; N],
    ) -> Result<(), CudaError> {
        // SAFETY: the kernel's arguments; both sides have the shape that was checked when the model was loaded.
        unsafe { kernel.launch(self.card, Grid::rows(blocks, THREADS), args) }
    }

    /// A vector of `count` floats to the `layer`-th place.
    fn copy(&self, from: Option<&Vector>, to: &Bytes, layer: usize, count: usize) -> Result<(), CudaError> {
        let Some(from) = from else { return Ok(()) };
        let (at, bytes) = (to.address + (4 * layer * count) as u64, 4 * count);
        if from.values.len() < bytes {
            return Err(CudaError::Unsupported("a vector of another length".into()));
        }
        // SAFETY: both sides have these bytes.
        unsafe { result::memcpy_dtod_async(at, from.values.address, bytes, self.card.stream.cu_stream()) }
            .doing("copying weights")
    }

    /// (vocab, hidden) f16: of bf16 in files nothing is lost but what is smaller than 6e-8.
    fn embedding(&self, table: &Tensor) -> Result<Bytes, CudaError> {
        let (rows, width) = (self.shape.vocab, table.cols());
        let mut bytes = self.card.zeros(rows * width * 2)?;
        let mut halves = vec![0u8; EMBEDDED_ROWS.min(rows) * width * 2];
        for first in (0..rows).step_by(EMBEDDED_ROWS) {
            let count = EMBEDDED_ROWS.min(rows - first);
            let halves = &mut halves[..count * width * 2];
            make_halves(table, first, halves);
            let at = first * width * 2;
            self.card
                .stream
                .memcpy_htod(halves, &mut bytes.slice.slice_mut(at..at + halves.len()))
                .doing("copying the embedding")?;
            self.card.finish()?;
        }
        Ok(bytes)
    }
}

/// Rows of a table from `first` on, as f16.
fn make_halves(table: &Tensor, first: usize, out: &mut [u8]) {
    let row_bytes = table.cols() * 2;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = (out.len() / row_bytes).div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        for (index, out) in out.chunks_mut(share * row_bytes).enumerate() {
            scope.spawn(move || {
                let mut values = vec![0.0; table.cols()];
                for (row, out) in out.chunks_exact_mut(row_bytes).enumerate() {
                    table.row_f32((first + index * share + row) % table.rows(), &mut values);
                    for (value, out) in values.iter().zip(out.chunks_exact_mut(2)) {
                        let value = value.clamp(-f16::MAX.to_f32(), f16::MAX.to_f32());
                        out.copy_from_slice(&f16::from_f32(value).to_le_bytes());
                    }
                }
            });
        }
    });
}
