//! Memory between the kernels of an operation.

use super::super::{Bytes, Card, CudaError};

/// Bytes that grow to what is asked of them. A loaded model asks for the most at once.
#[derive(Default)]
pub struct Room(Option<Bytes>);

impl Room {
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, Bytes::len)
    }

    fn address(&self) -> u64 {
        self.0.as_ref().map_or(0, |held| held.address)
    }

    pub fn at(&mut self, card: &Card, bytes: usize) -> Result<u64, CudaError> {
        if let Some(held) = self.0.as_ref().filter(|held| held.len() >= bytes) {
            return Ok(held.address);
        }
        // Kernels may still use the old bytes.
        card.finish()?;
        self.0 = None;
        let held = card.zeros(bytes)?;
        let address = held.address;
        self.0 = Some(held);
        Ok(address)
    }
}

/// All of it. Slots are rows times experts a row.
#[derive(Default)]
pub struct Scratch {
    pub inputs: Room,  // (rows or slots, padded cols) f16, what products read
    pub factors: Room, // (rows or slots, ranges) their powers of two
    pub gate: Room,    // (slots, ffn)
    pub up: Room,      // (rows or slots, ffn)
    pub down: Room,    // (slots, hidden)
    pub router: Room,  // (rows, experts)
    pub chosen: Room,  // (slots) experts
    pub shares: Room,  // (slots)
    pub slots: Room,   // (slots) by expert
    pub tiles: Room,   // (tiles, 4)
    pub tile_count: Room,
    pub largest: Room, // (rows or slots, tiles of 16) magnitudes of what gate and up became
    pub hidden: Room,  // (2, slots, ffn) words of hidden values between the blocks of a kernel
    pub halves: Room,  // (1) which half of these is next
    pub partial_values: Room, // (rows, heads, chunks, head_dim)
    pub partial_weights: Room, // (rows, heads, chunks, 2)
}

impl Scratch {
    pub fn addresses(&self) -> [u64; 16] {
        let Scratch { inputs, factors, gate, up, down, router, chosen, shares, slots, tiles, .. } = self;
        let Scratch { tile_count, largest, hidden, halves, partial_values, partial_weights, .. } = self;
        let most = [inputs, factors, gate, up, down, router, chosen, shares, slots, tiles];
        let [a, b, c, d, e, f, g, h, i, j] = most.map(Room::address);
        let [k, l, m, n] = [tile_count, largest, hidden, halves].map(Room::address);
        let [o, p] = [partial_values, partial_weights].map(Room::address);
        [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
    }
}
