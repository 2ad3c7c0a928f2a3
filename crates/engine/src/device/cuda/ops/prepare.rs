//! Rows as products read them: f16 with a power of two for each range of columns.

use super::super::CudaError;
use super::kernels::{Grid, arg};
use super::layout::UNIT_COLS;
use super::weights::padded;
use super::{Buffer, Cuda, RANGES};

const ROW_THREADS: usize = 256;

/// `Prepared` of `rows.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Prepared {
    pub values: u64,
    pub factors: u64,
    pub stride: i32,
    pub units: i32,
}

/// Rows to be normalised, or not, and made what products read.
pub struct Source {
    pub x: u64,
    pub stride: usize,
    pub list: u64, // of row numbers, or 0
    pub count: usize,
    pub width: usize,
    pub norm: Option<(u64, f32)>, // weights, eps
}

impl Cuda {
    /// Room for the inputs of products.
    pub(super) fn inputs(&mut self, rows: usize, cols: usize) -> Result<Prepared, CudaError> {
        let stride = padded(cols);
        Ok(Prepared {
            values: self.scratch.inputs.at(&self.card, rows * stride * 2)?,
            factors: self.scratch.factors.at(&self.card, rows * RANGES * 4)?,
            stride: stride as i32,
            units: (stride / UNIT_COLS) as i32,
        })
    }

    pub(super) fn prepare(&mut self, source: &Source) -> Result<Prepared, CudaError> {
        let to = self.inputs(source.count, source.width)?;
        self.prepared = None;
        let (weight, eps) = source.norm.unwrap_or((0, 0.0));
        let (stride, width) = (source.stride as i32, source.width as i32);
        let args =
            [arg(&source.x), arg(&stride), arg(&source.list), arg(&weight), arg(&eps), arg(&width), arg(&to)];
        // SAFETY: the arguments of `prepare`; x has the rows, the inputs have room for them.
        unsafe { self.kernels.prepare.launch(&self.card, ranges(source.count), args) }?;
        Ok(to)
    }

    /// The rows of a buffer as inputs; they may be there already.
    pub(super) fn prepare_buffer(
        &mut self,
        x: &Buffer,
        rows: usize,
        norm: Option<(u64, f32)>,
    ) -> Result<Prepared, CudaError> {
        let (address, brought) = x.read_on_card(&self.card)?;
        if !brought && norm.is_none() && self.prepared == Some(address) {
            return self.inputs(rows, x.width);
        }
        self.prepare(&Source { x: address, stride: x.width, list: 0, count: rows, width: x.width, norm })
    }

    /// The rows of a buffer as inputs, if they are there already.
    pub(super) fn prepared_rows(&mut self, x: &Buffer, rows: usize) -> Result<Option<Prepared>, CudaError> {
        let (address, brought) = x.read_on_card(&self.card)?;
        match !brought && self.prepared == Some(address) {
            true => self.inputs(rows, x.width).map(Some),
            false => Ok(None),
        }
    }
}

/// A block for each range of each row.
pub fn ranges(rows: usize) -> Grid {
    Grid { blocks: (rows, RANGES, 1), threads: ROW_THREADS }
}
