//! What several tests share: repeatable random numbers and made-up weights.
#![allow(dead_code)]

use flint_engine::load::Tensor;
use flint_engine::quant::{Format, quantize_row};

/// SplitMix64: small, repeatable, good enough for tests.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn uniform(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * ((self.next() >> 40) as f32 / (1u64 << 24) as f32)
    }

    /// Nearly normal: a sum of uniforms.
    pub fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.uniform(-0.5, 0.5)).sum()
    }

    pub fn normals(&mut self, len: usize, size: f32) -> Vec<f32> {
        (0..len).map(|_| self.normal() * size).collect()
    }

    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for i in (1..values.len()).rev() {
            values.swap(i, self.below(i + 1));
        }
    }
}

pub fn vector_tensor(name: &str, values: &[f32]) -> Tensor {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Tensor::in_memory(name, &[values.len()], Format::F32, &bytes).unwrap()
}

/// Weights of about the size that a model has, in any format.
pub fn random_tensor(random: &mut Random, name: &str, shape: &[usize], format: Format) -> Tensor {
    let cols = *shape.last().unwrap();
    let rows: usize = shape[..shape.len() - 1].iter().product();
    let mut bytes = Vec::new();
    for _ in 0..rows {
        let values = random.normals(cols, 1.0 / (cols as f32).sqrt());
        if !quantize_row(format, &values, &mut bytes) {
            random_blocks(random, format, cols, &mut bytes);
        }
    }
    Tensor::in_memory(name, shape, format, &bytes).unwrap()
}

/// Blocks of any bytes, but with small scales. For formats that are only read.
fn random_blocks(random: &mut Random, format: Format, cols: usize, out: &mut Vec<u8>) {
    for _ in 0..cols / format.block_len() {
        let start = out.len();
        out.extend((0..format.block_bytes()).map(|_| random.next() as u8));
        let block = &mut out[start..];
        let small = half(random.uniform(1e-4, 1e-3));
        let f16_at: &[usize] = match format {
            Format::Q2K => &[80, 82],
            Format::Q3K => &[108],
            Format::Q4K | Format::Q5K => &[0, 2],
            Format::Q6K => &[208],
            Format::Q5_0 => &[0],
            Format::Q5_1 => &[0, 2],
            Format::Iq4Nl | Format::Iq4Xs => &[0],
            _ => &[],
        };
        f16_at.iter().for_each(|&at| block[at..at + 2].copy_from_slice(&small));
        if format == Format::Mxfp4 {
            block[0] = 118 + random.below(6) as u8;
        }
    }
}

/// A small positive f32 as the bytes of an f16 (truncated).
fn half(value: f32) -> [u8; 2] {
    let bits = value.to_bits();
    let exponent = (bits >> 23) as i32 - 127 + 15;
    let mantissa = (bits >> 13 & 0x3ff) as u16;
    let bits =
        if exponent <= 0 { (mantissa | 0x400) >> (1 - exponent) } else { (exponent as u16) << 10 | mantissa };
    bits.to_le_bytes()
}
