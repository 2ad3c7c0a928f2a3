//! The oracle: every operation in the fewest plain lines, in f32, one thread.

use super::{Activation, Attention, Device, DeviceError, Head, Mixture, Mlp, Norm};
use crate::batch::{Batch, Span};
use crate::limits::KV_BLOCK_TOKENS;
use crate::load::Tensor;
use crate::model::config::{Config, Rope, RopePairs};
use half::f16;

#[derive(Default)]
pub struct Plain {
    angles: Vec<(f32, f32)>, // (rows, head_dim / 2) cosine and sine
    pairs: Option<RopePairs>,
    rounds_kv: bool,
}

impl Plain {
    /// Tokens see the keys and values of those before them as a card's decode kernel has them: as integers of 8 bits.
    pub fn rounding_kv(self) -> Plain {
        Plain { rounds_kv: true, ..self }
    }
}

/// Rows of f32.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    pub values: Vec<f32>, // (rows, width)
    pub width: usize,
}

impl Rows {
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.width..][..self.width]
    }

    pub fn row_mut(&mut self, row: usize) -> &mut [f32] {
        &mut self.values[row * self.width..][..self.width]
    }
}

/// Stacked tensors, read row by row from the file.
pub struct Stack(Vec<Tensor>);

impl Stack {
    fn rows(&self) -> usize {
        self.0.iter().map(Tensor::rows).sum()
    }

    /// `out[m][row] = matrix[row] * inputs[m]`, for the rows `first..first + out.width`.
    fn times(&self, first: usize, inputs: &[&[f32]], out: &mut Rows) {
        let mut weights = vec![0.0; self.0[0].cols()];
        for row in 0..out.width {
            self.read(first + row, &mut weights);
            for (m, input) in inputs.iter().enumerate() {
                out.row_mut(m)[row] = dot(&weights, input);
            }
        }
    }

    fn read(&self, mut row: usize, out: &mut [f32]) {
        for tensor in &self.0 {
            if row < tensor.rows() {
                return tensor.row_f32(row, out);
            }
            row -= tensor.rows();
        }
        panic!("row {row} past the end of a stack of {} rows", self.rows());
    }
}

/// Keys and values as f32, position by position.
pub struct PlainCache {
    values: Vec<f32>,  // (layers, blocks, KV_BLOCK_TOKENS, 2, kv_heads, head_dim)
    rounded: Vec<f32>, // the same, as later tokens see them; empty if that is no different
    blocks: usize,
    token: usize, // values a token: 2 * kv_heads * head_dim
}

impl PlainCache {
    fn at(&self, layer: usize, block: u32, token: usize) -> usize {
        ((layer * self.blocks + block as usize) * KV_BLOCK_TOKENS + token) * self.token
    }

    /// The keys, then the values, of the position `position` of a span.
    fn slot(&self, layer: usize, span: &Span, batch: &Batch, position: usize) -> usize {
        let block = batch.blocks[span.blocks.clone()][position / KV_BLOCK_TOKENS];
        self.at(layer, block, position % KV_BLOCK_TOKENS)
    }

    fn put(&mut self, slot: usize, kv: &[f32], head_dim: usize) {
        self.values[slot..slot + kv.len()].copy_from_slice(kv);
        if let Some(rounded) = self.rounded.get_mut(slot..slot + kv.len()) {
            let (keys, values) = kv.split_at(kv.len() / 2);
            let (rounded_keys, rounded_values) = rounded.split_at_mut(keys.len());
            round_levels(keys, KEY_SCALE_DIMS, rounded_keys);
            round_levels(values, head_dim, rounded_values);
        }
    }

    /// What a token at `position` sees at `p`.
    fn seen(&self, p: usize, position: usize) -> &[f32] {
        if p < position && !self.rounded.is_empty() { &self.rounded } else { &self.values }
    }
}

/// Dims of a key that have one scale: `SCALE_DIMS` in `kernels/cache.cuh`.
const KEY_SCALE_DIMS: usize = 32;

/// Each `group` of f16 values as 127 levels on either side of zero: `Rounding` in `kernels/cache.cuh`.
fn round_levels(values: &[f32], group: usize, out: &mut [f32]) {
    const LEVELS: f32 = 127.0;
    const SCALE_UNIT: f32 = 64.0;
    let half = |value: f32| f16::from_f32(value).to_f32();
    for (values, out) in values.chunks(group).zip(out.chunks_mut(group)) {
        let most = values.iter().fold(0f32, |most, value| most.max(half(*value).abs()));
        let scale = half(most * (SCALE_UNIT / LEVELS)) / SCALE_UNIT;
        for (value, out) in values.iter().zip(out) {
            let level = if scale > 0.0 { half(*value) / scale } else { 0.0 };
            *out = scale * level.round_ties_even().clamp(-LEVELS, LEVELS);
        }
    }
}

