//! Attention: products into heads, heads into the cache, and the way back.

use super::super::{Bytes, Card, CudaError, Doing};
use super::kernels::{Grid, arg};
use super::layout::UNIT_COLS;
use super::step::{CHUNK_TOKENS, Step};
use super::{Buffer, Cuda, Matrix, RANGES, Vector, held};
use crate::batch::Batch;
use crate::device::Attention;
use crate::limits::KV_BLOCK_TOKENS;
use crate::model::config::Config;
use cudarc::driver::result;

/// Keys and values: (layers, blocks, keys and values, kv_heads, KV_BLOCK_TOKENS, head_dim) f16.
pub struct Cache {
    bytes: Bytes,
    layers: usize,
    blocks: usize,
    block_bytes: usize,
}

impl Cache {
    pub fn new(card: &Card, config: &Config, blocks: usize) -> Result<Cache, CudaError> {
        let block_bytes = 2 * config.kv_heads * KV_BLOCK_TOKENS * config.head_dim * 2;
        let bytes = card.zeros(config.layers * blocks * block_bytes)?;
        Ok(Cache { bytes, layers: config.layers, blocks, block_bytes })
    }

    pub fn blocks(&self) -> usize {
        self.blocks
    }

    pub fn address(&self) -> u64 {
        self.bytes.address
    }

    fn at(&self, layer: usize, block: usize) -> u64 {
        self.bytes.address + ((layer * self.blocks + block) * self.block_bytes) as u64
    }

    pub fn copy_block(&mut self, card: &Card, from: u32, to: u32) -> Result<(), CudaError> {
        for layer in 0..self.layers {
            let (from, to) = (self.at(layer, from as usize), self.at(layer, to as usize));
            // SAFETY: two blocks of the cache.
            unsafe { result::memcpy_dtod_async(to, from, self.block_bytes, card.stream.cu_stream()) }
                .doing("copying a block")?;
        }
        Ok(())
    }
}

/// `Place` of `heads.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Place {
    qkv: u64,
    q_norm: u64,
    k_norm: u64,
    angles: u64,
    places: u64,
    cache: u64,
    q_eps: f32,
    k_eps: f32,
    rows: i32,
    heads: i32,
    kv_heads: i32,
    adjacent: i32,
}

/// `Attend` of `attend.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Attend {
    qkv: u64,
    cache: u64,
    spans: u64,
    blocks: u64,
    positions: u64,
    sinks: u64,
    out: u64,
    partial_values: u64,
    partial_weights: u64,
    qkv_stride: i32,
    span_count: i32,
    rows: i32,
    kv_heads: i32,
    group: i32,
    window: i32,
    chunks: i32,
    unused: i32,
}

const WARP: usize = 32;
const WARP_PAIRS: usize = 16; // (row, head) that a warp attends for
const WARPS_MAX: usize = 4;
const PLACE_WARPS: usize = 8;
const ONE_WARPS: usize = 4;
/// Rows times chunks whose sums have room: more of them are folded by the warps that make them.
const PARTIALS_MAX: usize = 4096;
/// Chunks that are folded at once: 131,072 tokens.
const FOLD_CHUNKS_MAX: usize = 1024;
/// Chunks that are folded and made inputs by a block for each range; more of them want more blocks.
const NEAR_CHUNKS_MAX: usize = 64;
/// Chunks of a row whose blocks are a cluster.
const CLUSTER_CHUNKS_MAX: usize = 8;

/// Chunks that a row with this window sees at most, of so many.
fn chunks_seen(window: Option<usize>, chunks: usize) -> usize {
    window.map_or(chunks, |window| chunks.min((window + CHUNK_TOKENS - 2) / CHUNK_TOKENS + 1))
}

/// Whether the blocks of a row and a KV head fold what they sum up by themselves, as a cluster: they are few, and what becomes
/// inputs are whole ranges.
fn can_fold_together(w: &Attention<Cuda>, chunks: usize) -> bool {
    chunks <= CLUSTER_CHUNKS_MAX
        && RANGES.is_multiple_of(w.kv_heads)
        && (w.heads * w.head_dim).is_multiple_of(RANGES * UNIT_COLS)
}

impl Cuda {
    /// Room for the sums of chunks.
    pub(super) fn take_partials(&mut self, heads: usize, head_dim: usize) -> Result<(u64, u64), CudaError> {
        Ok((
            self.scratch.partial_values.at(&self.card, PARTIALS_MAX * heads * head_dim * 4)?,
            self.scratch.partial_weights.at(&self.card, PARTIALS_MAX * heads * 8)?,
        ))
    }

