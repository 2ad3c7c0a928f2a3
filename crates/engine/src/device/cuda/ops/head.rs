//! Logits, or the likeliest tokens alone.

use super::super::CudaError;
use super::prepare::{Prepared, Source};
use super::step::Step;
use super::{Buffer, Cuda};
use crate::batch::Batch;
use crate::device::Head;

impl Cuda {
    pub(super) fn try_head(
        &mut self,
        w: &Head<Cuda>,
        x: &Buffer,
        batch: &Batch,
        logits: &mut Buffer,
    ) -> Result<(), CudaError> {
        let count = batch.logit_rows.len();
        // A part of a prompt: the kernels take one row at least.
        if count == 0 {
            return self.settle();
        }
        let out = logits.write_on_card();
        if self.screens(batch) {
            let inputs = self.head_inputs(w, x, batch)?;
            self.find_screened(inputs, out, count)?;
            return self.owe_logits(count, out);
        }
        self.settle()?;
        let list = self.step.as_ref().map_or(0, Step::logit_rows);
        if !self.few_head(w, x, (list, count), out)? {
            let inputs = self.head_inputs(w, x, batch)?;
            self.product(&w.matrix, inputs, count, None, out, false)?;
        }
        self.find_best(out, logits.width, count)
    }

    /// The rows whose logits are wanted, as products read them.
    fn head_inputs(&mut self, w: &Head<Cuda>, x: &Buffer, batch: &Batch) -> Result<Prepared, CudaError> {
        let (address, _) = x.read_on_card(&self.card)?;
        let (count, norm) = (batch.logit_rows.len(), Cuda::norm(&w.norm));
        if count == batch.rows()
            && let Some(inputs) = self.settle_normed((address, x.width), norm)?
        {
            return Ok(inputs);
        }
        self.settle()?;
        let list = self.step.as_ref().map_or(0, Step::logit_rows);
        self.prepare(&Source { x: address, stride: x.width, list, count, width: x.width, norm })
    }
}
