//! Weights in panels (`quant::panels`), in memory that the kernels read fast.

use super::matmul::Units;
use super::memory::{Arena, Piece, Shared};
use super::pool::Pool;
use super::simd;
use crate::device::DeviceError;
use crate::load::Tensor;
pub(crate) use crate::quant::panels::with_packing;
pub use crate::quant::panels::{BLOCK, LARGE_BLOCK, Packing, Q6K, ScaleKind, Stripe};
use crate::quant::panels::{LANES, Packer, is_sound, panel_bytes};
use crate::quant::{Format, quantize_row};
use std::sync::atomic::{AtomicBool, Ordering};

const _: () = assert!(LANES == simd::LANES);

/// One tensor, packed. Rows past the last are zero.
#[derive(Clone)]
pub struct Packed {
    pub format: Format, // FP8 becomes Q8_0, the nearest that takes no more room
    pub rows: usize,
    pub cols: usize,
    panel_bytes: usize,
    stride: usize, // bytes from a panel to the next one of this tensor
    start: usize,  // of the first panel
    data: Piece,   // (panels, stride)
}

impl Packed {
    /// Packs rows `first..first + rows` of a tensor, or copies them where the file has them packed: 4 KiB pages of a mapped
    /// file would cost a part of the bandwidth with every token.
    pub fn new(
        pool: &mut Pool,
        arena: &mut Arena,
        tensor: &Tensor,
        first: usize,
        rows: usize,
    ) -> Result<Packed, DeviceError> {
        let [packed] = Packed::by_turns(pool, arena, [tensor], first, rows)?;
        Ok(packed)
    }

    /// As [`Packed::new`], the same rows of several tensors, a panel of each by turns: who multiplies with all of them reads one
    /// stream.
    pub fn by_turns<const N: usize>(
        pool: &mut Pool,
        arena: &mut Arena,
        tensors: [&Tensor; N],
        first: usize,
        rows: usize,
    ) -> Result<[Packed; N], DeviceError> {
        let panels = rows.div_ceil(LANES);
        let mut stride = 0;
        let parts = tensors.map(|tensor| {
            let format = packed_format(tensor);
            let panel_bytes = panel_bytes(format, tensor.cols());
            stride += panel_bytes;
            Part {
                tensor,
                format,
                panel_bytes,
                start: stride - panel_bytes,
                stored: tensor.panels(first, rows),
            }
        });
        let damaged: [AtomicBool; N] = std::array::from_fn(|_| AtomicBool::new(false));
        let data = arena.take(panels * stride, |data| {
            let shared = Shared::new(data);
            pool.run(|worker| {
                let (mut packer, mut scratch) = (Packer::default(), Vec::new());
                while let Some(panel) = worker.take(panels) {
                    let lanes = LANES.min(rows - panel * LANES);
                    for (part, damaged) in parts.iter().zip(&damaged) {
                        // SAFETY: each panel is taken by one thread.
                        let out = unsafe { shared.range_mut(panel * stride + part.start, part.panel_bytes) };
                        if !part.put(panel, first, lanes, out, &mut packer, &mut scratch) {
                            damaged.store(true, Ordering::Relaxed);
                        }
                    }
                }
            });
        })?;
        for (part, damaged) in parts.iter().zip(damaged) {
            if damaged.into_inner() {
                let problem = "a scale is not a number. The file is damaged: get it again".into();
                return Err(DeviceError::Unsupported { name: part.tensor.name.clone(), problem });
            }
        }
        Ok(parts.map(|Part { tensor, format, panel_bytes, start, .. }| {
            let (cols, data) = (tensor.cols(), data.clone());
            Packed { format, rows, cols, panel_bytes, stride, start, data }
        }))
    }

    pub fn bytes(&self) -> usize {
        self.panels() * self.panel_bytes
    }

    pub fn panels(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    /// How a product of so many rows is shared out, in units of at most `most` panels.
    pub fn units(&self, threads: usize, rows: usize, most: usize) -> Units {
        Units::new(self.panels(), self.stride, threads, rows, most)
    }

    #[inline(always)]
    pub fn panel(&self, index: usize) -> *const u8 {
        self.data[index * self.stride + self.start..].as_ptr()
    }

    pub fn panel_bytes(&self, index: usize) -> &[u8] {
        &self.data[index * self.stride + self.start..][..self.panel_bytes]
    }
}

/// What becomes of one tensor's rows.
struct Part<'a> {
    tensor: &'a Tensor,
    format: Format,
    panel_bytes: usize,
    start: usize,             // of the first panel
    stored: Option<&'a [u8]>, // (panels, panel_bytes) where the file has them packed
}

impl Part<'_> {
    /// Writes one panel; `first` is the row where the first panel begins. Whether it is sound is told.
    fn put(
        &self,
        panel: usize,
        first: usize,
        lanes: usize,
        out: &mut [u8],
        packer: &mut Packer,
        scratch: &mut Vec<u8>,
    ) -> bool {
        if let Some(stored) = self.stored {
            out.copy_from_slice(&stored[panel * self.panel_bytes..][..self.panel_bytes]);
            return is_sound(self.format, out);
        }
        for lane in 0..lanes {
            let row = row_in(self.format, self.tensor, first + panel * LANES + lane, scratch);
            packer.put(self.format, row, lane, out);
        }
        true
    }
}

/// The format that a tensor is packed in: its own, unless there is no kernel for that.
pub fn packed_format(tensor: &Tensor) -> Format {
    match tensor.format {
        Format::Fp8 if tensor.cols().is_multiple_of(BLOCK) => Format::Q8_0,
        Format::Fp8 => Format::Bf16,
        other => other,
    }
}

/// A row's bytes in the format that it is packed in.
fn row_in<'a>(format: Format, tensor: &'a Tensor, row: usize, scratch: &'a mut Vec<u8>) -> &'a [u8] {
    if tensor.format == format {
        return tensor.row_blocks(row, scratch);
    }
    let mut values = vec![0.0; tensor.cols()];
    tensor.row_f32(row, &mut values);
    scratch.clear();
    quantize_row(format, &values, scratch);
    scratch
}
