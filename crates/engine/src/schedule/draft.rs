//! Guessed rows behind the row of a sequence that decodes, and what becomes of them.
//!
//! They get what nobody else wants: rows of a pass in which everyone has a seat, and KV blocks that no
//! sequence holds. What they write counts only once their token was sampled; the rest is let go.

use super::{Ends, Plan, Scheduler, Slot, Work};
use crate::limits::DRAFT_ROWS_MAX;

impl Plan {
    /// Whether there may be guesses: everyone has a seat and only wants his next token.
    pub fn only_decodes(&self) -> bool {
        !self.crowded && self.work.iter().all(|work| work.rows == 1 && work.ends == Ends::WithToken)
    }
}

impl Scheduler {
    /// How many guesses could be of use behind the row of `work`: as long as the generation may be, less the
    /// token that comes anyway.
    pub fn draft_rows_max(&self, work: &Work) -> usize {
        let sequence = &self.sequences[work.slot];
        let wanted = sequence.run.as_ref().map_or(0, |run| run.max_tokens - run.counts.generated);
        let context = self.limits.context - sequence.tokens.len();
        (wanted as usize).min(context).saturating_sub(1).min(DRAFT_ROWS_MAX)
    }

    /// Takes blocks for up to `rows` guesses behind those of the plan's `index`-th work.
    pub fn draft(&mut self, plan: &mut Plan, index: usize, rows: usize) {
        let work = &mut plan.work[index];
        let sequence = &mut self.sequences[work.slot];
        let fits = sequence.lease.fits(self.pool.available(), &self.pool).saturating_sub(work.rows);
        work.drafted = rows.min(fits);
        sequence.lease.reserve(work.rows + work.drafted, &mut self.pool, &mut plan.copies);
        self.stats.rows_drafted += work.drafted as u64;
        sequence.run.iter_mut().for_each(|run| run.counts.drafted += work.drafted as u32);
    }

    /// The token that was sampled last is the one that was guessed: its row is computed already.
    pub fn confirm(&mut self, slot: Slot) {
        self.advance(Work { slot, rows: 1, starts: false, ends: Ends::WithToken, drafted: 0 });
        self.stats.rows_accepted += 1;
        self.sequences[slot].run.iter_mut().for_each(|run| run.counts.accepted += 1);
    }

    /// Lets go of the blocks of wrong guesses.
    pub fn drop_draft(&mut self, slot: Slot) {
        let sequence = &mut self.sequences[slot];
        sequence.lease.truncate(sequence.lease.computed, &mut self.pool);
    }
}
