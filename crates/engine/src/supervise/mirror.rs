//! What the worker knows, known on this side too: enough to make a new worker go on where a lost one was.
//!
//! A sequence is mirrored as its history; a generation as its settings and how much it has told. Since a
//! token depends on the history, the settings and the position only, sending "prompt + emitted" to a new
//! worker gives the very tokens that the lost one would have given.

use super::generation::Queue;
use crate::constrain::Constraint;
use crate::limits::{SEQUENCES_MAX, STEERS_WAITING_MAX, STOP_TOKENS_MAX};
use crate::message::{
    Base, Command, Counts, Event, Failure, FinishReason, Generate, SequenceId, Tenant, Verb,
};
use crate::runner::RunnerFacts;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

pub(super) struct Mirror {
    sequences: HashMap<SequenceId, Twin>,
    facts: RunnerFacts,
    arrivals: u64,
    running: usize, // sequences
}

struct Twin {
    tenant: Tenant,
    tokens: Vec<u32>,
    known: bool, // to the present worker
    run: Option<TwinRun>,
}

struct TwinRun {
    request: Generate,        // without its tokens
    prompt: Option<Vec<u32>>, // all tokens it begins with, until the worker has taken it on
    generated: u32,
    told: Option<(u32, u32)>,          // cached and new, as the caller was told
    recomputed: u32,                   // rows that a lost worker had computed before
    steers: VecDeque<(Vec<u32>, u32)>, // tokens and max_tokens, not yet taken up
    ending: Option<Ending>,
    arrival: u64,
    queue: Arc<Queue>,
}

/// What the caller wants to happen to the sequence when its generation ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Stay,
    Truncate(usize),
    Release,
}

impl Mirror {
    pub(super) fn new(facts: RunnerFacts) -> Mirror {
        Mirror { sequences: HashMap::new(), facts, arrivals: 0, running: 0 }
    }

    pub(super) fn set_facts(&mut self, facts: RunnerFacts) {
        self.facts = facts;
    }

    pub(super) fn is_running(&self) -> bool {
        self.running > 0
    }

    /// Notes a generation and returns how to ask the present worker for it.
    pub(super) fn generate(&mut self, mut request: Generate, queue: Arc<Queue>) -> Result<Command, Failure> {
        self.check(&request)?;
        let (held, known) = self.held(&request)?;
        let prompt = [held, &request.tokens].concat();
        self.check_length(prompt.len())?;
        if !known {
            request.base = Base::New;
            request.tokens = prompt.clone();
        }
        let command = Command::Generate(request.clone());
        request.tokens = Vec::new();
        self.arrivals += 1;
        self.running += 1;
        let (arrival, generated) = (self.arrivals, request.resumed);
        let tenant = request.tenant;
        let twin = self.sequences.entry(request.sequence);
        let twin = twin.or_insert_with(|| Twin { tenant, tokens: Vec::new(), known: true, run: None });
        twin.known = true;
        twin.run = Some(TwinRun {
            request,
            prompt: Some(prompt),
            generated,
            told: None,
            recomputed: 0,
            steers: VecDeque::new(),
            ending: None,
            arrival,
            queue,
        });
        Ok(command)
    }

    /// Notes a steer; it takes hold when the worker says so.
    pub(super) fn steer(
        &mut self,
        id: SequenceId,
        tokens: Vec<u32>,
        max_tokens: u32,
    ) -> Result<Command, Failure> {
        self.check_tokens(&tokens)?;
        let len = self.twin(id)?.len() + tokens.len();
        self.check_length(len)?;
        let run = self.twin_mut(id)?.run.as_mut().filter(|run| run.ending.is_none());
        let run = run.ok_or(Failure::NotRunning(id))?;
        if run.steers.len() >= STEERS_WAITING_MAX {
            return Err(Failure::TooManySteers(id));
        }
        run.steers.push_back((tokens.clone(), max_tokens));
        Ok(Command::Steer { sequence: id, tokens, max_tokens })
    }

