//! Where KV blocks come from when the pool is short of them.

use super::{Scheduler, Slot};

impl Scheduler {
    /// A sequence that begins, or has lost its KV, looks for what others have computed of it.
    pub(super) fn adopt(&mut self, slot: Slot) {
        let sequence = &mut self.sequences[slot];
        let begins = sequence.run.as_ref().is_some_and(|run| !run.started);
        if begins || sequence.lease.blocks.is_empty() {
            sequence.lease.adopt(sequence.tenant, &sequence.tokens, &mut self.pool);
        }
    }

    /// Makes room for as many of the sequence's rows as can be had, `rows_max` at most. What runs is taken
    /// only from those that stand behind `place` in the order; `first`: nobody is seated yet in this step.
    pub(super) fn make_room(&mut self, slot: Slot, place: usize, rows_max: usize, first: bool) -> usize {
        let rows = self.sequences[slot].pending().min(rows_max);
        while self.sequences[slot].lease.needs(rows, &self.pool) > self.pool.available() {
            if !self.evict_idle() && !self.preempt_behind(slot, place) {
                return self.make_do(slot, rows, first);
            }
        }
        rows
    }

    /// Nothing more can be had: as many rows as fit.
    ///
    /// The first of a step may find no room at all only when its last block has to be copied and it holds
    /// the whole pool. Then it lets go and takes its findable blocks back, which leaves the last one out.
    fn make_do(&mut self, slot: Slot, rows: usize, first: bool) -> usize {
        let fits = self.sequences[slot].lease.fits(self.pool.available(), &self.pool);
        if fits > 0 || !first {
            return fits.min(rows);
        }
        self.sequences[slot].evict(&mut self.pool);
        self.stats.preemptions += 1;
        self.adopt(slot);
        let sequence = &self.sequences[slot];
        sequence.lease.fits(self.pool.available(), &self.pool).min(sequence.pending()).min(rows)
    }

    /// Takes the KV of the sequence that has been idle for longest.
    fn evict_idle(&mut self) -> bool {
        let warm = self.sequences.iter().filter(|(_, s)| s.run.is_none() && !s.lease.blocks.is_empty());
        let Some((slot, _)) = warm.min_by_key(|(_, sequence)| sequence.used) else { return false };
        self.sequences[slot].evict(&mut self.pool);
        self.stats.evictions += 1;
        true
    }

    /// Takes the KV of the last in the order that has any.
    fn preempt_behind(&mut self, slot: Slot, place: usize) -> bool {
        let behind = self.order[place..].iter().rev().map(|rank| rank.slot);
        let mut victims = behind.filter(|&other| other != slot && self.elder != Some(other));
        let victim = victims.find(|&other| !self.sequences[other].lease.blocks.is_empty());
        let Some(victim) = victim else { return false };
        self.sequences[victim].evict(&mut self.pool);
        self.stats.preemptions += 1;
        true
    }
}
