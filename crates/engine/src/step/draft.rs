//! Guesses in the hot path: how many of whose go into the next batch.

use super::Engine;
use crate::draft::{Pace, Proposal, share_out};
use crate::limits::{BATCH_LOGIT_ROWS_MAX, DRAFT_ROWS_MAX};
use crate::sequence::Sequence;
use std::time::Duration;

/// What the engine keeps for guessing. All memory is taken at the start.
pub(super) struct Speculation {
    pub(super) pace: Pace,
    pub(super) proposals: Vec<Proposal>, // (seats) in the order of the plan
}

impl Speculation {
    pub(super) fn new(seats: usize) -> Speculation {
        let proposals = (0..seats).map(|_| Proposal::with_capacity(DRAFT_ROWS_MAX));
        Speculation { pace: Pace::default(), proposals: proposals.collect() }
    }
}

impl Engine {
    /// Adds the guesses that pay to the plan.
    pub(super) fn add_drafts(&mut self) {
        if !self.plan.only_decodes() {
            return;
        }
        let count = self.plan.work.len();
        for index in 0..count {
            self.propose(index);
        }
        let Speculation { pace, proposals } = &self.speculation;
        let widths = share_out(&proposals[..count], BATCH_LOGIT_ROWS_MAX, pace);
        for (index, &width) in widths[..count].iter().enumerate().filter(|(_, width)| **width > 0) {
            self.scheduler.draft(&mut self.plan, index, width);
        }
    }

    /// Guesses how the sequence of the plan's `index`-th work goes on.
    fn propose(&mut self, index: usize) {
        let work = self.plan.work[index];
        let room = self.scheduler.draft_rows_max(&work);
        let proposal = &mut self.speculation.proposals[index];
        proposal.clear();
        let Sequence { run: Some(run), tokens, .. } = self.scheduler.sequence_mut(work.slot) else { return };
        let Some(drafter) = &mut run.drafter else { return };
        let forced = run.guide.as_ref().map_or(Vec::new(), |guide| guide.forced(tokens));
        drafter.propose(&forced, room, proposal);
    }

    /// A pass over the batch took this long. Passes with parts of prompts tell nothing about guessing.
    pub(super) fn note_pace(&mut self, took: Duration) {
        if self.plan.only_decodes() {
            self.speculation.pace.note(self.batch.rows(), took);
        }
    }
}