    /// Ends the running generation; nothing is to be sent when there is none, or it ends already.
    pub(super) fn cancel(&mut self, id: SequenceId) -> Result<Option<Command>, Failure> {
        let run = self.twin_mut(id)?.run.as_mut().filter(|run| run.ending.is_none());
        Ok(run.map(|run| {
            run.ending = Some(Ending::Stay);
            Command::Cancel { sequence: id }
        }))
    }

    pub(super) fn truncate(&mut self, id: SequenceId, len: u32) -> Result<Option<Command>, Failure> {
        let twin = self.twin_mut(id)?;
        if len as usize > twin.len() {
            return Err(Failure::PastEnd { sequence: id, at: len, len: twin.len() as u32 });
        }
        match &mut twin.run {
            Some(run) => run.ending = Some(Ending::Truncate(len as usize)),
            None => twin.tokens.truncate(len as usize),
        }
        Ok(twin.known.then_some(Command::Truncate { sequence: id, len }))
    }

    pub(super) fn fork(
        &mut self,
        id: SequenceId,
        of: SequenceId,
        at: u32,
    ) -> Result<Option<Command>, Failure> {
        self.check_vacant(id)?;
        let parent = self.twin(of)?;
        let tokens = parent.history().get(..at as usize);
        let len = parent.len() as u32;
        let tokens = tokens.ok_or(Failure::PastEnd { sequence: of, at, len })?.to_vec();
        let twin = Twin { tenant: parent.tenant, tokens, known: parent.known, run: None };
        let command = twin.known.then_some(Command::Fork { sequence: id, of, at });
        self.sequences.insert(id, twin);
        Ok(command)
    }

    pub(super) fn release(&mut self, id: SequenceId) -> Result<Option<Command>, Failure> {
        let twin = self.twin_mut(id)?;
        let known = twin.known;
        match &mut twin.run {
            Some(run) => run.ending = Some(Ending::Release),
            None => drop(self.sequences.remove(&id)),
        }
        Ok(known.then_some(Command::Release { sequence: id }))
    }

    /// Takes note of what the worker tells and passes it on to the caller.
    pub(super) fn apply(&mut self, event: Event) {
        let Some(sequence) = event.sequence() else { return };
        let Some(twin) = self.sequences.get_mut(&sequence) else { return };
        if let Event::Refused { verb: Verb::Generate, failure, .. } = event {
            twin.known = false;
            return self.end(sequence, Event::Failed { sequence, failure });
        }
        if let Event::Refused { verb, failure, .. } = event {
            return twin.refused(sequence, verb, failure);
        }
        twin.take_on();
        let Some(run) = &mut twin.run else { return };
        match event {
            Event::Started { new, .. } if run.told.is_some() => run.recomputed += new,
            Event::Started { cached, new, .. } => {
                run.told = Some((cached, new));
                run.queue.push(event);
            }
            Event::Token { token, .. } => {
                twin.tokens.push(token);
                run.generated += 1;
                run.queue.push(event);
            }
            Event::Steered { counts, .. } => twin.steered(sequence, counts),
            Event::Finished { reason, counts, .. } => self.finish(sequence, reason, counts),
            Event::Failed { .. } => self.end(sequence, event),
            Event::Refused { .. } | Event::Ready(_) | Event::Alive => {}
            Event::Stats(_) | Event::Fatal { .. } => {}
        }
    }

    /// The worker is lost: whatever it knew has to be sent again when it is needed.
    pub(super) fn forget_worker(&mut self) {
        self.sequences.values_mut().for_each(|twin| twin.known = false);
    }

    /// What a new worker has to be asked so that all that runs goes on.
    pub(super) fn resume(&mut self) -> Vec<Command> {
        self.forget_worker();
        let running = self.sequences.iter().filter_map(|(id, twin)| Some((twin.run.as_ref()?.arrival, *id)));
        let mut running: Vec<(u64, SequenceId)> = running.collect();
        running.sort_unstable();
        running.into_iter().filter_map(|(_, id)| self.resume_one(id)).collect()
    }

    /// Ends everything that runs with this failure.
    pub(super) fn fail_all(&mut self, failure: &Failure) {
        let running = self.sequences.iter().filter(|(_, twin)| twin.run.is_some()).map(|(id, _)| *id);
        for sequence in running.collect::<Vec<_>>() {
            let twin = self.sequences.get_mut(&sequence).into_iter();
            twin.for_each(Twin::take_on);
            self.end(sequence, Event::Failed { sequence, failure: failure.clone() });
        }
    }