fn rows(count: usize, width: usize) -> Rows {
    Rows { values: vec![0.0; count * width], width }
}

/// Sixteen partial sums: the same result on any machine, and fast enough for real models.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 16];
    let (a_chunks, b_chunks) = (a.chunks_exact(16), b.chunks_exact(16));
    let tail: f32 = a_chunks.remainder().iter().zip(b_chunks.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a_chunks.zip(b_chunks) {
        for i in 0..16 {
            sums[i] += a[i] * b[i];
        }
    }
    sums.iter().sum::<f32>() + tail
}

fn normalise(norm: &Norm<Plain>, x: &[f32]) -> Vec<f32> {
    let mean = dot(x, x) / x.len() as f32;
    let scale = 1.0 / (mean + norm.eps).sqrt();
    x.iter().zip(&norm.weight).map(|(x, w)| x * scale * w).collect()
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// What one pair of gate and up values becomes.
pub fn activate(activation: Activation, gate: f32, up: f32) -> f32 {
    match activation {
        Activation::Swiglu => gate * sigmoid(gate) * up,
        Activation::ClampedSwiglu => {
            let gate = gate.min(7.0);
            gate * sigmoid(1.702 * gate) * (up.clamp(-7.0, 7.0) + 1.0)
        }
    }
}

/// The experts with the largest logits (the first of equals), and their shares.
pub fn choose_experts(logits: &[f32], used: usize, normalize: bool) -> Vec<(usize, f32)> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    let largest = logits[order[0]];
    let total: f32 = logits.iter().map(|l| (l - largest).exp()).sum();
    order.truncate(used);
    let chosen: f32 = order.iter().map(|&e| (logits[e] - largest).exp()).sum();
    let total = if normalize { chosen } else { total };
    order.into_iter().map(|e| (e, (logits[e] - largest).exp() / total)).collect()
}

impl Plain {
    /// Turns one head of the token in row `row`.
    fn turn(&self, head: &mut [f32], row: usize) {
        let half = head.len() / 2;
        for i in 0..half {
            let (a, b) = match self.pairs {
                Some(RopePairs::Adjacent) => (2 * i, 2 * i + 1),
                Some(RopePairs::Halves) | None => (i, i + half),
            };
            let (cos, sin) = self.angles[row * half + i];
            (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[b] * cos + head[a] * sin);
        }
    }
}

impl Device for Plain {
    type Matrix = Stack;
    type Experts = Stack;
    type Vector = Vec<f32>;
    type Table = Tensor;
    type Buffer = Rows;
    type Cache = PlainCache;

    fn kv_head_bytes(head_dim: usize) -> usize {
        2 * head_dim * size_of::<f32>()
    }

    fn describe(&self) -> String {
        "plain (scalar f32, the reference)".into()
    }

    fn matrix(&mut self, parts: &[Tensor]) -> Result<Stack, DeviceError> {
        Ok(Stack(parts.to_vec()))
    }

    fn experts(&mut self, tensor: &Tensor) -> Result<Stack, DeviceError> {
        Ok(Stack(vec![tensor.clone()]))
    }

    fn vector(&mut self, parts: &[Tensor]) -> Result<Vec<f32>, DeviceError> {
        let mut out = Vec::new();
        for tensor in parts {
            for row in 0..tensor.rows() {
                let start = out.len();
                out.resize(start + tensor.cols(), 0.0);
                tensor.row_f32(row, &mut out[start..]);
            }
        }
        Ok(out)
    }

    fn table(&mut self, tensor: &Tensor) -> Result<Tensor, DeviceError> {
        Ok(tensor.clone())
    }

    fn buffer(&mut self, count: usize, width: usize) -> Result<Rows, DeviceError> {
        Ok(rows(count, width))
    }

    fn cache(&mut self, config: &Config, blocks: usize) -> Result<PlainCache, DeviceError> {
        let token = 2 * config.kv_heads * config.head_dim;
        let count = config.layers * blocks * KV_BLOCK_TOKENS * token;
        let rounded = vec![0.0; if self.rounds_kv { count } else { 0 }];
        Ok(PlainCache { values: vec![0.0; count], rounded, blocks, token })
    }

