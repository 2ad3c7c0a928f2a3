//! Attention of a whole batch: which queries make a tile, and how the parts of one come together.

use super::attention::{
    Ahead, AttendChunk, Merge, Partial, RoundQueries, Scratch, TILE, TOGETHER, Tile, finish,
};
use super::cache::Cache;
use super::memory::Shared;
use super::simd::Isa;
use super::{Buffer, Cpu};
use crate::batch::{Batch, Span};
use crate::device::Attention;
use std::ops::Range;

/// Units a thread has at least, if they are of several tiles.
const UNITS_A_THREAD_MIN: usize = 3;

/// Attention of a batch, cut into tiles of queries.
pub struct AttendJob<'a> {
    pub weights: &'a Attention<Cpu>,
    pub qkv: &'a Buffer,
    pub batch: &'a Batch,
    pub cache: &'a Cache,
    pub isa: Isa,
}

impl AttendJob<'_> {
    fn tiles_of(&self, span: &Span) -> usize {
        (span.rows.len() * self.weights.heads / self.weights.kv_heads).div_ceil(TILE)
    }

    pub fn tiles(&self) -> usize {
        self.batch.spans.iter().map(|span| self.tiles_of(span) * self.weights.kv_heads).sum()
    }

    /// The tile of a unit, and for each of its queries the row and the head.
    fn tile(&self, mut unit: usize) -> (Tile<'_>, [(usize, usize); TILE]) {
        let w = self.weights;
        let mut spans = self.batch.spans.iter();
        let span = loop {
            let span = spans.next().expect("a unit lies in a span");
            let own = self.tiles_of(span) * w.kv_heads;
            if unit < own {
                break span;
            }
            unit -= own;
        };
        // Late rows see the most: they come first, so that threads finish together.
        let tiles = self.tiles_of(span);
        let (kv_head, index) = (unit / tiles, tiles - 1 - unit % tiles);
        let group = w.heads / w.kv_heads;
        let count = TILE.min(span.rows.len() * group - index * TILE);
        let places = std::array::from_fn(|i| {
            let query = index * TILE + if i < count { i } else { 0 };
            (span.rows.start + query / group, kv_head * group + query % group)
        });
        let seen = places.map(|(row, _)| {
            let end = span.position + row - span.rows.start + 1;
            (w.window.map_or(0, |window| end.saturating_sub(window)), end)
        });
        let queries = places.map(|(row, head)| self.qkv.row(row)[head * w.head_dim..].as_ptr());
        let blocks = &self.batch.blocks[span.blocks.clone()];
        let (cache, geometry) = (self.cache.data(), self.cache.geometry());
        (Tile { queries, seen, count, cache, geometry, blocks, layer: w.layer, kv_head }, places)
    }

    /// How many tiles of a KV head a thread does together: several, if enough is left to share out.
    pub fn together(&self, threads: usize) -> usize {
        if self.units(TOGETHER) >= UNITS_A_THREAD_MIN * threads { TOGETHER } else { 1 }
    }

    /// Units of at most `together` tiles.
    pub fn units(&self, together: usize) -> usize {
        let own = |span| self.tiles_of(span).div_ceil(together);
        self.batch.spans.iter().map(|span| own(span) * self.weights.kv_heads).sum()
    }

    /// The tiles of a unit.
    fn tiles_in(&self, mut unit: usize, together: usize) -> Range<usize> {
        let mut first = 0;
        for span in &self.batch.spans {
            let tiles = self.tiles_of(span);
            let units = tiles.div_ceil(together);
            if unit < units * self.weights.kv_heads {
                let head = first + unit / units * tiles;
                let start = unit % units * together;
                return head + start..head + (start + together).min(tiles);
            }
            unit -= units * self.weights.kv_heads;
            first += tiles * self.weights.kv_heads;
        }
        first..first
    }

    /// The tiles of a unit, chunk by chunk.
    ///
    /// # Safety
    /// Nobody else writes these tiles' queries in `out`.
    pub unsafe fn whole_unit(
        &self,
        unit: usize,
        together: usize,
        scratch: &mut Scratch,
        out: Shared<'_, f32>,
        width: usize,
    ) {
        let Scratch { queries, chunk: scratch, next: partial, totals } = scratch;
        let range = self.tiles_in(unit, together);
        let (after, _) = self.tile(range.end % self.tiles());
        let count = range.len();
        let tiles: [_; TOGETHER] = std::array::from_fn(|i| self.tile(range.start + i.min(count - 1)));
        let tiles = &tiles[..count];
        for (i, (tile, _)) in tiles.iter().enumerate() {
            self.isa.run(RoundQueries { tile, to: &mut queries[i] });
            self.clear(tile, &mut totals[i]);
        }
        let seen = tiles.iter().map(|(tile, _)| tile.chunks());
        let chunks = seen.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0);
        for chunk in chunks.clone() {
            for (i, (tile, _)) in tiles.iter().enumerate() {
                if !tile.chunks().contains(&chunk) {
                    continue;
                }
                let ahead = match chunk + 1 < chunks.end {
                    true => Ahead { tile, chunk: chunk + 1, line: i },
                    false => Ahead { tile: &after, chunk: after.chunks().start, line: i },
                };
                let queries = &queries[i];
                self.isa.run(AttendChunk { queries, scratch, tile, chunk, ahead, out: partial });
                self.add(tile, &mut totals[i], partial);
            }
        }
        for ((tile, places), totals) in tiles.iter().zip(totals) {
            // SAFETY: passed on.
            unsafe { self.write(tile, places, totals, out, width) };
        }
    }

    /// One of the chunks of a tile; this thread probably does the next one after it.
    pub fn one_chunk(&self, unit: usize, chunk: usize, scratch: &mut Scratch, partial: &mut [Partial; TILE]) {
        let (tile, _) = self.tile(unit);
        if tile.chunks().contains(&chunk) {
            let queries = &mut scratch.queries[0];
            self.isa.run(RoundQueries { tile: &tile, to: queries });
            let ahead = Ahead { tile: &tile, chunk: chunk + 1, line: 0 };
            let scratch = &mut scratch.chunk;
            self.isa.run(AttendChunk { queries, scratch, tile: &tile, chunk, ahead, out: partial });
        }
    }

    /// # Safety
    /// Nobody else writes this tile's queries in `out`.
    pub unsafe fn merge(
        &self,
        unit: usize,
        partials: &[[Partial; TILE]],
        totals: &mut [Partial; TILE],
        out: Shared<'_, f32>,
        width: usize,
    ) {
        let (tile, places) = self.tile(unit);
        self.clear(&tile, totals);
        for chunk in tile.chunks() {
            self.add(&tile, totals, &partials[chunk]);
        }
        // SAFETY: passed on.
        unsafe { self.write(&tile, &places, totals, out, width) };
    }

    fn clear(&self, tile: &Tile<'_>, totals: &mut [Partial; TILE]) {
        totals[..tile.count].iter_mut().for_each(|total| total.clear(self.weights.head_dim));
    }

    fn add(&self, tile: &Tile<'_>, totals: &mut [Partial; TILE], next: &[Partial; TILE]) {
        for (total, next) in totals.iter_mut().zip(next).take(tile.count) {
            self.isa.run(Merge { total, next, head_dim: self.weights.head_dim });
        }
    }

    unsafe fn write(
        &self,
        tile: &Tile<'_>,
        places: &[(usize, usize); TILE],
        totals: &[Partial; TILE],
        out: Shared<'_, f32>,
        width: usize,
    ) {
        let head_dim = self.weights.head_dim;
        for (total, &(row, head)) in totals.iter().zip(places).take(tile.count) {
            let sink = self.weights.sinks.as_ref().map(|sinks| sinks[head]);
            // SAFETY: a row's head belongs to one tile.
            let out = unsafe { out.range_mut(row * width + head * head_dim, head_dim) };
            finish(total, sink, out);
        }
    }
}
