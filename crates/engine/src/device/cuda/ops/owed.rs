//! The sum at the end of a mixture of few rows waits for who reads x next: attention's product normalises the new rows, which the
//! kernel that makes them can do once for all.

use super::super::CudaError;
use super::kernels::{Grid, arg};
use super::{Cuda, Prepared, RANGES};

/// `x += sum over the used of share * down`, not launched yet.
#[derive(Debug, Clone, Copy)]
pub struct Owed {
    pub x: u64,
    pub width: usize,
    pub rows: usize,
    pub down: u64,
    pub shares: u64,
    pub used: usize,
}

const MIX_THREADS: usize = 256;
const MIXED_THREADS: usize = 128;
/// A thread has four columns of a range.
const WIDTH_MAX: usize = 4 * MIXED_THREADS * RANGES;

impl Cuda {
    /// Before anything else looks at x.
    pub(super) fn settle(&mut self) -> Result<(), CudaError> {
        self.owed.take().map_or(Ok(()), |owed| self.mix(&owed))
    }

    pub(super) fn mix(&self, owed: &Owed) -> Result<(), CudaError> {
        let Owed { x, rows, down, shares, .. } = owed;
        let (width, used) = (owed.width as i32, owed.used as i32);
        let grid = Grid { blocks: (*rows, owed.width.div_ceil(MIX_THREADS), 1), threads: MIX_THREADS };
        let args = [arg(x), arg(&width), arg(down), arg(shares), arg(&used)];
        // SAFETY: the arguments of `mix`; x has the rows, `down` and `shares` their slots.
        unsafe { self.kernels.mix.launch(&self.card, grid, args) }
    }

    /// The rows of x with what is owed to them, normalised, as inputs; not if nothing is owed, a row is too wide, or
    /// the card has no clusters.
    pub(super) fn settle_normed(
        &mut self,
        (x, width): (u64, usize),
        norm: Option<(u64, f32)>,
    ) -> Result<Option<Prepared>, CudaError> {
        let takes = self.card.capability.0 >= 9 && width <= WIDTH_MAX && width.is_multiple_of(4);
        let here = |owed: &Owed| owed.x == x && takes;
        let (Some((norm, eps)), Some(owed)) = (norm, self.owed.filter(here)) else { return Ok(None) };
        let to = self.inputs(owed.rows, width)?;
        (self.owed, self.prepared) = (None, None);
        let Owed { x, rows, down, shares, .. } = owed;
        let (width, used) = (width as i32, owed.used as i32);
        let grid = Grid { blocks: (rows, 1, RANGES), threads: MIXED_THREADS };
        let args =
            [arg(&x), arg(&width), arg(&down), arg(&shares), arg(&used), arg(&norm), arg(&eps), arg(&to)];
        // SAFETY: the arguments of `mix_normed`; x has the rows, `down` and `shares` their slots, the inputs have room.
        unsafe { self.kernels.mix_normed.launch_in_clusters(&self.card, grid, RANGES, args) }?;
        Ok(Some(to))
    }
}
