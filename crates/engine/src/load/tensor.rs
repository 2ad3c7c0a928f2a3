//! A weight as it lies in the mapped files, seen as rows of one format whatever the files look like.

use super::error::{Fault, LoadError, quoted};
use super::made_up::Spread;
use super::region::{MappedFile, Region};
use crate::device::cuda::ops::stored;
use crate::quant::panels::{self, Packer};
use crate::quant::{Format, dequantize_row};
use std::path::Path;
use std::sync::Arc;

/// A checked view of one weight. `shape` is outermost first; the last dimension is contiguous.
///
/// A matrix is (out, in); experts are (experts, out, in). All dimensions but the last are "rows".
#[derive(Debug, Clone)]
pub struct Tensor {
    pub name: String,
    pub shape: Vec<usize>,
    pub format: Format,
    layout: Layout,
    parts: Arc<[Part]>, // each holds the same number of rows
}

/// A run of rows. Stacked experts may each lie in another file.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) data: Region,
    pub(super) scales: Option<Region>, // of the layouts that keep them apart
}

/// How the rows of a part lie in its data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Layout {
    /// Row `i` is stored row `first + i * step`, in the blocks of the format.
    Rows { first: usize, step: usize },
    /// Value (row, col) is stored value `first + row * row_step + col * col_step`: transposed matrices.
    Strided { first: usize, row_step: usize, col_step: usize },
    /// As `Rows`, but MXFP4 with scales apart and with neighbours, not halves, sharing a byte.
    SplitMxfp4 { first: usize, step: usize },
    /// Rows of e4m3 with a scale for each tile of (tile_rows, tile_cols).
    Fp8Tiles { tile_rows: usize, tile_cols: usize, scale_format: Format },
    /// In the panels of the CPU's kernels; `rows` of each matrix (of each expert).
    Panels { rows: usize },
    /// As a card's kernels read it: the whole of it can be had, but no rows.
    Tiles { rows: usize },
    /// Nowhere: rows are made up when they are read.
    MadeUp(Spread),
}

impl Layout {
    pub(super) const PLAIN: Layout = Layout::Rows { first: 0, step: 1 };
}

impl Tensor {
    /// Refuses parts that are too small for their rows, so that no later read can leave them.
    pub(super) fn new(
        name: String,
        shape: Vec<usize>,
        format: Format,
        layout: Layout,
        parts: Vec<Part>,
    ) -> Result<Tensor, Fault> {
        let tensor = Tensor { name, shape, format, layout, parts: parts.into() };
        let whole = !tensor.parts.is_empty() && tensor.rows().is_multiple_of(tensor.parts.len());
        let fits = whole && tensor.parts.iter().all(|part| tensor.holds(part));
        if !fits || !tensor.cols().is_multiple_of(format.block_len()) {
            let found = format!("too small for {:?} in {}", tensor.shape, format.name());
            return Err(Fault::damaged(quoted(&tensor.name), found, "data for every row"));
        }
        Ok(tensor)
    }

    /// A tensor of these bytes, for tests and for benchmarks on made-up weights.
    pub fn in_memory(name: &str, shape: &[usize], format: Format, bytes: &[u8]) -> Result<Tensor, LoadError> {
        let whole = |file: Arc<MappedFile>| Region::new(&file, 0..bytes.len());
        let path = Path::new("(memory)");
        let file = MappedFile::in_memory(bytes).map_err(|error| Fault::Io(error).of(path))?;
        let parts = whole(file).map(|data| Part { data, scales: None }).into_iter().collect();
        Tensor::new(name.into(), shape.into(), format, Layout::PLAIN, parts).map_err(|fault| fault.of(path))
    }

    pub(super) fn made_up(name: &str, shape: &[usize], format: Format, spread: Spread) -> Tensor {
        let (name, shape, layout) = (name.into(), shape.into(), Layout::MadeUp(spread));
        Tensor { name, shape, format, layout, parts: Vec::new().into() }
    }

    /// About how large the values of a made-up tensor are; nothing for a real one.
    pub fn made_up_size(&self) -> Option<f32> {
        match self.layout {
            Layout::MadeUp(spread) => Some(spread.size),
            _ => None,
        }
    }

