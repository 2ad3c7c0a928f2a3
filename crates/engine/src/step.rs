//! The hot path: schedule, forward, sample, accept, emit.

mod draft;

use crate::batch::Batch;
use crate::constrain::{Allowed, BadConstraint, Compiler, Mask, VocabularySource};
use crate::draft::Pace;
use crate::limits::{BATCH_LOGIT_ROWS_MAX, CONSTRAINT_TICK_MS, KV_BLOCK_TOKENS};
use crate::message::{Command, Counts, Event, Failure, FinishReason, Generate, SequenceId, Stats, Verb};
use crate::runner::{Runner, RunnerError, RunnerFacts};
use crate::sample::{BadLogits, Change, Sampler, likeliest};
use crate::schedule::{Ends, Limits, Plan, Scheduler, Slot, Work};
use draft::Speculation;
use std::time::{Duration, Instant};

/// A model with everything that decides what it computes next. Driven from one thread.
pub struct Engine {
    runner: Box<dyn Runner>,
    scheduler: Scheduler,
    sampler: Sampler,
    compiler: Compiler,
    speculation: Speculation,
    plan: Plan,
    batch: Batch,
    changed: Vec<Option<Changed>>, // (seats) in the order of the plan: what came of it, where it was done
}

/// A row of logits was changed as its sequence wants it: what may follow, or why nothing can.
type Changed = Result<Allowed, BadConstraint>;

/// Whether a step had anything to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    Stepped,
    /// Nothing runs: no step is of use before the next command.
    Idle,
}

impl Engine {
    pub fn new(runner: Box<dyn Runner>) -> Engine {
        let facts = runner.facts();
        let limits = Limits::new(facts);
        Engine {
            scheduler: Scheduler::new(facts.kv_blocks, limits),
            sampler: Sampler::new(facts.vocab),
            compiler: Compiler::without_vocabulary(facts.vocab),
            speculation: Speculation::new(limits.seats),
            plan: Plan::with_capacity(limits.seats),
            batch: empty_batch(limits),
            changed: Vec::with_capacity(limits.seats),
            runner,
        }
    }

    /// Says where the vocabulary is to be had, which constraints need.
    pub fn with_vocabulary(self, source: VocabularySource) -> Engine {
        Engine { compiler: Compiler::new(source, self.facts().vocab), ..self }
    }

    /// Says how much is guessed; by default what pays.
    pub fn with_pace(mut self, pace: Pace) -> Engine {
        self.speculation.pace = pace;
        self
    }

    pub fn facts(&self) -> RunnerFacts {
        self.runner.facts()
    }

    pub fn stats(&self) -> Stats {
        self.scheduler.stats()
    }

    pub fn is_idle(&self) -> bool {
        self.scheduler.is_idle()
    }

    /// One forward pass and what follows from it. Allocates nothing while sequences only decode (and ask for
    /// no log-probabilities, which travel in a vector of their own). An error means that the device is lost.
    pub fn step(&mut self, events: &mut Vec<Event>) -> Result<Progress, RunnerError> {
        self.scheduler.plan(&mut self.plan);
        if self.plan.work.is_empty() {
            return Ok(self.wait());
        }
        self.add_drafts();
        self.fill_batch(events);
        self.plan.copies.iter().for_each(|copy| self.runner.copy_block(copy.from, copy.to));
        let begun = Instant::now();
        self.runner.begin(&self.batch)?;
        self.change_rows();
        self.runner.finish()?;
        self.note_pace(begun.elapsed());
        let mut logits = 0;
        for index in 0..self.plan.work.len() {
            let work = self.plan.work[index];
            self.scheduler.advance(work);
            match work.ends {
                Ends::Unfinished => {}
                Ends::Prefilled => self.finish(work.slot, FinishReason::Length, events),
                Ends::WithToken => {
                    self.next_tokens(work, index, logits, events);
                    logits += 1 + work.drafted;
                }
            }
        }
        self.rest_if_idle();
        Ok(Progress::Stepped)
    }

