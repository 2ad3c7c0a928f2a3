//! Weights that are made up on the card, for measuring; and how fast it reads memory.

use super::super::{Bytes, Card, CudaError, Doing};
use super::kernels::{Grid, Kernel, MadeUpKernels, arg};
use super::layout::{Layout, Plan};
use super::weights::Part;
use crate::load::{LoadError, Tensor};
use cudarc::driver::sys::CUevent_flags;
use half::f16;
use std::path::Path;
use std::sync::Arc;

const THREADS: usize = 256;
const BLOCKS: usize = 2048;
const READ_THREADS: usize = 1024;
const READS: usize = 4;
const TABLE_ROWS: usize = 1024;

pub struct Maker {
    kernels: MadeUpKernels,
}

impl Maker {
    pub fn new(card: &Card, folder: &Path) -> Result<Maker, CudaError> {
        Ok(Maker { kernels: MadeUpKernels::load(card, folder)? })
    }

    /// Made-up tensors of one plan as one matrix, or as experts; nothing if they are real, or small enough to be packed.
    pub fn part(&self, card: &Card, tensors: &[Tensor], experts: usize) -> Result<Option<Part>, CudaError> {
        let Some(first) = tensors.first() else { return Ok(None) };
        let (plan, Some(size)) = (Plan::of(first.format), first.made_up_size()) else { return Ok(None) };
        if plan.layout == Layout::Floats {
            return Ok(None);
        }
        let rows = tensors.iter().map(Tensor::rows).sum::<usize>() / experts.max(1);
        let (codes, scales) = plan.bytes(rows, first.cols());
        let (codes, scales) =
            (Arc::new(card.zeros(experts * codes)?), Arc::new(card.zeros(experts * scales)?));
        let (both, factor) = scale(plan.layout, size);
        let (seed, words) = (codes.address, codes.len() as u64 / 4);
        let fill = |kernel: &Kernel, args| {
            // SAFETY: the kernels write as many words as the bytes have.
            unsafe { kernel.launch(card, Grid::rows(BLOCKS, THREADS), args) }
        };
        fill(&self.kernels.codes, [arg(&codes.address), arg(&words), arg(&seed)])?;
        let words = scales.len() as u64 / 4;
        fill(&self.kernels.scales, [arg(&scales.address), arg(&words), arg(&both)])?;
        card.finish()?;
        Ok(Some(Part { plan, rows, codes, scales, factor }))
    }

    /// A made-up table's first rows, which others take for theirs: making a row up takes the host longer than looking it up.
    pub fn table(&self, tensor: &Tensor) -> Result<Tensor, LoadError> {
        if tensor.made_up_size().is_none() {
            return Ok(tensor.clone());
        }
        let (rows, mut row, mut bytes) = (tensor.rows().min(TABLE_ROWS), Vec::new(), Vec::new());
        (0..rows).for_each(|index| bytes.extend_from_slice(tensor.row_blocks(index, &mut row)));
        Tensor::in_memory(&tensor.name, &[rows, tensor.cols()], tensor.format, &bytes)
    }

    /// Bytes a second of a plain read of `bytes` bytes of memory.
    pub fn read_bandwidth(&self, card: &Card, bytes: usize) -> Result<f64, CudaError> {
        let (memory, out) = (card.zeros(bytes)?, card.zeros(16)?);
        let count = bytes as u64 / 16;
        let mut best = f64::MAX;
        for _ in 0..READS {
            let event =
                || card.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).doing("measuring time");
            let begun = event()?;
            self.read(card, &memory, count, &out)?;
            let ended = event()?;
            card.finish()?;
            best = best.min(f64::from(begun.elapsed_ms(&ended).doing("measuring time")?) / 1000.0);
        }
        Ok(bytes as f64 / best)
    }

    fn read(&self, card: &Card, memory: &Bytes, count: u64, out: &Bytes) -> Result<(), CudaError> {
        let args = [arg(&memory.address), arg(&count), arg(&out.address)];
        let grid = Grid::rows(2 * card.multiprocessors, READ_THREADS);
        // SAFETY: reads `count` vectors of the memory, and writes at most one word.
        unsafe { self.kernels.read.launch(card, grid, args) }
    }
}

/// Scales that give random codes this deviation, as two f16 of a word, and the factor on every product.
fn scale(layout: Layout, size: f32) -> (u32, f32) {
    let pair = |low: f32, high: f32| {
        u32::from(f16::from_f32(low).to_bits()) | u32::from(f16::from_f32(high).to_bits()) << 16
    };
    // The step between levels, raised by a power of two so that 2^24 of it is an f16.
    let levels = |deviation: f32, middle: f32| {
        let step = size / deviation;
        let raise = (-10.0 - step.log2()).floor().exp2();
        (pair(step * raise * 16_777_216.0, -middle * step * raise), 1.0 / raise)
    };
    match layout {
        Layout::Levels4 => levels(4.6, 7.5),
        Layout::Levels8 => levels(74.0, 127.5),
        // Codes have a deviation of about 3, and come as 2^-14 of themselves.
        Layout::Fp4 | Layout::Floats => (pair(16_384.0, 16_384.0), (size / 3.0).log2().floor().exp2()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_numbers_that_f16_has() {
        for layout in [Layout::Levels4, Layout::Levels8, Layout::Fp4] {
            for size in [0.005, 0.02, 0.1] {
                let (both, factor) = scale(layout, size);
                for bits in [both as u16, (both >> 16) as u16] {
                    let value = f16::from_bits(bits).to_f32().abs();
                    assert!(value.is_finite() && value > 1e-3, "{layout:?} {size}: {value}");
                }
                assert_eq!(factor.log2().fract(), 0.0);
            }
        }
    }
}
