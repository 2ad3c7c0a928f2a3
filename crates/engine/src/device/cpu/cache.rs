//! Keys and values in 16 bits, in blocks that the attention kernel reads from front to back.

use super::memory::{Memory, OutOfMemory};
use crate::limits::KV_BLOCK_TOKENS;
use crate::model::config::Config;

/// How keys, values and what they are multiplied with are rounded. bf16 is twice as fast and eight times as coarse: like
/// inputs of 8 bits, which quantised weights have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Short {
    F16,
    Bf16,
}

/// Where things lie in the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    pub layers: usize,
    pub blocks: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub short: Short,
}

/// The KV pool. What is multiplied in pairs lies in pairs: two values of a key, beside those of the next tokens, so that
/// 16 lanes are 16 tokens; and the values of two tokens, so that 16 lanes are 16 columns.
pub struct Cache {
    data: Memory<u16>, // (layers, blocks, kv_heads, [keys (head_dim / 2, 32, 2), values (16, head_dim, 2)])
    geometry: Geometry,
}

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

impl Geometry {
    /// Values of the keys of one head in one block; its values follow and are as many.
    #[inline(always)]
    pub fn half_len(&self) -> usize {
        self.head_dim * KV_BLOCK_TOKENS
    }

    pub fn block_len(&self) -> usize {
        self.kv_heads * 2 * self.half_len()
    }

    /// Where the keys of a head begin; the values begin `half_len` later.
    #[inline(always)]
    pub fn head_at(&self, layer: usize, block: u32, head: usize) -> usize {
        (layer * self.blocks + block as usize) * self.block_len() + head * 2 * self.half_len()
    }

    /// Where a position of a sequence with these blocks lies: its head's keys, and the token in the block.
    #[inline(always)]
    pub fn place(&self, layer: usize, blocks: &[u32], position: usize, head: usize) -> (usize, usize) {
        (self.head_at(layer, blocks[position / KV_BLOCK_TOKENS], head), position % KV_BLOCK_TOKENS)
    }
}

impl Cache {
    pub fn new(config: &Config, blocks: usize, short: Short) -> Result<Cache, OutOfMemory> {
        let &Config { layers, kv_heads, head_dim, .. } = config;
        let geometry = Geometry { layers, blocks, kv_heads, head_dim, short };
        Ok(Cache { data: Memory::huge(layers * blocks * geometry.block_len())?, geometry })
    }

    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub fn data(&self) -> &[u16] {
        &self.data
    }

    pub fn data_mut(&mut self) -> &mut [u16] {
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