    fn ready(&mut self, _config: &Config, _rows: usize) -> Result<(), DeviceError> {
        Ok(())
    }

    fn begin(&mut self, rope: &Rope, batch: &Batch) {
        self.pairs = Some(rope.pairs);
        self.angles.clear();
        for &position in &batch.positions {
            self.angles.extend(rope.frequencies.iter().map(|f| {
                let (sin, cos) = (position as f32 * f).sin_cos();
                (cos * rope.magnitude, sin * rope.magnitude)
            }));
        }
    }

    fn embed(&mut self, table: &Tensor, batch: &Batch, x: &mut Rows) {
        for (row, &token) in batch.tokens.iter().enumerate() {
            table.row_f32(token as usize, x.row_mut(row));
        }
    }

    fn qkv(&mut self, w: &Attention<Plain>, x: &Rows, batch: &Batch, qkv: &mut Rows, cache: &mut PlainCache) {
        let normed: Vec<Vec<f32>> = (0..batch.rows()).map(|row| normalise(&w.norm, x.row(row))).collect();
        w.qkv.times(0, &normed.iter().map(Vec::as_slice).collect::<Vec<_>>(), qkv);
        let (q_width, kv_width) = (w.heads * w.head_dim, w.kv_heads * w.head_dim);
        for span in &batch.spans {
            for row in span.rows.clone() {
                let values = qkv.row_mut(row);
                if let Some(bias) = &w.qkv_bias {
                    values.iter_mut().zip(bias).for_each(|(v, b)| *v += b);
                }
                let (q, kv) = values.split_at_mut(q_width);
                for head in q.chunks_exact_mut(w.head_dim) {
                    if let Some(norm) = &w.q_norm {
                        head.copy_from_slice(&normalise(norm, head));
                    }
                    self.turn(head, row);
                    head.iter_mut().for_each(|v| *v /= (w.head_dim as f32).sqrt());
                }
                for head in kv[..kv_width].chunks_exact_mut(w.head_dim) {
                    if let Some(norm) = &w.k_norm {
                        head.copy_from_slice(&normalise(norm, head));
                    }
                    self.turn(head, row);
                }
                let slot = cache.slot(w.layer, span, batch, span.position + row - span.rows.start);
                cache.put(slot, &kv[..2 * kv_width], w.head_dim);
            }
        }
    }

    fn attend(
        &mut self,
        w: &Attention<Plain>,
        qkv: &Rows,
        batch: &Batch,
        cache: &PlainCache,
        out: &mut Rows,
    ) {
        let kv_width = w.kv_heads * w.head_dim;
        for span in &batch.spans {
            for row in span.rows.clone() {
                let position = span.position + row - span.rows.start;
                let first = w.window.map_or(0, |window| (position + 1).saturating_sub(window));
                for head in 0..w.heads {
                    let kv_head = head / (w.heads / w.kv_heads);
                    let q = &qkv.row(row)[head * w.head_dim..][..w.head_dim];
                    let at = |p| cache.slot(w.layer, span, batch, p) + kv_head * w.head_dim;
                    let seen = |p, from: usize| &cache.seen(p, position)[from..][..w.head_dim];
                    let scores: Vec<f32> = (first..=position).map(|p| dot(q, seen(p, at(p)))).collect();
                    let sink = w.sinks.as_ref().map_or(f32::NEG_INFINITY, |sinks| sinks[head]);
                    let largest = scores.iter().copied().fold(sink, f32::max);
                    let total: f32 = scores.iter().map(|s| (s - largest).exp()).sum();
                    let total = total + (sink - largest).exp();
                    let out = &mut out.row_mut(row)[head * w.head_dim..][..w.head_dim];
                    out.fill(0.0);
                    for (p, score) in (first..).zip(&scores) {
                        let share = (score - largest).exp() / total;
                        let v = seen(p, at(p) + kv_width);
                        out.iter_mut().zip(v).for_each(|(o, v)| *o += share * v);
                    }
                }
            }
        }
    }