    fn holds(&self, part: &Part) -> bool {
        let scales = part.scales.as_ref().map_or(0, |scales| scales.bytes().len());
        let needed = self.part_bytes();
        needed.is_some_and(|(data, scale)| data <= part.data.bytes().len() && scale <= scales)
    }

    /// Bytes of data and of scales that a part needs.
    fn part_bytes(&self) -> Option<(usize, usize)> {
        let (last, cols) = (self.part_rows().checked_sub(1)?, self.cols());
        match self.layout {
            Layout::Rows { first, step } => {
                let rows = last.checked_mul(step)?.checked_add(first)?.checked_add(1)?;
                Some((rows.checked_mul(self.format.row_bytes(cols))?, 0))
            }
            Layout::Strided { first, row_step, col_step } => {
                let row = last.checked_mul(row_step)?.checked_add(first)?;
                let value = cols.checked_sub(1)?.checked_mul(col_step)?.checked_add(row)?;
                Some((value.checked_add(1)?.checked_mul(self.format.block_bytes())?, 0))
            }
            Layout::SplitMxfp4 { first, step } => {
                let rows = last.checked_mul(step)?.checked_add(first)?.checked_add(1)?;
                let blocks = rows.checked_mul(cols / 32)?;
                Some((blocks.checked_mul(16)?, blocks))
            }
            Layout::Fp8Tiles { tile_rows, tile_cols, scale_format } => {
                let tiles = (last / tile_rows + 1).checked_mul(cols.div_ceil(tile_cols))?;
                Some(((last + 1).checked_mul(cols)?, tiles.checked_mul(scale_format.block_bytes())?))
            }
            Layout::Panels { rows } => {
                let matrices = self.part_rows().checked_div(rows)?;
                Some((panels::matrix_bytes(self.format, rows, cols)?.checked_mul(matrices)?, 0))
            }
            Layout::Tiles { rows } => {
                Some((stored::bytes(self.format, rows, cols, self.rows().checked_div(rows)?)?, 0))
            }
            Layout::MadeUp(_) => Some((0, 0)),
        }
    }

    pub fn cols(&self) -> usize {
        self.shape.last().copied().unwrap_or(0)
    }

    pub fn rows(&self) -> usize {
        self.shape.iter().rev().skip(1).product()
    }

    /// Bytes of the whole tensor in `format`.
    pub fn bytes(&self) -> usize {
        self.rows() * self.format.row_bytes(self.cols())
    }

    /// The file that holds it (the first, where it is spread over several).
    pub fn file(&self) -> &Path {
        self.parts.first().map_or(Path::new(""), |part| &part.data.file.path)
    }

    fn part_rows(&self) -> usize {
        self.rows() / self.parts.len().max(1)
    }

    fn part(&self, row: usize) -> (&Part, usize) {
        let part_rows = self.part_rows();
        (&self.parts[row / part_rows], row % part_rows)
    }

    /// Row `row` as f32, into `out` of `cols` values. Panics when the row or the length is not this tensor's.
    pub fn row_f32(&self, row: usize, out: &mut [f32]) {
        let mut scratch = Vec::new();
        dequantize_row(self.format, self.row_blocks(row, &mut scratch), out);
        if let Layout::Fp8Tiles { tile_cols, .. } = self.layout {
            for (tile, values) in out.chunks_mut(tile_cols).enumerate() {
                let scale = self.tile_scale(row, tile);
                values.iter_mut().for_each(|value| *value *= scale);
            }
        }
    }

    /// Row `row` in the block layout of `format`: borrowed when it lies so in the file, else in `scratch`.
    pub fn row_blocks<'a>(&'a self, row: usize, scratch: &'a mut Vec<u8>) -> &'a [u8] {
        if let Layout::MadeUp(spread) = self.layout {
            spread.row(self.format, row, self.cols(), scratch);
            return scratch;
        }
        let (part, row) = self.part(row);
        let (data, cols) = (part.data.bytes(), self.cols());
        let row_bytes = self.format.row_bytes(cols);
        match self.layout {
            Layout::Rows { first, step } => &data[(first + row * step) * row_bytes..][..row_bytes],
            Layout::Fp8Tiles { .. } => &data[row * cols..][..cols],
            Layout::Strided { first, row_step, col_step } => {
                gather(data, self.format.block_bytes(), first + row * row_step, col_step, cols, scratch);
                scratch
            }
            Layout::SplitMxfp4 { first, step } => {
                let blocks = cols / 32;
                let at = (first + row * step) * blocks;
                let scales = part.scales.as_ref().map_or(&[][..], Region::bytes);
                join_mxfp4(&data[at * 16..][..blocks * 16], &scales[at..][..blocks], scratch);
                scratch
            }
            Layout::Panels { rows } => {
                let panel_bytes = panels::panel_bytes(self.format, cols);
                let at =
                    (row / rows * rows.div_ceil(panels::LANES) + row % rows / panels::LANES) * panel_bytes;
                let lane = row % rows % panels::LANES;
                Packer::default().take(self.format, cols, lane, &data[at..at + panel_bytes], scratch);
                scratch
            }
            // Devices that want rows are refused before this.
            Layout::Tiles { .. } | Layout::MadeUp(_) => {
                scratch.clear();
                scratch.resize(row_bytes, 0);
                scratch
            }
        }
    }