    /// Nobody waits for what the device may have begun ahead.
    fn rest_if_idle(&mut self) {
        if self.scheduler.is_idle() {
            self.runner.rest();
        }
    }

    /// Obeys one command. What cannot be obeyed is told as `Event::Refused`.
    pub fn command(&mut self, command: &Command, events: &mut Vec<Event>) {
        let (sequence, verb, outcome) = match *command {
            Command::Generate(ref request) => {
                (request.sequence, Verb::Generate, self.generate(request).map(|()| None))
            }
            Command::Steer { sequence, ref tokens, max_tokens } => {
                let steered = self.scheduler.steer(sequence, tokens, max_tokens);
                let event = steered.map(|(kept, counts)| Some(Event::Steered { sequence, kept, counts }));
                (sequence, Verb::Steer, event)
            }
            Command::Cancel { sequence } => {
                (sequence, Verb::Cancel, cancelled(sequence, self.scheduler.cancel(sequence)))
            }
            Command::Truncate { sequence, len } => {
                (sequence, Verb::Truncate, cancelled(sequence, self.scheduler.truncate(sequence, len)))
            }
            Command::Fork { sequence, of, at } => {
                (sequence, Verb::Fork, self.scheduler.fork(sequence, of, at).map(|_| None))
            }
            Command::Release { sequence } => {
                (sequence, Verb::Release, cancelled(sequence, self.scheduler.release(sequence)))
            }
            Command::Stats => return events.push(Event::Stats(self.stats())),
            Command::Shutdown => return,
        };
        events.extend(outcome.unwrap_or_else(|failure| Some(Event::Refused { sequence, verb, failure })));
        self.rest_if_idle();
    }

    /// Nothing can be computed: perhaps because of a constraint that is not compiled yet.
    fn wait(&self) -> Progress {
        let Some(guide) = self.scheduler.waits_for() else { return Progress::Idle };
        guide.wait(Duration::from_millis(CONSTRAINT_TICK_MS));
        Progress::Stepped
    }

    /// The constraint is compiled while the prompt is computed.
    fn generate(&mut self, request: &Generate) -> Result<(), Failure> {
        request.constraint.as_ref().map_or(Ok(()), |constraint| self.compiler.check(constraint))?;
        let slot = self.scheduler.generate(request)?;
        if let Some(constraint) = &request.constraint {
            let sequence = self.scheduler.sequence_mut(slot);
            let guide = self.compiler.begin(constraint, sequence.tokens.len() - request.resumed as usize);
            sequence.run.iter_mut().zip([guide]).for_each(|(run, guide)| run.guide = Some(guide));
        }
        Ok(())
    }

    fn fill_batch(&mut self, events: &mut Vec<Event>) {
        self.batch.clear();
        self.batch.greedy = self.plan.work.iter().all(|work| self.may_take_best(work.slot));
        for (index, work) in self.plan.work.iter().enumerate() {
            let sequence = self.scheduler.sequence(work.slot);
            let (from, lease) = (sequence.lease.computed, &sequence.lease);
            let wants_logits = work.ends == Ends::WithToken;
            self.batch.push(&sequence.tokens[from..from + work.rows], from, &lease.blocks, wants_logits);
            if work.drafted > 0 {
                self.batch.push_draft(&self.speculation.proposals[index].tokens[..work.drafted]);
            }
            if let (true, Some(run)) = (work.starts, &sequence.run) {
                let Counts { cached, new, .. } = run.counts;
                events.push(Event::Started { sequence: sequence.id, cached, new, broke: run.broke });
            }
        }
    }

    /// Changes the logits that surely have to be, each sequence's first: masks are found while the device computes, and it
    /// need not be waited for again.
    fn change_rows(&mut self) {
        self.changed.clear();
        let mut logits = 0;
        for index in 0..self.plan.work.len() {
            let Work { slot, ends, drafted, .. } = self.plan.work[index];
            let has_row = ends == Ends::WithToken;
            let changed = (has_row && !self.may_take_best(slot)).then(|| self.change(slot, logits));
            self.changed.push(changed);
            logits += if has_row { 1 + drafted } else { 0 };
        }
    }

