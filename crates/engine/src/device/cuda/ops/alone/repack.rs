//! The decode kernel's weights, made on the card from those that the general path has there.

use super::super::super::weights::{Placed, Weights, nothing};
use super::super::super::{Bytes, Card, CudaError, Doing, Packing, Shape};
use super::super::kernels::{Grid, Kernel, RepackKernels, arg};
use super::super::layout::Layout;
use super::super::weights::Part;
use super::super::{Cuda, Vector};
use super::stacked::{Stacked, stacked};
use crate::device::{Activation, Attention, Mixture};
use crate::load::Tensor;
use crate::model::{Ffn, Whole};
use cudarc::driver::result;
use half::f16;
use std::ffi::c_void;

/// `Source` of `repack.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Source {
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
    pub fn of(part: &Part, cols: usize, experts: usize) -> Source {
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

pub const THREADS: usize = 256;
const BLOCKS: usize = 2048;
/// Rows of the embedding that are brought at once.
const EMBEDDED_ROWS: usize = 4096;

type Model<'a> = Whole<'a, Cuda>;

/// What the kernel takes for granted, beside the shape. Of gpt-oss: every bias, and experts as MXFP4.
pub fn check(shape: &Shape, model: &Model<'_>) -> Result<(), CudaError> {
    let known = model.layers.iter().all(|(attention, ffn)| match (shape.gpt_oss, ffn) {
        (true, Ffn::Mixture(mixture)) => {
            let biases = [&attention.qkv_bias, &attention.out_bias, &attention.sinks, &mixture.router_bias];
            let experts = [&mixture.gate, &mixture.up, &mixture.down].map(|experts| experts.part.plan.layout);
            let whole = biases.into_iter().chain(expert_biases(mixture)).all(Option::is_some);
            whole && experts == [Layout::Fp4; 3]
        }
        (true, Ffn::Mlp(_)) => false,
        (false, Ffn::Mixture(mixture)) => {
            expert_biases(mixture).into_iter().all(Option::is_none)
                && mixture.activation == Activation::Swiglu
        }
        (false, Ffn::Mlp(_)) => true,
    });
    match (known, shape.gpt_oss) {
        (true, _) => Ok(()),
        (_, true) => Err(CudaError::Unsupported("gpt-oss without all of its biases, or not MXFP4".into())),
        (_, false) => Err(CudaError::Unsupported("the decode kernel knows no such experts".into())),
    }
}

fn expert_biases(mixture: &Mixture<Cuda>) -> [&Option<Vector>; 3] {
    [&mixture.gate_bias, &mixture.up_bias, &mixture.down_bias]
}

/// A bit for each of a layer's matrices that is packed with 8 bits in some layer.
pub fn wide_stages(shape: &Shape, model: &Model<'_>) -> Result<usize, CudaError> {
    let mut stages = 0;
    for (attention, ffn) in &model.layers {
        for (stage, matrix) in stacked(shape, attention, ffn)?.iter().enumerate() {
            stages |= usize::from(matrix.packing == Packing::Levels8) << stage;
        }
    }
    Ok(stages)
}

/// Bytes that the weights take.
pub fn bytes(shape: &Shape, model: &Model<'_>) -> Result<usize, CudaError> {
    let Shape { hidden, heads, head_dim, experts, ffn, vocab, .. } = *shape;
    let expert_biases = if shape.gpt_oss { experts * (2 * ffn + hidden) } else { 0 };
    let vectors =
        2 * shape.qkv_rows() + 5 * hidden + 2 * ffn + heads + 2 * head_dim + experts + expert_biases;
    let router = if shape.routed { 2 * experts * hidden } else { 0 };
    let mut bytes = vocab * (Packing::Rows8.bytes(1, hidden) + 4 + 2 * hidden) + shape.coarse_bytes();
    for (attention, ffn) in &model.layers {
        let packed: usize = stacked(shape, attention, ffn)?.iter().map(Stacked::bytes).sum();
        bytes += packed + router + 4 * vectors;
    }
    Ok(bytes)
}

pub struct Repack<'a> {
    pub card: &'a Card,
    pub shape: &'a Shape,
    pub kernels: RepackKernels,
}