    /// Rows `first..first + rows` as the CPU's kernels read them, where they are one matrix that lies so in the file.
    pub fn panels(&self, first: usize, rows: usize) -> Option<&[u8]> {
        let Layout::Panels { rows: own } = self.layout else { return None };
        let (part, first) = self.part(first);
        let bytes = panels::matrix_bytes(self.format, own, self.cols())?;
        let whole = rows == own && first.is_multiple_of(own);
        whole.then(|| part.data.bytes().get(first / own * bytes..)?.get(..bytes)).flatten()
    }

    /// All of it as a card's kernels read it, where it lies so in the file.
    pub fn tiles(&self) -> Option<&[u8]> {
        let Layout::Tiles { rows } = self.layout else { return None };
        let bytes = stored::bytes(self.format, rows, self.cols(), self.rows().checked_div(rows)?)?;
        self.parts.first()?.data.bytes().get(..bytes)
    }

    /// Rows and columns of the tiles that share a scale; `None`: the format has its scales within.
    pub fn tile(&self) -> Option<(usize, usize)> {
        match self.layout {
            Layout::Fp8Tiles { tile_rows, tile_cols, .. } => Some((tile_rows, tile_cols)),
            Layout::Rows { .. } | Layout::Strided { .. } | Layout::SplitMxfp4 { .. } => None,
            Layout::Panels { .. } | Layout::Tiles { .. } | Layout::MadeUp(_) => None,
        }
    }

    /// The scale of FP8 row `row` in its `tile`-th tile of columns; 1 for formats with scales within.
    pub fn tile_scale(&self, row: usize, tile: usize) -> f32 {
        let Layout::Fp8Tiles { tile_rows, tile_cols, scale_format } = self.layout else {
            return 1.0;
        };
        let (part, row) = self.part(row);
        let index = row / tile_rows * self.cols().div_ceil(tile_cols) + tile;
        let width = scale_format.block_bytes();
        let scales = part.scales.as_ref().map_or(&[][..], Region::bytes);
        let mut scale = [0.0];
        dequantize_row(scale_format, &scales[index * width..][..width], &mut scale);
        scale[0]
    }

    /// Gives back the memory of all pages of the files that hold it.
    pub(super) fn release_files(&self) {
        self.parts.iter().for_each(|part| part.data.file.release_all());
    }

    /// Gives back the memory of pages wholly inside this tensor, once a device has its own copy.
    pub fn release(&self) {
        for part in self.parts.iter() {
            part.data.release();
            part.scales.iter().for_each(Region::release);
        }
    }
}

/// Values of `width` bytes, every `step`-th from `first`.
fn gather(data: &[u8], width: usize, first: usize, step: usize, count: usize, out: &mut Vec<u8>) {
    out.clear();
    for i in 0..count {
        out.extend_from_slice(&data[(first + i * step) * width..][..width]);
    }
}

/// MXFP4 blocks of 32 from scales and nibbles that lie apart: neighbours share a byte there, while in a
/// block the first half are the low nibbles and the second half the high ones.
fn join_mxfp4(nibbles: &[u8], scales: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let code = |bytes: &[u8], i: usize| bytes[i / 2] >> (i % 2 * 4) & 0x0F;
    for (bytes, scale) in nibbles.chunks_exact(16).zip(scales) {
        out.push(*scale);
        out.extend((0..16).map(|i| code(bytes, i) | code(bytes, i + 16) << 4));
    }
}
