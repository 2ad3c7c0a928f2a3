//! What a caller can do to a sequence, between two steps: begin, steer, cancel, truncate, fork, release.

use super::{Rank, Scheduler, Slot};
use crate::limits::STOP_TOKENS_MAX;
use crate::message::{Base, Break, BreakCause, Counts, Failure, Generate, SequenceId};
use crate::sequence::{Run, Sequence};

impl Scheduler {
    /// Begins a generation. Everything is checked before anything changes.
    pub fn generate(&mut self, request: &Generate) -> Result<Slot, Failure> {
        self.check(request)?;
        let (slot, held, broke) = self.found(request)?;
        let sequence = &mut self.sequences[slot];
        sequence.lease.truncate(sequence.tokens.len() - 1, &mut self.pool);
        self.arrivals += 1;
        sequence.begin(request, held, self.arrivals, self.limits.context);
        sequence.run.iter_mut().for_each(|run| run.broke = broke);
        let rank = Rank { class: request.priority, arrival: self.arrivals, slot };
        let place = self.order.partition_point(|other| *other < rank);
        self.order.insert(place, rank);
        Ok(slot)
    }

    /// Ends the running generation here, appends `tokens` and goes on as its successor. Returns how many
    /// tokens were kept, and the counts of what ended.
    pub fn steer(
        &mut self,
        id: SequenceId,
        tokens: &[u32],
        max_tokens: u32,
    ) -> Result<(u32, Counts), Failure> {
        let slot = self.sequences.find(id)?;
        if self.sequences[slot].run.is_none() {
            return Err(Failure::NotRunning(id));
        }
        self.check_tokens(tokens)?;
        let context = self.limits.context;
        let sequence = &mut self.sequences[slot];
        let kept = sequence.tokens.len();
        check_length(kept + tokens.len(), context)?;
        let run = sequence.run.take().ok_or(Failure::NotRunning(id))?;
        let counts = run.final_counts();
        let successor = Generate {
            sequence: id,
            base: Base::Extend,
            tokens: Vec::new(),
            resumed: 0,
            max_tokens,
            stop_tokens: run.stop_tokens,
            sampling: run.sampling,
            constraint: None, // its guide goes on
            references: run.references,
            speculate: run.drafter.is_some(),
            priority: run.priority,
            tenant: sequence.tenant,
        };
        sequence.tokens.extend_from_slice(tokens);
        sequence.begin(&successor, kept, run.arrival, context);
        let begin = sequence.tokens.len();
        let guide = run.guide.map(|guide| guide.restart(begin));
        sequence.run.iter_mut().zip(guide).for_each(|(run, guide)| run.guide = Some(guide));
        Ok((kept as u32, counts))
    }

    /// Ends the running generation, if there is one.
    pub fn cancel(&mut self, id: SequenceId) -> Result<Option<Counts>, Failure> {
        let slot = self.sequences.find(id)?;
        Ok(self.sequences[slot].run.is_some().then(|| self.finish(slot)))
    }

    /// Keeps the first `len` tokens. A running generation ends.
    pub fn truncate(&mut self, id: SequenceId, len: u32) -> Result<Option<Counts>, Failure> {
        let slot = self.sequences.find(id)?;
        self.check_position(slot, len)?;
        let ended = self.cancel(id)?;
        self.sequences[slot].truncate(len as usize, &mut self.pool);
        Ok(ended)
    }

    /// Makes an idle sequence of the first `at` tokens of another.
    pub fn fork(&mut self, id: SequenceId, of: SequenceId, at: u32) -> Result<Slot, Failure> {
        self.sequences.check_vacant(id)?;
        let parent = self.sequences.find(of)?;
        self.check_position(parent, at)?;
        let child = self.sequences[parent].fork(id, at as usize, &mut self.pool);
        Ok(self.sequences.insert(child))
    }

    /// Forgets the sequence. A running generation ends.
    pub fn release(&mut self, id: SequenceId) -> Result<Option<Counts>, Failure> {
        let slot = self.sequences.find(id)?;
        let ended = self.cancel(id)?;
        self.sequences[slot].evict(&mut self.pool);
        self.sequences.remove(slot);
        Ok(ended)
    }

