//! A model with random weights on the host, small enough for the reference device to run it too.

use super::shape::Shape;
use half::bf16;

/// Rows of 8-bit values, each row with its scale.
pub struct Matrix8 {
    pub values: Vec<i8>,  // (rows, cols)
    pub scales: Vec<f32>, // (rows)
    pub cols: usize,
}

/// Rows of MXFP4 as GGUF has them.
pub struct Mxfp4 {
    pub blocks: Vec<u8>, // (rows, cols / 32, 17)
    pub cols: usize,
}

pub struct HostLayer {
    pub attention_norm: Vec<f32>, // (hidden)
    pub qkv: Matrix8,
    pub qkv_bias: Vec<f32>,
    pub sinks: Vec<f32>, // (heads)
    pub out: Matrix8,
    pub out_bias: Vec<f32>,
    pub mixture_norm: Vec<f32>,
    pub router: Vec<f32>, // (experts, hidden), values of bf16
    pub router_bias: Vec<f32>,
    pub gate: Mxfp4, // (experts, ffn, hidden)
    pub gate_bias: Vec<f32>,
    pub up: Mxfp4,
    pub up_bias: Vec<f32>,
    pub down: Mxfp4, // (experts, hidden, ffn)
    pub down_bias: Vec<f32>,
}

pub struct HostModel {
    pub embedding: Vec<f32>, // (vocab, hidden), values of bf16
    pub layers: Vec<HostLayer>,
    pub final_norm: Vec<f32>,
    pub head: Matrix8, // (vocab, hidden)
}

/// SplitMix64: one number, good enough bits.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Near enough to a normal distribution: the sum of four uniform ones.
    fn normal(&mut self) -> f32 {
        ((0..4).map(|_| self.unit()).sum::<f32>() - 2.0) * 3f32.sqrt()
    }

    fn vector(&mut self, len: usize, middle: f32, spread: f32) -> Vec<f32> {
        (0..len).map(|_| middle + spread * self.normal()).collect()
    }

    fn bf16_vector(&mut self, len: usize, spread: f32) -> Vec<f32> {
        (0..len).map(|_| bf16::from_f32(spread * self.normal()).to_f32()).collect()
    }

    fn matrix8(&mut self, rows: usize, cols: usize) -> Matrix8 {
        let weights = self.vector(rows * cols, 0.0, 1.0 / (cols as f32).sqrt());
        Matrix8::quantize(&weights, cols)
    }

    fn mxfp4(&mut self, rows: usize, cols: usize) -> Mxfp4 {
        let scale = 126 - (3.0 * (cols as f32).sqrt()).log2() as u8;
        let mut blocks = Vec::with_capacity(rows * cols / 32 * 17);
        for _ in 0..rows * cols / 32 {
            let bits = [self.bits(), self.bits()];
            blocks.push(scale + (bits[0] & 1) as u8);
            blocks.extend(bits.iter().flat_map(|bits| bits.to_le_bytes()));
        }
        Mxfp4 { blocks, cols }
    }

    fn layer(&mut self, shape: &Shape) -> HostLayer {
        let Shape { hidden, experts, ffn, .. } = *shape;
        HostLayer {
            attention_norm: self.vector(hidden, 1.0, 0.2),
            qkv: self.matrix8(shape.qkv_rows(), hidden),
            qkv_bias: self.vector(shape.qkv_rows(), 0.0, 0.3),
            sinks: self.vector(shape.heads, 0.0, 1.0),
            out: self.matrix8(hidden, shape.q_rows()),
            out_bias: self.vector(hidden, 0.0, 0.1),
            mixture_norm: self.vector(hidden, 1.0, 0.2),
            router: self.bf16_vector(experts * hidden, 1.0 / (hidden as f32).sqrt()),
            router_bias: self.vector(experts, 0.0, 0.1),
            gate: self.mxfp4(experts * ffn, hidden),
            gate_bias: self.vector(experts * ffn, 0.0, 0.1),
            up: self.mxfp4(experts * ffn, hidden),
            up_bias: self.vector(experts * ffn, 0.0, 0.1),
            down: self.mxfp4(experts * hidden, ffn),
            down_bias: self.vector(experts * hidden, 0.0, 0.1),
        }
    }
}

impl Matrix8 {
    /// Rounds each row to 127 levels on either side of zero.
    pub fn quantize(weights: &[f32], cols: usize) -> Matrix8 {
        let mut matrix = Matrix8 { values: Vec::with_capacity(weights.len()), scales: Vec::new(), cols };
        for row in weights.chunks_exact(cols) {
            let largest = row.iter().fold(0f32, |most, value| most.max(value.abs()));
            let scale = largest / 127.0;
            let factor = if scale > 0.0 { 1.0 / scale } else { 0.0 };
            matrix.values.extend(row.iter().map(|value| (value * factor).round() as i8));
            matrix.scales.push(scale);
        }
        matrix
    }

    pub fn values_f32(&self) -> Vec<f32> {
        let rows = self.values.chunks_exact(self.cols).zip(&self.scales);
        rows.flat_map(|(row, scale)| row.iter().map(move |&value| f32::from(value) * scale)).collect()
    }
}

impl Mxfp4 {
    /// Rows of `self` and `other` by turns.
    pub fn by_turns(&self, other: &Mxfp4) -> Vec<u8> {
        let row = self.cols / 32 * 17;
        let pairs = self.blocks.chunks_exact(row).zip(other.blocks.chunks_exact(row));
        pairs.flat_map(|(a, b)| a.iter().chain(b).copied()).collect()
    }
}

impl HostModel {
    pub fn random(shape: &Shape, seed: u64) -> HostModel {
        let mut random = Random(seed);
        HostModel {
            embedding: random.bf16_vector(shape.vocab * shape.hidden, 1.0),
            layers: (0..shape.layers).map(|_| random.layer(shape)).collect(),
            final_norm: random.vector(shape.hidden, 1.0, 0.2),
            head: random.matrix8(shape.vocab, shape.hidden),
        }
    }
}