    /// Where heads go, and how they are turned.
    fn place_args(&self, w: &Attention<Cuda>, rows: usize, qkv: u64, cache: &Cache) -> Option<Place> {
        let step = self.step.as_ref()?;
        let (q_norm, q_eps) = w.q_norm.as_ref().and_then(Cuda::norm).unwrap_or((0, 0.0));
        let (k_norm, k_eps) = w.k_norm.as_ref().and_then(Cuda::norm).unwrap_or((0, 0.0));
        Some(Place {
            qkv,
            q_norm,
            k_norm,
            angles: step.angles(),
            places: step.places(),
            cache: cache.at(w.layer, 0),
            q_eps,
            k_eps,
            rows: rows as i32,
            heads: w.heads as i32,
            kv_heads: w.kv_heads as i32,
            adjacent: i32::from(step.adjacent),
        })
    }

    /// Whether attention itself turns the heads of this batch: each sequence has one row.
    fn attends_one(&self, w: &Attention<Cuda>, batch: &Batch) -> bool {
        let chunks = self.step.as_ref().map_or(usize::MAX, |step| step.chunks);
        self.attention.as_ref().is_some_and(|kernels| kernels.one.is_some())
            && w.heads / w.kv_heads <= WARP_PAIRS
            && batch.spans.iter().all(|span| span.rows.len() == 1)
            && chunks <= FOLD_CHUNKS_MAX
            && batch.rows() * chunks <= PARTIALS_MAX
    }

    pub(super) fn try_qkv(
        &mut self,
        w: &Attention<Cuda>,
        x: &Buffer,
        batch: &Batch,
        qkv: &mut Buffer,
        cache: &mut Cache,
    ) -> Result<(), CudaError> {
        let (rows, out) = (batch.rows(), qkv.write_on_card());
        let norm = Cuda::norm(&w.norm);
        let bias = w.qkv_bias.as_ref();
        self.multiply_normed(&w.qkv, bias, (x, rows), norm, out)?;
        let (Some(args), Some(kernels)) = (self.place_args(w, rows, out, cache), &self.attention) else {
            return Ok(());
        };
        if self.attends_one(w, batch) {
            return Ok(());
        }
        let heads = rows * (w.heads + 2 * w.kv_heads);
        let grid = Grid::rows(heads.div_ceil(PLACE_WARPS), PLACE_WARPS * WARP);
        // SAFETY: `Place` is the kernel's struct; every row has a place in the cache that `begin` was told.
        unsafe { kernels.place.launch(&self.card, grid, [arg(&args)]) }
    }

    /// `out = matrix * norm(x) + bias`
    fn multiply_normed(
        &mut self,
        matrix: &Matrix,
        bias: Option<&Vector>,
        (x, rows): (&Buffer, usize),
        norm: Option<(u64, f32)>,
        out: u64,
    ) -> Result<(), CudaError> {
        let inputs = match self.settle_normed((self.lies(x)?, x.width), norm)? {
            Some(inputs) if self.held_ready(matrix, bias, (inputs, rows), out, false)? => return Ok(()),
            Some(inputs) => inputs,
            None => {
                self.settle()?;
                let done = (rows > 1 && self.held_normed(matrix, bias, (x, rows), norm, out)?)
                    || self.few_normed(matrix, bias, (x, rows), norm, out)?;
                if done {
                    return Ok(());
                }
                self.prepare_buffer(x, rows, norm)?
            }
        };
        self.product(matrix, inputs, rows, bias, out, false)
    }

    fn attend_args(
        &mut self,
        w: &Attention<Cuda>,
        qkv: &Buffer,
        batch: &Batch,
        cache: &Cache,
        out: &mut Buffer,
    ) -> Result<Attend, CudaError> {
        let (qkv_at, _) = qkv.read_on_card(&self.card)?;
        let (partial_values, partial_weights) = self.take_partials(w.heads, w.head_dim)?;
        self.prepared = None;
        let ask = |address: fn(&Step) -> u64| self.step.as_ref().map_or(0, address);
        Ok(Attend {
            qkv: qkv_at,
            cache: cache.at(w.layer, 0),
            spans: ask(Step::spans),
            blocks: ask(Step::blocks),
            positions: ask(Step::positions),
            sinks: w.sinks.as_ref().map_or(0, |sinks| sinks.values.address),
            out: out.write_on_card(),
            partial_values,
            partial_weights,
            qkv_stride: qkv.width as i32,
            span_count: batch.spans.len() as i32,
            rows: batch.rows() as i32,
            kv_heads: w.kv_heads as i32,
            group: (w.heads / w.kv_heads) as i32,
            window: w.window.unwrap_or(0) as i32,
            chunks: self.step.as_ref().map_or(0, |step| step.chunks) as i32,
            unused: 0,
        })
    }

