//! Weights in panels (`quant::panels`), in memory that the kernels read fast.

use super::matmul::Units;
use super::memory::{Arena, Piece, Shared};
use super::pool::Pool;
use super::simd;
use crate::device::DeviceError;
use crate::load::Tensor;
pub(crate) use crate::quant::panels::with_packing;
pub use crate::quant::panels::{BLOCK, LARGE_BLOCK, Packing, ScaleKind, Stripe};
use crate::quant::panels::{LANES, Packer, is_sound, panel_bytes};
use crate::quant::{Format, quantize_row};
use std::sync::atomic::{AtomicBool, Ordering};

const _: () = assert!(LANES == simd::LANES);

/// One tensor, packed. Rows past the last are zero.
pub struct Packed {
    pub format: Format, // FP8 becomes Q8_0, the nearest that takes no more room
    pub rows: usize,
    pub cols: usize,
    panel_bytes: usize,
    data: Piece, // (panels, panel_bytes)
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
        let cols = tensor.cols();
        let format = packed_format(tensor);
        let panel_bytes = panel_bytes(format, cols);
        let panels = rows.div_ceil(LANES);
        let stored = tensor.panels(first, rows);
        let damaged = AtomicBool::new(false);
        let data = arena.take(panels * panel_bytes, |data| {
            let shared = Shared::new(data);
            pool.run(|worker| {
                let (mut packer, mut scratch) = (Packer::default(), Vec::new());
                while let Some(panel) = worker.take(panels) {
                    // SAFETY: each panel is taken by one thread.
                    let out = unsafe { shared.range_mut(panel * panel_bytes, panel_bytes) };
                    if let Some(stored) = stored {
                        out.copy_from_slice(&stored[panel * panel_bytes..][..panel_bytes]);
                        damaged.fetch_or(!is_sound(format, out), Ordering::Relaxed);
                        continue;
                    }
                    for lane in 0..LANES.min(rows - panel * LANES) {
                        let row = row_in(format, tensor, first + panel * LANES + lane, &mut scratch);
                        packer.put(format, row, lane, out);
                    }
                }
            });
        })?;
        if damaged.into_inner() {
            let problem = "a scale is not a number. The file is damaged: get it again".into();
            return Err(DeviceError::Unsupported { name: tensor.name.clone(), problem });
        }
        Ok(Packed { format, rows, cols, panel_bytes, data })
    }

    pub fn bytes(&self) -> usize {
        self.panels() * self.panel_bytes
    }

    pub fn panels(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    /// How a product of so many rows is shared out, in units of at most `most` panels.
    pub fn units(&self, threads: usize, rows: usize, most: usize) -> Units {
        Units::new(self.panels(), self.panel_bytes, threads, rows, most)
    }

    #[inline(always)]
    pub fn panel(&self, index: usize) -> *const u8 {
        self.data[index * self.panel_bytes..].as_ptr()
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