    fn check(&self, request: &Generate) -> Result<(), Failure> {
        request.sampling.validate()?;
        self.check_tokens(&request.tokens)?;
        request.check_references()?;
        request.references.iter().try_for_each(|reference| self.check_tokens(reference))?;
        let count = request.stop_tokens.len();
        if count > STOP_TOKENS_MAX {
            return Err(Failure::TooManyStopTokens { count: count as u64 });
        }
        if request.resumed as usize > request.tokens.len() {
            let tokens = request.tokens.len() as u64;
            return Err(Failure::Resumed { resumed: request.resumed, tokens });
        }
        let held = self.held(request)?;
        check_length(held + request.tokens.len(), self.limits.context)
    }

    /// How many tokens stand before the request's own; also whether it may have them at all.
    fn held(&self, request: &Generate) -> Result<usize, Failure> {
        let id = request.sequence;
        match request.base {
            Base::New => self.sequences.check_vacant(id).map(|()| 0),
            Base::Fork { of, at } => {
                self.sequences.check_vacant(id)?;
                let slot = self.own(of, request)?;
                self.check_position(slot, at).map(|()| at as usize)
            }
            Base::Extend | Base::Rewrite => {
                let sequence = &self.sequences[self.own(id, request)?];
                match sequence.run {
                    Some(_) => Err(Failure::Busy(id)),
                    None if request.base == Base::Rewrite => Ok(0),
                    None => Ok(sequence.tokens.len()),
                }
            }
        }
    }

    fn own(&self, id: SequenceId, request: &Generate) -> Result<Slot, Failure> {
        let slot = self.sequences.find(id)?;
        match self.sequences[slot].tenant == request.tenant {
            true => Ok(slot),
            false => Err(Failure::Foreign(id)),
        }
    }

    /// The checked request's sequence with all its tokens, how many of them it held before, and where it had
    /// to break with what it held.
    fn found(&mut self, request: &Generate) -> Result<(Slot, usize, Option<Break>), Failure> {
        let id = request.sequence;
        let slot = match request.base {
            Base::New => self.sequences.insert(Sequence::new(id, request.tenant)),
            Base::Fork { of, at } => self.fork(id, of, at)?,
            Base::Extend | Base::Rewrite => self.sequences.find(id)?,
        };
        let sequence = &mut self.sequences[slot];
        let before = sequence.tokens.len();
        if request.base == Base::Rewrite {
            let common = sequence.tokens.iter().zip(&request.tokens).take_while(|(a, b)| a == b).count();
            sequence.truncate(common, &mut self.pool);
            sequence.tokens.extend_from_slice(&request.tokens[common..]);
            let broke = Break { at: common as u32, cause: BreakCause::Differs };
            return Ok((slot, common, (common < before).then_some(broke)));
        }
        sequence.tokens.extend_from_slice(&request.tokens);
        Ok((slot, before, None))
    }

    fn check_tokens(&self, tokens: &[u32]) -> Result<(), Failure> {
        let vocab = self.limits.vocab;
        match tokens.iter().find(|&&token| token as usize >= vocab) {
            Some(&token) => Err(Failure::NotInVocabulary { token, vocab: vocab as u64 }),
            None => Ok(()),
        }
    }

    fn check_position(&self, slot: Slot, at: u32) -> Result<(), Failure> {
        let sequence = &self.sequences[slot];
        let len = sequence.tokens.len();
        match at as usize <= len {
            true => Ok(()),
            false => Err(Failure::PastEnd { sequence: sequence.id, at, len: len as u32 }),
        }
    }
}

impl Run {
    pub(super) fn final_counts(&self) -> Counts {
        let new = if self.started { self.counts.new } else { 0 };
        Counts { recomputed: self.prefilled.saturating_sub(new), ..self.counts }
    }
}

/// A sequence has at least one token, and room for one more.
fn check_length(tokens: usize, context: usize) -> Result<(), Failure> {
    match tokens {
        0 => Err(Failure::Empty),
        _ if tokens < context => Ok(()),
        _ => Err(Failure::TooLong { tokens: tokens as u64, limit: context.saturating_sub(1) as u64 }),
    }
}