    fn resume_one(&mut self, id: SequenceId) -> Option<Command> {
        let max = self.facts.sequence_tokens_max();
        let twin = self.sequences.get_mut(&id)?;
        twin.take_on();
        let run = twin.run.as_ref()?;
        if run.ending.is_some() {
            let counts = Counts { generated: run.generated, ..Counts::default() };
            self.finish(id, FinishReason::Cancelled, counts);
            return None;
        }
        twin.take_up_steers(id, max);
        twin.known = true;
        let run = twin.run.as_ref()?;
        let (tokens, resumed) = (twin.tokens.clone(), run.generated);
        Some(Command::Generate(Generate { base: Base::New, tokens, resumed, ..run.request.clone() }))
    }

    fn finish(&mut self, sequence: SequenceId, reason: FinishReason, counts: Counts) {
        let Some(run) = self.sequences.get(&sequence).and_then(|twin| twin.run.as_ref()) else { return };
        let counts = run.counts(counts);
        self.end(sequence, Event::Finished { sequence, reason, counts });
    }

    /// Tells the last event of a generation and does what was to be done after it.
    fn end(&mut self, sequence: SequenceId, event: Event) {
        let Some(twin) = self.sequences.get_mut(&sequence) else { return };
        let Some(run) = twin.run.take() else { return };
        self.running -= 1;
        match run.ending {
            Some(Ending::Truncate(len)) => twin.tokens.truncate(len),
            Some(Ending::Release) => drop(self.sequences.remove(&sequence)),
            Some(Ending::Stay) | None => {}
        }
        run.queue.push(event);
        run.queue.close();
    }

    /// The tokens before the request's own, and whether the worker has them.
    fn held(&self, request: &Generate) -> Result<(&[u32], bool), Failure> {
        let id = request.sequence;
        let own = |id| match self.twin(id)? {
            twin if twin.tenant == request.tenant => Ok(twin),
            _ => Err(Failure::Foreign(id)),
        };
        match request.base {
            Base::New => self.check_vacant(id).map(|()| (&[][..], true)),
            Base::Fork { of, at } => {
                self.check_vacant(id)?;
                let twin = own(of)?;
                let held = twin.history().get(..at as usize);
                let len = twin.len() as u32;
                Ok((held.ok_or(Failure::PastEnd { sequence: of, at, len })?, twin.known))
            }
            Base::Extend | Base::Rewrite => match own(id)? {
                Twin { run: Some(_), .. } => Err(Failure::Busy(id)),
                twin if request.base == Base::Rewrite => Ok((&[], twin.known)),
                twin => Ok((&twin.tokens, twin.known)),
            },
        }
    }

    /// A sequence that is to be released is gone already for whoever asks.
    fn twin(&self, id: SequenceId) -> Result<&Twin, Failure> {
        let twin = self.sequences.get(&id).filter(|twin| twin.ending() != Some(Ending::Release));
        twin.ok_or(Failure::Unknown(id))
    }

    fn twin_mut(&mut self, id: SequenceId) -> Result<&mut Twin, Failure> {
        let twin = self.sequences.get_mut(&id).filter(|twin| twin.ending() != Some(Ending::Release));
        twin.ok_or(Failure::Unknown(id))
    }

    /// What the engine would refuse is refused here, where the caller is told at once.
    fn check(&self, request: &Generate) -> Result<(), Failure> {
        let (resumed, tokens) = (request.resumed, request.tokens.len() as u64);
        let count = request.stop_tokens.len() as u64;
        request.sampling.validate()?;
        request.constraint.as_ref().map_or(Ok(()), Constraint::check_size)?;
        match () {
            () if count > STOP_TOKENS_MAX as u64 => Err(Failure::TooManyStopTokens { count }),
            () if u64::from(resumed) > tokens => Err(Failure::Resumed { resumed, tokens }),
            () => self.check_tokens(&request.tokens),
        }?;
        request.check_references()?;
        request.references.iter().try_for_each(|reference| self.check_tokens(reference))
    }