    /// Samples from the logits of the batch that begin with the `logits`-th: as long as each token is the one
    /// that was guessed, the next logits are those that follow it.
    fn next_tokens(&mut self, work: Work, index: usize, logits: usize, events: &mut Vec<Event>) {
        let slot = work.slot;
        let changed = self.changed[index].take();
        let mut token = self.next_token(slot, logits, changed, events);
        for place in 0..work.drafted {
            let guessed = self.speculation.proposals[index].tokens[place];
            if token != Some(guessed) || self.scheduler.sequence(slot).run.is_none() {
                break;
            }
            self.scheduler.confirm(slot);
            token = self.next_token(slot, logits + place + 1, None, events);
        }
        if work.drafted > 0 {
            self.scheduler.drop_draft(slot);
        }
    }

    /// Chooses by the `index`-th logits of the batch, which may have been changed already; none when no token came of it.
    fn next_token(
        &mut self,
        slot: Slot,
        index: usize,
        changed: Option<Changed>,
        events: &mut Vec<Event>,
    ) -> Option<u32> {
        let allowed = match self.obvious(slot, index) {
            Ok(Some(token)) => return self.take(slot, (token, None), events),
            Ok(None) => changed.unwrap_or_else(|| self.change(slot, index)),
            Err(bad) => Err(bad),
        };
        match allowed {
            Ok(Allowed::Some) => self.sample(slot, index, events),
            Ok(Allowed::End) => {
                self.finish(slot, FinishReason::Stop, events);
                None
            }
            Err(bad) => {
                self.give_up(slot, bad, events);
                None
            }
        }
    }

    /// Whether the likeliest token comes, if only the constraint allows it.
    fn may_take_best(&self, slot: Slot) -> bool {
        self.scheduler.sequence(slot).run.as_ref().is_some_and(|run| run.sampling.takes_best())
    }

    /// That token, if the constraint allows it: its mask, which takes far longer, is not needed then.
    fn obvious(&mut self, slot: Slot, index: usize) -> Result<Option<u32>, BadConstraint> {
        if !self.may_take_best(slot) {
            return Ok(None);
        }
        let sequence = self.scheduler.sequence_mut(slot);
        let Some(run) = &mut sequence.run else { return Ok(None) };
        let Some(guide) = &mut run.guide else { return Ok(None) };
        let best = self.runner.best(index).or_else(|| likeliest(self.runner.logits(index)));
        let Some(best) = best else { return Ok(None) };
        Ok(guide.allows(&sequence.tokens, &run.stop_tokens, best)?.then_some(best))
    }

    /// Makes the `index`-th logits those that the token is chosen by: without what the constraint forbids, so that all else
    /// (greedy or not, penalties, log-probabilities) is about the tokens that can come, and with penalties and biases, which
    /// wait until log-probabilities are told.
    fn change(&mut self, slot: Slot, index: usize) -> Changed {
        let sequence = self.scheduler.sequence_mut(slot);
        let Some(run) = &mut sequence.run else { return Ok(Allowed::Some) };
        let mask = match &mut run.guide {
            None => None,
            Some(guide) => match guide.mask(&sequence.tokens, &run.stop_tokens)? {
                None => return Ok(Allowed::End),
                some => some,
            },
        };
        let allowed = mask.as_ref().map(Mask::words);
        let shifts = if run.sampling.logprobs.is_none() { run.shifts.list() } else { &[] };
        let change = Change { allowed, shifts };
        if !change.is_empty() {
            self.runner.change(index, &change);
        }
        Ok(Allowed::Some)
    }