    fn project_add(
        &mut self,
        matrix: &Stack,
        bias: Option<&Vec<f32>>,
        input: &Rows,
        x: &mut Rows,
        batch: &Batch,
    ) {
        let inputs: Vec<&[f32]> = (0..batch.rows()).map(|row| input.row(row)).collect();
        let mut product = rows(batch.rows(), matrix.rows());
        matrix.times(0, &inputs, &mut product);
        for row in 0..batch.rows() {
            let bias = bias.map(Vec::as_slice);
            for (col, value) in x.row_mut(row).iter_mut().enumerate() {
                *value += product.row(row)[col] + bias.map_or(0.0, |bias| bias[col]);
            }
        }
    }

    fn gate_up(&mut self, w: &Mlp<Plain>, x: &Rows, hidden: &mut Rows, batch: &Batch) {
        let normed: Vec<Vec<f32>> = (0..batch.rows()).map(|row| normalise(&w.norm, x.row(row))).collect();
        let inputs: Vec<&[f32]> = normed.iter().map(Vec::as_slice).collect();
        let (mut gate, mut up) = (rows(batch.rows(), w.gate.rows()), rows(batch.rows(), w.up.rows()));
        w.gate.times(0, &inputs, &mut gate);
        w.up.times(0, &inputs, &mut up);
        for row in 0..batch.rows() {
            for (i, value) in hidden.row_mut(row).iter_mut().enumerate() {
                *value = activate(Activation::Swiglu, gate.row(row)[i], up.row(row)[i]);
            }
        }
    }

    fn mixture(&mut self, w: &Mixture<Plain>, x: &mut Rows, batch: &Batch) {
        let hidden = x.width;
        let experts = w.router.rows();
        let ffn = w.gate.rows() / experts;
        let product = |stack: &Stack, bias: Option<&[f32]>, expert: usize, width: usize, input: &[f32]| {
            let mut out = rows(1, width);
            stack.times(expert * width, &[input], &mut out);
            if let Some(bias) = bias {
                out.values.iter_mut().zip(&bias[expert * width..]).for_each(|(v, b)| *v += b);
            }
            out.values
        };
        for row in 0..batch.rows() {
            let normed = normalise(&w.norm, x.row(row));
            let logits = product(&w.router, w.router_bias.as_deref(), 0, experts, &normed);
            for (expert, share) in choose_experts(&logits, w.used, w.normalize) {
                let gate = product(&w.gate, w.gate_bias.as_deref(), expert, ffn, &normed);
                let up = product(&w.up, w.up_bias.as_deref(), expert, ffn, &normed);
                let inner: Vec<f32> =
                    gate.into_iter().zip(up).map(|(g, u)| activate(w.activation, g, u)).collect();
                let down = product(&w.down, w.down_bias.as_deref(), expert, hidden, &inner);
                x.row_mut(row).iter_mut().zip(down).for_each(|(x, d)| *x += share * d);
            }
        }
    }

    fn head(&mut self, w: &Head<Plain>, x: &Rows, batch: &Batch, logits: &mut Rows) {
        let normed: Vec<Vec<f32>> =
            batch.logit_rows.iter().map(|&row| normalise(&w.norm, x.row(row as usize))).collect();
        w.matrix.times(0, &normed.iter().map(Vec::as_slice).collect::<Vec<_>>(), logits);
    }

    fn read<'a>(&mut self, buffer: &'a mut Rows, row: usize) -> &'a mut [f32] {
        buffer.row_mut(row)
    }

    fn copy_block(&mut self, cache: &mut PlainCache, from: u32, to: u32) {
        let size = KV_BLOCK_TOKENS * cache.token;
        let layers = cache.values.len() / (cache.blocks * size);
        for layer in 0..layers {
            let (from, to) = (cache.at(layer, from, 0), cache.at(layer, to, 0));
            cache.values.copy_within(from..from + size, to);
            if !cache.rounded.is_empty() {
                cache.rounded.copy_within(from..from + size, to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_values_are_within_half_a_level_and_zeros_stay() {
        let values: Vec<f32> = (0..64).map(|i| f16::from_f32((i as f32 - 20.0) * 0.37).to_f32()).collect();
        let mut rounded = vec![f32::NAN; 64];
        round_levels(&values, 32, &mut rounded);
        for (values, rounded) in values.chunks(32).zip(rounded.chunks(32)) {
            let most = values.iter().fold(0f32, |most, value| most.max(value.abs()));
            let far = values.iter().zip(rounded).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(far <= most / 253.0 && far > 0.0, "{far} of {most}");
        }
        round_levels(&[0.0; 32], 32, &mut rounded[..32]);
        assert_eq!(rounded[..32], [0.0; 32]);
    }
}
