//! Keys and values as whole numbers of 16 bits, in blocks that the attention kernel reads from front to back.
//!
//! Each key and each value has one power of two for all its columns. So what attention multiplies and adds are whole numbers,
//! by one instruction wherever there is VNNI, and sums of them are exact.

use super::memory::{Memory, OutOfMemory};
use crate::limits::KV_BLOCK_TOKENS;
use crate::model::config::Config;

/// Levels lie in `-LEVEL_MAX..=LEVEL_MAX`.
pub const LEVEL_MAX: i32 = 4095;

/// Powers of two are kept as the exponent of an f32, within these bounds: 2^-40 to 2^40.
pub const POWER_MIN: u8 = 127 - 40;
pub const POWER_MAX: u8 = 127 + 40;

/// Where things lie in the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    pub layers: usize,
    pub blocks: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
}

/// The KV pool. What is multiplied in pairs lies in pairs: two levels of a key, beside those of the next tokens, so that
/// 16 lanes are 16 tokens; and the levels of two tokens' values, so that 16 lanes are 16 columns.
pub struct Cache {
    data: Memory<i16>, // (layers, blocks, kv_heads, [powers (2, 32) bytes, keys (head_dim / 2, 32, 2), values (16, head_dim, 2)])
    geometry: Geometry,
}

/// Of one head in one block: bytes of the powers of its keys, and of those of its values.
pub const POWERS: usize = KV_BLOCK_TOKENS;
/// The room of both.
pub const POWERS_LEN: usize = 2 * POWERS / size_of::<i16>();

/// Where a value of a token's key lies among the keys of its head and block.
#[inline(always)]
pub fn key_place(column: usize, token: usize) -> usize {
    column / 2 * 2 * KV_BLOCK_TOKENS + 2 * token + column % 2
}

/// Where a value of a token lies among the values of its head and block.
#[inline(always)]
pub fn value_place(column: usize, token: usize, head_dim: usize) -> usize {
    token / 2 * 2 * head_dim + 2 * column + token % 2
}

/// The smallest power of two whose levels reach the largest of some numbers.
#[inline(always)]
pub fn power_for(largest: f32) -> u8 {
    let up = (largest / LEVEL_MAX as f32).to_bits() + 0x7f_ffff;
    (up >> 23).clamp(POWER_MIN.into(), POWER_MAX.into()) as u8
}

/// Bytes of a token's key and value in one head.
pub const fn head_bytes(head_dim: usize) -> usize {
    2 * (head_dim * size_of::<i16>() + 1)
}

impl Geometry {
    /// Levels of the keys of one head in one block; those of its values are as many.
    #[inline(always)]
    pub fn half_len(&self) -> usize {
        self.head_dim * KV_BLOCK_TOKENS
    }

    #[inline(always)]
    fn head_len(&self) -> usize {
        POWERS_LEN + 2 * self.half_len()
    }

    pub fn block_len(&self) -> usize {
        self.kv_heads * self.head_len()
    }

    /// Where the powers of a head begin; the keys follow them, and the values follow the keys.
    #[inline(always)]
    pub fn head_at(&self, layer: usize, block: u32, head: usize) -> usize {
        (layer * self.blocks + block as usize) * self.block_len() + head * self.head_len()
    }

    /// Where a position of a sequence with these blocks lies: its head, and the token in the block.
    #[inline(always)]
    pub fn place(&self, layer: usize, blocks: &[u32], position: usize, head: usize) -> (usize, usize) {
        (self.head_at(layer, blocks[position / KV_BLOCK_TOKENS], head), position % KV_BLOCK_TOKENS)
    }
}

impl Cache {
    pub fn new(config: &Config, blocks: usize) -> Result<Cache, OutOfMemory> {
        let &Config { layers, kv_heads, head_dim, .. } = config;
        let geometry = Geometry { layers, blocks, kv_heads, head_dim };
        Ok(Cache { data: Memory::huge(layers * blocks * geometry.block_len())?, geometry })
    }

    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub fn data(&self) -> &[i16] {
        &self.data
    }

    pub fn data_mut(&mut self) -> &mut [i16] {
        &mut self.data
    }

    pub fn copy_block(&mut self, from: u32, to: u32) {
        let len = self.geometry.block_len();
        for layer in 0..self.geometry.layers {
            let from = self.geometry.head_at(layer, from, 0);
            self.data.copy_within(from..from + len, self.geometry.head_at(layer, to, 0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_reaches_the_largest_and_is_not_twice_too_large() {
        for largest in [1e-6f32, 0.99, 1.0, 4095.0, 4095.1, 8190.0, 3.3e7] {
            let scale = f32::from_bits(u32::from(power_for(largest)) << 23);
            let level = (largest / scale).round();
            assert!((2048.0..=4095.0).contains(&level), "{largest}: {level} times {scale}");
        }
        assert_eq!([0.0, 1e-30].map(power_for), [POWER_MIN; 2]);
        assert_eq!([1e30, f32::INFINITY, f32::NAN].map(power_for), [POWER_MAX; 3]);
    }
}
