//! The rows that a batch begins with: looked up by the host, exactly, and sent along; or, if they are few and tokens alone have a
//! table on the card, there.

use super::super::{CudaError, Doing};
use super::buffer::Pinned;
use super::kernels::{Grid, arg};
use super::step::Step;
use super::{Buffer, Cuda, Way};
use crate::batch::Batch;
use crate::load::Tensor;
use cudarc::driver::result;

/// Rows of a batch that the card looks up.
const ROWS_MAX: usize = 64;
const THREADS: usize = 128;

impl Cuda {
    pub(super) fn try_embed(
        &mut self,
        table: &Tensor,
        batch: &Batch,
        x: &mut Buffer,
    ) -> Result<(), CudaError> {
        let (rows, width) = (batch.rows(), x.width);
        if let (Way::On(alone), true) = (&self.alone, rows <= ROWS_MAX) {
            self.replay.inputs_are_there(&self.card)?;
            return self.embed_on_card(alone.embedding(), rows, x);
        }
        // `begin` waited for the host's rows of the batch before.
        if self.embedded.as_ref().is_none_or(|held| held.values().len() < rows * width) {
            self.embedded = Some(Pinned::new(&self.card, rows * width)?);
        }
        let Some(held) = &mut self.embedded else { return Ok(()) };
        let values = &mut held.values_mut()[..rows * width];
        for (values, &token) in values.chunks_exact_mut(width).zip(&batch.tokens) {
            table.row_f32(token as usize % table.rows(), values); // a made-up table has a few rows only
        }
        // SAFETY: x has these rows; the host's memory is not written before the stream is done.
        unsafe { result::memcpy_htod_async(x.write_on_card(), values, self.card.stream.cu_stream()) }
            .doing("copying to the card")?;
        self.replay.inputs_are_there(&self.card)
    }

    /// From the table that tokens alone have.
    fn embed_on_card(&self, table: u64, rows: usize, x: &mut Buffer) -> Result<(), CudaError> {
        let (out, width) = (x.write_on_card(), x.width as i32);
        if self.replay.replays() {
            return Ok(());
        }
        let tokens = self.step.as_ref().map_or(0, Step::tokens);
        let grid = Grid { blocks: (rows, x.width.div_ceil(8 * THREADS), 1), threads: THREADS };
        let args = [arg(&tokens), arg(&table), arg(&width), arg(&out)];
        // SAFETY: the arguments of `embed`; the table has every token's row, x the batch's.
        unsafe { self.kernels.embed.launch(&self.card, grid, args) }
    }
}
