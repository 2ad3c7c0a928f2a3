//! Keys and values in f16, in blocks that the attention kernel reads from front to back.

use super::memory::{Memory, OutOfMemory};
use crate::limits::KV_BLOCK_TOKENS;
use crate::model::config::Config;

/// Where things lie in the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    pub layers: usize,
    pub blocks: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
}

/// The KV pool. Keys lie transposed, so that 16 lanes are 16 tokens; values lie as they are used.
pub struct Cache {
    data: Memory<u16>, // (layers, blocks, kv_heads, [keys (head_dim, 32), values (32, head_dim)])
    geometry: Geometry,
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
    pub fn new(config: &Config, blocks: usize) -> Result<Cache, OutOfMemory> {
        let geometry =
            Geometry { layers: config.layers, blocks, kv_heads: config.kv_heads, head_dim: config.head_dim };
        Ok(Cache { data: Memory::huge(config.layers * blocks * geometry.block_len())?, geometry })
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