impl Repack<'_> {
    pub fn weights(&self, model: &Model<'_>) -> Result<Weights, CudaError> {
        let mut weights = self.room(model)?;
        let head = Stacked::of_matrix(Some(Packing::Rows8), &model.head.matrix);
        self.pack(&head, weights.head.address, weights.head_scale.address)?;
        self.copy(Some(&model.head.norm.weight), &weights.final_norm, 0, self.shape.hidden)?;
        for (layer, (attention, ffn)) in model.layers.iter().enumerate() {
            self.matrices(&mut weights, layer, attention, ffn)?;
            self.attention(attention, &weights, layer)?;
            match ffn {
                Ffn::Mlp(w) => {
                    self.copy(Some(&w.norm.weight), &weights.mixture_norm, layer, self.shape.hidden)?
                }
                Ffn::Mixture(w) => self.mixture(w, &weights, layer)?,
            }
        }
        self.card.finish()?;
        Ok(weights)
    }

    /// Everything but the layers' matrices, still empty: biases are zero, and sinks are what no query sees.
    fn room(&self, model: &Model<'_>) -> Result<Weights, CudaError> {
        let Shape { layers, hidden, heads, head_dim, experts, ffn, vocab, gpt_oss, .. } = *self.shape;
        let zeros = |bytes: usize| self.card.zeros(bytes);
        let floats = |count: usize| zeros(layers * count * 4);
        let floats_if = |wanted: bool, count: usize| if wanted { floats(count) } else { nothing(self.card) };
        let router = if self.shape.routed { layers * hidden * experts * 2 } else { 4 };
        Ok(Weights {
            packed: Vec::new(),
            matrices: Vec::new(),
            qkv_scale: floats(self.shape.qkv_rows())?,
            qkv_bias: floats(self.shape.qkv_rows())?,
            out_scale: floats(hidden)?,
            out_bias: floats(hidden)?,
            gate_up_scale: floats(2 * ffn)?,
            gate_up_bias: floats_if(gpt_oss, experts * 2 * ffn)?,
            down_scale: floats(hidden)?,
            down_bias: floats_if(gpt_oss, experts * hidden)?,
            head: zeros(Packing::Rows8.bytes(vocab, hidden))?,
            head_scale: zeros(vocab * 4)?,
            embedding: self.embedding(model.embedding)?,
            router: zeros(router)?,
            router_bias: floats(experts)?,
            q_norm: floats(head_dim)?,
            k_norm: floats(head_dim)?,
            attention_norm: floats(hidden)?,
            mixture_norm: floats(hidden)?,
            final_norm: zeros(hidden * 4)?,
            sinks: self.card.upload(&vec![f32::NEG_INFINITY; layers * heads])?,
            frequencies: self.card.upload(&model.rope.frequencies)?,
        })
    }

    fn matrices(
        &self,
        to: &mut Weights,
        layer: usize,
        attention: &Attention<Cuda>,
        ffn: &Ffn<'_, Cuda>,
    ) -> Result<(), CudaError> {
        let stacked = stacked(self.shape, attention, ffn)?;
        let scales = [&to.qkv_scale, &to.out_scale, &to.gate_up_scale, &to.down_scale];
        let scales = scales.map(|scales| scales.address + (scales.len() / self.shape.layers * layer) as u64);
        let mut placed = [Placed { address: 0, wide: false }; 4];
        for ((matrix, scales), placed) in stacked.iter().zip(scales).zip(&mut placed) {
            let bytes = self.card.zeros(matrix.bytes())?;
            self.pack(matrix, bytes.address, scales)?;
            *placed = Placed { address: bytes.address, wide: matrix.packing == Packing::Levels8 };
            to.packed.push(bytes);
        }
        to.matrices.push(placed);
        Ok(())
    }

    /// A packed matrix, and the factors on its rows.
    fn pack(&self, matrix: &Stacked<'_>, out: u64, scales: u64) -> Result<(), CudaError> {
        for laid in &matrix.parts {
            let source = Source::of(laid.part, matrix.cols, matrix.experts);
            let (step, offset, all_rows) = (laid.step as i32, laid.offset as i32, matrix.rows as i32);
            let levels = [arg(&source), arg(&step), arg(&offset), arg(&all_rows), arg(&scales), arg(&out)];
            match matrix.packing {
                Packing::Rows8 => {
                    let args = [arg(&source), arg(&offset), arg(&scales), arg(&out)];
                    self.launch(&self.kernels.rows, laid.part.rows, args)?;
                }
                Packing::Mxfp4 => {
                    let args = [arg(&source), arg(&step), arg(&offset), arg(&out)];
                    self.launch(&self.kernels.experts, BLOCKS, args)?;
                }
                Packing::Levels4 => self.launch(&self.kernels.levels4, laid.part.rows, levels)?,
                Packing::Levels8 => self.launch(&self.kernels.levels8, BLOCKS, levels)?,
            }
        }
        Ok(())
    }

    fn attention(&self, w: &Attention<Cuda>, to: &Weights, layer: usize) -> Result<(), CudaError> {
        let Shape { hidden, heads, head_dim, .. } = *self.shape;
        self.copy(w.qkv_bias.as_ref(), &to.qkv_bias, layer, self.shape.qkv_rows())?;
        self.copy(w.out_bias.as_ref(), &to.out_bias, layer, hidden)?;
        self.copy(w.sinks.as_ref(), &to.sinks, layer, heads)?;
        self.copy(w.q_norm.as_ref().map(|norm| &norm.weight), &to.q_norm, layer, head_dim)?;
        self.copy(w.k_norm.as_ref().map(|norm| &norm.weight), &to.k_norm, layer, head_dim)?;
        self.copy(Some(&w.norm.weight), &to.attention_norm, layer, hidden)
    }

    /// All of a mixture but its experts' matrices.
    fn mixture(&self, w: &Mixture<Cuda>, to: &Weights, layer: usize) -> Result<(), CudaError> {
        let Shape { hidden, experts, ffn, .. } = *self.shape;
        self.copy(Some(&w.norm.weight), &to.mixture_norm, layer, hidden)?;
        self.copy(w.router_bias.as_ref(), &to.router_bias, layer, experts)?;
        self.copy(w.down_bias.as_ref(), &to.down_bias, layer, experts * hidden)?;
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