    pub(super) fn try_attend(
        &mut self,
        w: &Attention<Cuda>,
        qkv: &Buffer,
        batch: &Batch,
        cache: &Cache,
        out: &mut Buffer,
    ) -> Result<(), CudaError> {
        let args = self.attend_args(w, qkv, batch, cache, out)?;
        if self.attends_one(w, batch) {
            return self.attend_one(w, batch, cache, &args);
        }
        let Some(kernels) = &self.attention else { return Ok(()) };
        let (group, chunks) = (w.heads / w.kv_heads, args.chunks as usize);
        let longest = batch.spans.iter().map(|span| span.rows.len()).max().unwrap_or(0);
        let warps = (longest * group).div_ceil(WARP_PAIRS).clamp(1, WARPS_MAX);
        let tile = |rows: usize| (rows * group).div_ceil(warps * WARP_PAIRS);
        let tiles: usize = batch.spans.iter().map(|span| tile(span.rows.len())).sum();
        let split = chunks > 1
            && tiles * w.kv_heads < 2 * self.card.multiprocessors
            && chunks <= FOLD_CHUNKS_MAX
            && batch.rows() * chunks <= PARTIALS_MAX;
        let blocks = (tiles, w.kv_heads, if split { chunks } else { 1 });
        let grid = Grid { blocks, threads: warps * WARP };
        let kernel = if split { &kernels.split } else { &kernels.whole };
        // SAFETY: `Attend` is the kernels' struct; the tables are those of this batch, the partial sums have room.
        unsafe { kernel.launch(&self.card, grid, [arg(&args)]) }?;
        if split { self.fold(w, batch.rows(), &args) } else { Ok(()) }
    }

    /// One row a sequence, and a block a chunk of its positions.
    fn attend_one(
        &mut self,
        w: &Attention<Cuda>,
        batch: &Batch,
        cache: &Cache,
        args: &Attend,
    ) -> Result<(), CudaError> {
        let Some(place) = self.place_args(w, batch.rows(), args.qkv, cache) else { return Ok(()) };
        let (rows, chunks) = (batch.rows(), chunks_seen(w.window, args.chunks as usize));
        let together = self.card.capability.0 >= 9 && can_fold_together(w, chunks);
        let to = self.inputs(rows, w.heads * w.head_dim)?;
        let Some(one) = self.attention.as_ref().and_then(|kernels| kernels.one.as_ref()) else {
            return Ok(());
        };
        let kernel = if (2..=held::ROWS_MAX).contains(&rows) { &one.beside_held } else { &one.usual };
        let grid = Grid { blocks: (rows, w.kv_heads, chunks), threads: ONE_WARPS * WARP };
        let (cluster, folds) = (if together { chunks } else { 1 }, i32::from(together));
        let arguments = [arg(args), arg(&place), arg(&to), arg(&folds)];
        // SAFETY: the kernel's structs; the tables are those of this batch, the partial sums and the inputs have room.
        unsafe { kernel.launch_in_clusters(&self.card, grid, cluster, arguments) }?;
        if together {
            self.prepared = Some(args.out);
            return Ok(());
        }
        self.fold(w, rows, args)
    }

    /// Folds the sums of chunks; near the beginning of a sequence, what products read is made in the same go.
    fn fold(&mut self, w: &Attention<Cuda>, rows: usize, args: &Attend) -> Result<(), CudaError> {
        let width = w.heads * w.head_dim;
        let to = self.inputs(rows, width)?;
        let Some(kernels) = &self.attention else { return Ok(()) };
        let columns = (to.units as usize).div_ceil(RANGES) * UNIT_COLS; // of the widest range
        let near = args.chunks as usize <= NEAR_CHUNKS_MAX && columns <= kernels.near_columns;
        let grid = Grid::rows(rows * w.heads, w.head_dim.next_multiple_of(WARP));
        let near_grid = Grid { blocks: (rows, RANGES, 1), threads: columns };
        // SAFETY: the kernels' structs; the inputs have room for the rows.
        unsafe {
            match near {
                true => kernels.fold_near.launch(&self.card, near_grid, [arg(args), arg(&to)])?,
                false => kernels.fold.launch(&self.card, grid, [arg(args)])?,
            }
        }
        self.prepared = near.then_some(args.out);
        Ok(())
    }
}