    fn check_vacant(&self, id: SequenceId) -> Result<(), Failure> {
        match () {
            () if self.sequences.contains_key(&id) => Err(Failure::Exists(id)),
            () if self.sequences.len() >= SEQUENCES_MAX => Err(Failure::TooManySequences),
            () => Ok(()),
        }
    }

    fn check_tokens(&self, tokens: &[u32]) -> Result<(), Failure> {
        let vocab = self.facts.vocab;
        match tokens.iter().find(|&&token| token as usize >= vocab) {
            Some(&token) => Err(Failure::NotInVocabulary { token, vocab: vocab as u64 }),
            None => Ok(()),
        }
    }

    fn check_length(&self, tokens: usize) -> Result<(), Failure> {
        let max = self.facts.sequence_tokens_max();
        match tokens {
            0 => Err(Failure::Empty),
            _ if tokens < max => Ok(()),
            _ => Err(Failure::TooLong { tokens: tokens as u64, limit: max.saturating_sub(1) as u64 }),
        }
    }
}

impl Twin {
    /// All tokens that later commands can count on: with the prompt of a generation that has not begun, and
    /// without what is to be cut off.
    fn history(&self) -> &[u32] {
        let prompt = self.run.as_ref().and_then(|run| run.prompt.as_deref());
        let tokens = prompt.unwrap_or(&self.tokens);
        match self.ending() {
            Some(Ending::Truncate(len)) => &tokens[..len.min(tokens.len())],
            Some(Ending::Stay | Ending::Release) | None => tokens,
        }
    }

    fn ending(&self) -> Option<Ending> {
        self.run.as_ref().and_then(|run| run.ending)
    }

    fn len(&self) -> usize {
        self.history().len()
    }

    /// The generation's prompt is now part of the sequence.
    fn take_on(&mut self) {
        if let Some(prompt) = self.run.as_mut().and_then(|run| run.prompt.take()) {
            self.tokens = prompt;
        }
    }

    /// All waiting steers take hold here, since the worker that should have taken them up is lost.
    fn take_up_steers(&mut self, sequence: SequenceId, max: usize) {
        while let Some((run, tokens)) = self.run.as_ref().and_then(|run| Some((run, &run.steers.front()?.0)))
        {
            let len = self.tokens.len() + tokens.len();
            if len < max {
                self.steered(sequence, Counts { generated: run.generated, ..Counts::default() });
            } else {
                let failure = Failure::TooLong { tokens: len as u64, limit: max.saturating_sub(1) as u64 };
                self.refused(sequence, Verb::Steer, failure);
            }
        }
    }

    /// A steer came too late, or is too long by now; other commands on a known sequence are never refused, as
    /// they were checked before they were sent. A steer that was meant for an earlier generation comes before this one's first word.
    fn refused(&mut self, sequence: SequenceId, verb: Verb, failure: Failure) {
        let Some(run) = self.run.as_mut().filter(|run| run.prompt.is_none()) else { return };
        if verb == Verb::Steer && run.steers.pop_front().is_some() {
            run.queue.push(Event::Refused { sequence, verb, failure });
        }
    }

    /// The oldest waiting steer takes hold after all that was told so far.
    fn steered(&mut self, sequence: SequenceId, counts: Counts) {
        let Some(run) = &mut self.run else { return };
        let Some((tokens, max_tokens)) = run.steers.pop_front() else { return };
        let kept = self.tokens.len() as u32;
        run.queue.push(Event::Steered { sequence, kept, counts: run.counts(counts) });
        self.tokens.extend(tokens);
        run.request.max_tokens = max_tokens;
        run.generated = 0;
        run.told = None;
        run.recomputed = 0;
    }
}

impl TwinRun {
    /// The counts over all workers that had a part in this generation.
    fn counts(&self, last: Counts) -> Counts {
        let (cached, new) = self.told.unwrap_or((last.cached, last.new));
        Counts { cached, new, recomputed: last.recomputed + self.recomputed, ..last }
    }
}

#[cfg(test)]
#[path = "mirror_tests.rs"]
mod tests;