    /// Chooses by the changed logits.
    fn sample(&mut self, slot: Slot, index: usize, events: &mut Vec<Event>) -> Option<u32> {
        match self.choose(slot, index) {
            Ok(chosen) => self.take(slot, chosen?, events),
            Err(bad) => {
                let sequence = self.scheduler.sequence(slot).id;
                self.scheduler.fail(slot);
                events.push(Event::Failed { sequence, failure: Failure::Logits(bad) });
                None
            }
        }
    }

    /// A token, with its log-probability if that is asked for; none if the sequence wants none.
    fn choose(&mut self, slot: Slot, index: usize) -> Result<Option<(u32, Option<f32>)>, BadLogits> {
        let sequence = self.scheduler.sequence(slot);
        let Some(run) = &sequence.run else { return Ok(None) };
        let logprobs = run.sampling.logprobs;
        if let Some(count) = logprobs {
            self.sampler.remember(self.runner.logits(index), count)?;
            let change = Change { allowed: None, shifts: run.shifts.list() };
            change.apply(self.runner.logits(index));
        }
        let token = self.sampler.choose(&mut *self.runner, index, &run.sampling, sequence.tokens.len())?;
        Ok(Some((token, logprobs.and_then(|_| self.sampler.logprob(token)))))
    }

    /// Tells the token that was chosen, with its log-probability if that was asked for, and goes on with it.
    fn take(
        &mut self,
        slot: Slot,
        (token, logprob): (u32, Option<f32>),
        events: &mut Vec<Event>,
    ) -> Option<u32> {
        let sequence = self.scheduler.sequence(slot);
        let top = self.sampler.top(&sequence.run.as_ref()?.sampling).to_vec();
        events.push(Event::Token { sequence: sequence.id, token, logprob, top });
        self.accept(slot, token, events);
        Some(token)
    }

    /// Appends the token; ends the generation where it, or its constraint, has to end.
    fn accept(&mut self, slot: Slot, token: u32, events: &mut Vec<Event>) {
        let reason = self.scheduler.accept(slot, token);
        let sequence = self.scheduler.sequence_mut(slot);
        let guide = sequence.run.as_mut().and_then(|run| run.guide.as_mut());
        let reason = match guide.filter(|_| reason != Some(FinishReason::Stop)) {
            None => reason,
            Some(guide) => match guide.advance(&sequence.tokens) {
                Ok(Allowed::Some) => reason,
                Ok(Allowed::End) => Some(FinishReason::Stop),
                Err(bad) => return self.give_up(slot, bad, events),
            },
        };
        if let Some(reason) = reason {
            self.finish(slot, reason, events);
        }
    }

    /// Ends a generation whose constraint cannot be kept; the sequence stays as it is.
    fn give_up(&mut self, slot: Slot, bad: BadConstraint, events: &mut Vec<Event>) {
        let sequence = self.scheduler.sequence(slot).id;
        self.scheduler.finish(slot);
        events.push(Event::Failed { sequence, failure: Failure::Constraint(bad) });
    }

    fn finish(&mut self, slot: Slot, reason: FinishReason, events: &mut Vec<Event>) {
        let sequence = self.scheduler.sequence(slot).id;
        let counts = self.scheduler.finish(slot);
        events.push(Event::Finished { sequence, reason, counts });
    }
}

/// Tells the end of a generation that a command ended, if it ended one.
fn cancelled(
    sequence: SequenceId,
    outcome: Result<Option<Counts>, Failure>,
) -> Result<Option<Event>, Failure> {
    let reason = FinishReason::Cancelled;
    Ok(outcome?.map(|counts| Event::Finished { sequence, reason, counts }))
}

/// A batch that never has to grow.
fn empty_batch(limits: Limits) -> Batch {
    let blocks = limits.context.div_ceil(KV_BLOCK_TOKENS) + 1;
    Batch {
        tokens: Vec::with_capacity(limits.rows),
        positions: Vec::with_capacity(limits.rows),
        spans: Vec::with_capacity(limits.seats),
        blocks: Vec::with_capacity(blocks * limits.seats),
        logit_rows: Vec::with_capacity(BATCH_LOGIT_ROWS_MAX),
        greedy: false,
    }
}
