//! The mirror against engines that are lost at any moment, without processes: thousands of deaths a second.
//!
//! Commands and events wait in queues as they would on the link. Every token that reaches a caller must be the
//! one that an oracle gives for the caller's own view of the history.

use super::*;
use crate::batch::Batch;
use crate::device::scripted::{Script, Scripted, ScriptedOptions};
use crate::limits::KV_BLOCK_TOKENS;
use crate::message::Priority;
use crate::runner::Runner;
use crate::sample::Sampling;
use crate::step::Engine;

const TRIALS: u64 = 60;
const OPERATIONS: u64 = 3000;
const CONTEXT: usize = 200;

fn scripted() -> Scripted {
    let options = ScriptedOptions {
        vocab: 16,
        context: CONTEXT,
        kv_blocks: 24,
        script: Script::Noise,
        rate: None,
        fault: None,
    };
    Scripted::new(options).unwrap()
}

/// The most likely token after a history, computed from nothing.
fn oracle(runner: &mut Scripted, history: &[u32]) -> u32 {
    let blocks: Vec<u32> = (0..history.len().div_ceil(KV_BLOCK_TOKENS) as u32).collect();
    let mut batch = Batch::default();
    batch.push(history, 0, &blocks, true);
    runner.forward(&batch).unwrap();
    let logits = runner.logits(0);
    let best = logits.iter().copied().fold(f32::MIN, f32::max);
    logits.iter().position(|&logit| logit == best).unwrap() as u32
}

/// What a caller knows of its sequence.
struct View {
    tokens: Vec<u32>,
    steers: VecDeque<Vec<u32>>,
    queue: Option<Arc<Queue>>, // of the running generation
    allowed: VecDeque<u32>,    // max_tokens of the generation and of the steers that wait
    generated: u32,
    truncate: Option<usize>,
}

struct Trial {
    seed: u64,
    state: u64,
    mirror: Mirror,
    engine: Engine,
    commands: VecDeque<Command>,  // sent, not read by the worker
    events: VecDeque<Vec<Event>>, // told, not read by the supervisor
    views: HashMap<SequenceId, View>,
    ids: u64,
    oracle: Scripted,
    deaths: u64,
    tokens: u64,
}

impl Drop for Trial {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with seed {}", self.seed);
        }
    }
}

