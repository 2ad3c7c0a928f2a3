//! The hot path: schedule, forward, sample, accept, emit.

mod draft;

use crate::batch::Batch;
use crate::constrain::{Allowed, BadConstraint, Compiler, VocabularySource};
use crate::draft::Pace;
use crate::limits::{BATCH_LOGIT_ROWS_MAX, CONSTRAINT_TICK_MS, KV_BLOCK_TOKENS};
use crate::message::{Command, Counts, Event, Failure, FinishReason, Generate, SequenceId, Stats, Verb};
use crate::runner::{Runner, RunnerError, RunnerFacts};
use crate::sample::{Sampler, likeliest};
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
}

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
        self.runner.forward(&self.batch)?;
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

    /// Samples from the logits of the batch that begin with the `logits`-th: as long as each token is the one
    /// that was guessed, the next logits are those that follow it.
    fn next_tokens(&mut self, work: Work, index: usize, logits: usize, events: &mut Vec<Event>) {
        let slot = work.slot;
        let mut token = self.next_token(slot, logits, events);
        for place in 0..work.drafted {
            let guessed = self.speculation.proposals[index].tokens[place];
            if token != Some(guessed) || self.scheduler.sequence(slot).run.is_none() {
                break;
            }
            self.scheduler.confirm(slot);
            token = self.next_token(slot, logits + place + 1, events);
        }
        if work.drafted > 0 {
            self.scheduler.drop_draft(slot);
        }
    }

    /// Samples from the `index`-th logits of the batch; none when no token came of it.
    fn next_token(&mut self, slot: Slot, index: usize, events: &mut Vec<Event>) -> Option<u32> {
        let allowed = match self.obvious(slot, index) {
            Ok(None) => self.mask(slot, index),
            Ok(Some(token)) => return self.take(slot, (token, None), events),
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

    /// The likeliest token, where that is all there is to choose by and the constraint, if there is one, allows it: then
    /// neither its mask nor the other logits matter.
    fn obvious(&mut self, slot: Slot, index: usize) -> Result<Option<u32>, BadConstraint> {
        let sequence = self.scheduler.sequence_mut(slot);
        let Some(run) = sequence.run.as_mut().filter(|run| run.sampling.takes_best()) else {
            return Ok(None);
        };
        let best = self.runner.best(index);
        let Some(guide) = &mut run.guide else { return Ok(best) };
        let Some(best) = best.or_else(|| likeliest(self.runner.logits(index))) else { return Ok(None) };
        Ok(guide.allows(&sequence.tokens, &run.stop_tokens, best)?.then_some(best))
    }

    /// Draws by the logits, from which the constraint has struck what it forbids.
    fn sample(&mut self, slot: Slot, index: usize, events: &mut Vec<Event>) -> Option<u32> {
        let sequence = self.scheduler.sequence(slot);
        let run = sequence.run.as_ref()?;
        let (id, position) = (sequence.id, sequence.tokens.len());
        let drawn = match run.guide {
            None => self.sampler.sample_told(&mut *self.runner, index, &run.sampling, position),
            Some(_) => None,
        };
        let sampled = match drawn {
            Some(token) => Ok((token, None)),
            None => self.sampler.sample(self.runner.logits(index), &run.sampling, &run.seen, position),
        };
        match sampled {
            Ok(sampled) => self.take(slot, sampled, events),
            Err(bad) => {
                self.scheduler.fail(slot);
                events.push(Event::Failed { sequence: id, failure: Failure::Logits(bad) });
                None
            }
        }
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

    /// Takes what the constraint forbids out of the logits, so that all else (greedy or not, penalties,
    /// log-probabilities) is about the tokens that can come.
    fn mask(&mut self, slot: Slot, index: usize) -> Result<Allowed, BadConstraint> {
        let sequence = self.scheduler.sequence_mut(slot);
        let Some(run) = &mut sequence.run else { return Ok(Allowed::Some) };
        let Some(guide) = &mut run.guide else { return Ok(Allowed::Some) };
        guide.mask(&sequence.tokens, &run.stop_tokens, self.runner.logits(index))
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
    }
}
