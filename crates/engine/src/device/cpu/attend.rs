//! Attention of a whole batch: which queries make a tile, and how the parts of one come together.

use super::attention::{AttendChunk, Merge, Partial, RoundQueries, Scratch, TILE, Tile, finish};
use super::cache::Cache;
use super::memory::Shared;
use super::simd::Isa;
use super::{Buffer, Cpu};
use crate::batch::{Batch, Span};
use crate::device::Attention;

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

    /// # Safety
    /// Nobody else writes this tile's queries in `out`.
    pub unsafe fn whole_tile(&self, unit: usize, scratch: &mut Scratch, out: Shared<'_, f32>, width: usize) {
        let (tile, places) = self.tile(unit);
        let Scratch { queries, chunk: scratch, next: partial, totals } = scratch;
        self.isa.run(RoundQueries { tile: &tile, to: queries });
        self.clear(&tile, totals);
        for chunk in tile.chunks() {
            self.isa.run(AttendChunk { queries, scratch, tile: &tile, chunk, next: chunk + 1, out: partial });
            self.add(&tile, totals, partial);
        }
        // SAFETY: passed on.
        unsafe { self.write(&tile, &places, totals, out, width) };
    }

    /// One of the chunks of a tile that `threads` threads take turns at.
    pub fn one_chunk(
        &self,
        unit: usize,
        chunk: usize,
        threads: usize,
        scratch: &mut Scratch,
        partial: &mut [Partial; TILE],
    ) {
        let (tile, _) = self.tile(unit);
        if tile.chunks().contains(&chunk) {
            self.isa.run(RoundQueries { tile: &tile, to: &mut scratch.queries });
            self.isa.run(AttendChunk {
                queries: &scratch.queries,
                scratch: &mut scratch.chunk,
                tile: &tile,
                chunk,
                next: chunk + threads,
                out: partial,
            });
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