impl Trial {
    fn new(seed: u64) -> Trial {
        let runner = scripted();
        Trial {
            seed,
            state: seed,
            mirror: Mirror::new(runner.facts()),
            engine: Engine::new(Box::new(runner)),
            commands: VecDeque::new(),
            events: VecDeque::new(),
            views: HashMap::new(),
            ids: 0,
            oracle: scripted(),
            deaths: 0,
            tokens: 0,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % bound.max(1)
    }

    fn some_tokens(&mut self, max: u64) -> Vec<u32> {
        let len = 1 + self.below(max);
        (0..len).map(|_| self.below(16) as u32).collect()
    }

    fn some_id(&mut self) -> Option<SequenceId> {
        let mut ids: Vec<SequenceId> = self.views.keys().copied().collect();
        ids.sort_unstable();
        let place = self.below(ids.len() as u64) as usize;
        ids.get(place).copied()
    }

    fn operate(&mut self) {
        match self.below(100) {
            0..10 => self.generate(),
            10..16 => self.steer(),
            16..20 => self.cancel(),
            20..24 => self.truncate(),
            24..27 => self.fork(),
            27..30 => self.release(),
            30..34 => self.lose_worker(),
            34..65 => self.work(),
            _ => self.listen(),
        }
    }

    fn generate(&mut self) {
        let tokens = self.some_tokens(40);
        let max_tokens = self.below(30) as u32;
        let base = match (self.below(4), self.some_id()) {
            (0, Some(_)) => Base::Extend,
            (1, Some(_)) => Base::Rewrite,
            (2, Some(of)) => {
                Base::Fork { of, at: self.below(self.views[&of].tokens.len() as u64 + 1) as u32 }
            }
            _ => Base::New,
        };
        let existing = self.some_id().filter(|_| matches!(base, Base::Extend | Base::Rewrite));
        let sequence = existing.unwrap_or(SequenceId(self.ids + 1));
        let held = match base {
            Base::Extend => self.views[&sequence].tokens.clone(),
            Base::Fork { of, at } => self.views[&of].tokens[..at as usize].to_vec(),
            Base::New | Base::Rewrite => Vec::new(),
        };
        let whole = [&held[..], &tokens].concat();
        let request = Generate {
            sequence,
            base,
            tokens,
            resumed: 0,
            max_tokens,
            stop_tokens: vec![3],
            sampling: Sampling::default(),
            constraint: None,
            references: vec![vec![7; 3]],
            speculate: true,
            priority: Priority::Interactive,
            tenant: Tenant(1),
        };
        let queue = Arc::new(Queue::default());
        let cut = matches!(base, Base::Fork { of, at } if self.views[&of].is_cut_at(at));
        let busy = existing.is_some_and(|id| self.views[&id].queue.is_some());
        match self.mirror.generate(request, queue.clone()) {
            Err(failure) => assert!(busy || cut || whole.len() >= CONTEXT, "{failure}"),
            Ok(command) => {
                assert!(!busy && !cut);
                self.ids = self.ids.max(sequence.0);
                self.commands.push_back(command);
                let view = View {
                    tokens: whole,
                    steers: VecDeque::new(),
                    queue: Some(queue),
                    allowed: VecDeque::from([max_tokens]),
                    generated: 0,
                    truncate: None,
                };
                self.views.insert(sequence, view);
            }
        }
    }

    fn steer(&mut self) {
        let Some(id) = self.some_id() else { return };
        let longest = [8, 8, 120][self.below(3) as usize];
        let (tokens, max_tokens) = (self.some_tokens(longest), 1 + self.below(20) as u32);
        if let Ok(command) = self.mirror.steer(id, tokens.clone(), max_tokens) {
            self.commands.push_back(command);
            let view = self.views.get_mut(&id).unwrap();
            view.steers.push_back(tokens);
            view.allowed.push_back(max_tokens);
        }
    }

    fn cancel(&mut self) {
        let Some(id) = self.some_id() else { return };
        self.commands.extend(self.mirror.cancel(id).unwrap());
    }

    fn truncate(&mut self) {
        let Some(id) = self.some_id() else { return };
        let len = self.below(self.views[&id].tokens.len() as u64 + 1) as usize;
        let view = self.views.get_mut(&id).unwrap();
        match self.mirror.truncate(id, len as u32) {
            Err(failure) => return assert!(view.truncate.is_some_and(|kept| kept < len), "{failure}"),
            Ok(command) => self.commands.extend(command),
        }
        match view.queue {
            Some(_) => view.truncate = Some(len),
            None => view.tokens.truncate(len),
        }
    }

    fn fork(&mut self) {
        let Some(of) = self.some_id() else { return };
        let at = self.below(self.views[&of].tokens.len() as u64 + 1) as u32;
        self.ids += 1;
        let id = SequenceId(self.ids);
        match self.mirror.fork(id, of, at) {
            Err(failure) => return assert!(self.views[&of].is_cut_at(at), "{failure}"),
            Ok(command) => self.commands.extend(command),
        }
        let tokens = self.views[&of].tokens[..at as usize].to_vec();
        let (steers, allowed) = (VecDeque::new(), VecDeque::new());
        self.views.insert(id, View { tokens, steers, queue: None, allowed, generated: 0, truncate: None });
    }

    /// A released sequence is of no more interest, whatever is still told about it.
    fn release(&mut self) {
        let Some(id) = self.some_id() else { return };
        self.commands.extend(self.mirror.release(id).unwrap());
        self.views.remove(&id);
    }

    /// What the worker had told is still read; what it had not read is lost.
    fn lose_worker(&mut self) {
        while !self.events.is_empty() {
            self.listen();
        }
        self.deaths += 1;
        self.mirror.forget_worker();
        self.engine = Engine::new(Box::new(scripted()));
        self.commands = self.mirror.resume().into();
        for command in &self.commands {
            let Command::Generate(request) = command else { panic!("{command:?}") };
            assert!(request.speculate && request.references == [[7; 3]], "{request:?}");
        }
        self.watch();
    }

    /// The worker reads some commands and makes a step.
    fn work(&mut self) {
        let mut events = Vec::new();
        for _ in 0..self.below(4) {
            let command = self.commands.pop_front();
            command.iter().for_each(|command| self.engine.command(command, &mut events));
        }
        self.engine.step(&mut events).unwrap();
        self.events.push_back(events);
    }

    fn listen(&mut self) {
        let events = self.events.pop_front().unwrap_or_default();
        events.into_iter().for_each(|event| self.mirror.apply(event));
        self.watch();
    }

    /// Every caller takes what it was told.
    fn watch(&mut self) {
        for (id, view) in &mut self.views {
            let Some(queue) = view.queue.clone() else { continue };
            while let Ok(Some(event)) = queue.pop(Some(std::time::Instant::now())) {
                self.tokens += u64::from(matches!(event, Event::Token { .. }));
                view.watch(*id, event, &mut self.oracle);
            }
        }
    }

    fn finish(&mut self) {
        while self.mirror.is_running() {
            self.work();
            self.listen();
        }
        assert!(self.views.values().all(|view| view.queue.is_none()), "a caller still waits");
        let twins = self.mirror.sequences.iter().filter(|(id, _)| self.views.contains_key(id));
        for (id, twin) in twins {
            assert_eq!(twin.tokens, self.views[id].tokens);
        }
        assert_eq!(self.mirror.sequences.len(), self.views.len());
    }
}

impl View {
    /// Whether the token before `at` is about to be cut off.
    fn is_cut_at(&self, at: u32) -> bool {
        self.truncate.is_some_and(|kept| kept < at as usize)
    }

    fn watch(&mut self, id: SequenceId, event: Event, runner: &mut Scripted) {
        match event {
            Event::Started { cached, new, .. } => assert_eq!((cached + new) as usize, self.tokens.len()),
            Event::Token { token, .. } => {
                assert_eq!(token, oracle(runner, &self.tokens), "sequence {} after {:?}", id.0, self.tokens);
                self.tokens.push(token);
                self.generated += 1;
            }
            Event::Steered { kept, counts, .. } => {
                assert_eq!((kept as usize, counts.generated), (self.tokens.len(), self.generated));
                self.tokens.extend(self.steers.pop_front().expect("it was steered"));
                self.allowed.pop_front();
                self.generated = 0;
            }
            Event::Refused { .. } => drop((self.steers.pop_front(), self.allowed.remove(1))),
            Event::Finished { reason, counts, .. } => {
                assert_eq!(counts.generated, self.generated);
                if reason == FinishReason::Length {
                    assert_eq!(Some(&self.generated), self.allowed.front());
                }
                self.queue = None;
                self.tokens.truncate(self.truncate.take().unwrap_or(usize::MAX));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn callers_never_notice_that_workers_are_lost() {
    let (mut deaths, mut tokens) = (0, 0);
    for seed in 0..TRIALS {
        let mut trial = Trial::new(seed);
        (0..OPERATIONS).for_each(|_| trial.operate());
        trial.finish();
        deaths += trial.deaths;
        tokens += trial.tokens;
    }
    assert!(deaths > 5000 && tokens > 50_000, "{deaths} deaths, {tokens} tokens");
}
