//! Random operations on the scheduler against a simple model: no leak, no foreign block, no starvation.
//!
//! Instead of a device there is a shadow of the KV memory: every cell keeps a digest of the tenant and of all
//! tokens up to its own. A block that was given away, shared across tenants, written by two or copied too
//! late shows as a wrong digest.

mod common;

use common::{Random, request};
use flint_engine::limits::KV_BLOCK_TOKENS;
use flint_engine::message::{Base, Failure, FinishReason, Generate, Priority, SequenceId, Tenant};
use flint_engine::runner::RunnerFacts;
use flint_engine::schedule::{Ends, Limits, Plan, Scheduler, Slot, Work};
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

const TRIALS: u64 = 24;
const OPERATIONS: u64 = 10_000;
const BLOCKS: usize = 14;
const CONTEXT: usize = 260;
const VOCAB: u32 = 3;
const STOP: u32 = 2;
const RUNNING_MAX: usize = 12;
const SEQUENCES_MAX: usize = 24;

fn limits() -> Limits {
    let facts = RunnerFacts { vocab: VOCAB as usize, context: CONTEXT, kv_blocks: BLOCKS };
    Limits { rows: 48, rows_beside_decode: 14, seats: 4, starvation_steps: 20, ..Limits::new(facts) }
}

/// The most steps a sequence may be passed over between two tokens.
fn starvation_bound() -> u32 {
    let Limits { rows_beside_decode, seats, starvation_steps, .. } = limits();
    let steps_of_an_elder = CONTEXT.div_ceil(rows_beside_decode - (seats - 1)) + 1;
    starvation_steps + (RUNNING_MAX * steps_of_an_elder) as u32
}

/// What a sequence is, as simply as it can be said.
struct Model {
    slot: Slot,
    tenant: Tenant,
    tokens: Vec<u32>,
    run: Option<ModelRun>,
}

struct ModelRun {
    generated: u32,
    max_tokens: u32,
    passed_over: u32,
}

struct Trial {
    seed: u64,
    operation: u64,
    random: Random,
    scheduler: Scheduler,
    plan: Plan,
    drafts: Vec<Vec<u32>>, // (work of the plan) guesses
    shadow: Vec<u64>,      // (BLOCKS * KV_BLOCK_TOKENS) digests
    models: BTreeMap<u64, Model>,
    ids: u64,
    worst_wait: u32,
}

impl Drop for Trial {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with seed {} at operation {}", self.seed, self.operation);
        }
    }
}

fn digest(tenant: Tenant, tokens: &[u32]) -> impl Iterator<Item = u64> {
    let mut hasher = DefaultHasher::new();
    tenant.hash(&mut hasher);
    tokens.iter().map(move |token| {
        token.hash(&mut hasher);
        hasher.finish()
    })
}

impl Trial {
    fn new(seed: u64) -> Trial {
        Trial {
            seed,
            operation: 0,
            random: Random(seed),
            scheduler: Scheduler::new(BLOCKS, limits()),
            plan: Plan::default(),
            drafts: Vec::new(),
            shadow: vec![0; BLOCKS * KV_BLOCK_TOKENS],
            models: BTreeMap::new(),
            ids: 0,
            worst_wait: 0,
        }
    }

    fn run(&mut self) {
        for operation in 0..OPERATIONS {
            self.operation = operation;
            match self.random.below(100) {
                0..12 => self.generate(),
                12..15 => self.steer(),
                15..18 => self.cancel(),
                18..21 => self.truncate(),
                21..24 => self.fork(),
                24..28 => self.release(),
                _ => self.step(),
            }
            self.scheduler.audit().unwrap();
            self.check_tenants();
        }
        self.finish_all();
    }

    fn finish_all(&mut self) {
        while let Some((&id, _)) = self.models.first_key_value() {
            self.scheduler.release(SequenceId(id)).unwrap();
            self.models.remove(&id);
        }
        let stats = self.scheduler.stats();
        assert_eq!((stats.sequences, stats.sequences_running), (0, 0));
        assert_eq!(stats.blocks_free + stats.blocks_cached, BLOCKS as u64, "blocks have leaked");
        assert_eq!(stats.blocks_running, 0);
    }

    /// Mostly an id that exists, sometimes one that does not.
    fn any_id(&mut self) -> u64 {
        let known = self.models.len() as u64;
        match self.random.below(known + 1) {
            n if n < known => *self.models.keys().nth(n as usize).unwrap(),
            _ => self.ids + 1000,
        }
    }

    fn some_tokens(&mut self) -> Vec<u32> {
        let len = if self.random.below(4) == 0 { self.random.below(150) } else { self.random.below(12) };
        // Long runs of one token make many equal blocks, for one tenant and across tenants.
        let varied = self.random.below(3) == 0;
        (0..len).map(|_| if varied { self.random.below(2) as u32 } else { 0 }).collect()
    }

    fn running(&self) -> usize {
        self.models.values().filter(|model| model.run.is_some()).count()
    }

    fn generate(&mut self) {
        if self.running() == RUNNING_MAX {
            return self.step();
        }
        let of = self.any_id();
        let at = self.random.below(self.models.get(&of).map_or(5, |model| model.tokens.len() as u64 + 1));
        let base = match self.random.below(5) {
            0 => Base::Extend,
            1 => Base::Rewrite,
            2 => Base::Fork { of: SequenceId(of), at: at as u32 },
            _ => Base::New,
        };
        let fresh = matches!(base, Base::New | Base::Fork { .. });
        if fresh && self.models.len() == SEQUENCES_MAX {
            return self.release();
        }
        let id = if fresh { self.ids + 1 } else { of };
        let tokens = self.some_tokens();
        let known = self.models.get(&of).map(|model| model.tenant);
        let tenant = known.filter(|_| !matches!(base, Base::New)).unwrap_or(Tenant(self.random.below(3)));
        let priority = [Priority::Keystroke, Priority::Interactive, Priority::Background];
        let request = Generate {
            stop_tokens: vec![STOP],
            priority: priority[self.random.below(3) as usize],
            tenant,
            ..request(id, base, &tokens, self.random.below(150) as u32)
        };
        let expected = self.expected_tokens(&request);
        match (self.scheduler.generate(&request), expected) {
            (Ok(slot), Ok(tokens)) => {
                self.ids += u64::from(fresh);
                let run = ModelRun { generated: 0, max_tokens: request.max_tokens, passed_over: 0 };
                self.models.insert(id, Model { slot, tenant, tokens, run: Some(run) });
            }
            (Err(found), Err(expected)) => assert_eq!(found, expected),
            (found, expected) => panic!("{request:?}: expected {expected:?}, found {found:?}"),
        }
    }

    fn expected_tokens(&self, request: &Generate) -> Result<Vec<u32>, Failure> {
        let known = |id: SequenceId| self.models.get(&id.0).ok_or(Failure::Unknown(id));
        let held = match request.base {
            Base::New => Vec::new(),
            Base::Fork { of, at } => known(of)?.tokens[..at as usize].to_vec(),
            Base::Extend | Base::Rewrite if known(request.sequence)?.run.is_some() => {
                return Err(Failure::Busy(request.sequence));
            }
            Base::Extend => known(request.sequence)?.tokens.clone(),
            Base::Rewrite => Vec::new(),
        };
        checked([held, request.tokens.clone()].concat())
    }

    fn steer(&mut self) {
        let id = self.any_id();
        let tokens = self.some_tokens();
        let max_tokens = self.random.below(40) as u32;
        let expected = match self.models.get(&id) {
            None => Err(Failure::Unknown(SequenceId(id))),
            Some(Model { run: None, .. }) => Err(Failure::NotRunning(SequenceId(id))),
            Some(model) => checked([model.tokens.clone(), tokens.clone()].concat()),
        };
        let found = self.scheduler.steer(SequenceId(id), &tokens, max_tokens);
        match (found, expected) {
            (Ok((kept, _)), Ok(tokens)) => {
                let model = self.models.get_mut(&id).unwrap();
                assert_eq!(kept as usize, model.tokens.len());
                model.tokens = tokens;
                model.run = Some(ModelRun { generated: 0, max_tokens, passed_over: 0 });
            }
            (found, expected) => assert_eq!(found.err(), expected.err()),
        }
    }

    fn cancel(&mut self) {
        let id = self.any_id();
        let expected = self.models.get_mut(&id).map(|model| model.run.take().is_some());
        let found = self.scheduler.cancel(SequenceId(id));
        assert_eq!(found.map(|counts| counts.is_some()).ok(), expected);
    }

    fn truncate(&mut self) {
        let id = self.any_id();
        let len = self.random.below(CONTEXT as u64) as usize;
        let found = self.scheduler.truncate(SequenceId(id), len as u32);
        match self.models.get_mut(&id) {
            Some(model) if len <= model.tokens.len() => {
                assert_eq!(found.unwrap().is_some(), model.run.take().is_some());
                model.tokens.truncate(len);
            }
            _ => assert!(found.is_err()),
        }
    }

    fn fork(&mut self) {
        let of = self.any_id();
        if self.models.len() == SEQUENCES_MAX {
            return self.release();
        }
        let at = self.random.below(40) as usize;
        let id = self.ids + 1;
        let found = self.scheduler.fork(SequenceId(id), SequenceId(of), at as u32);
        match self.models.get(&of) {
            Some(Model { tenant, tokens, .. }) if at <= tokens.len() => {
                let (tenant, tokens) = (*tenant, tokens[..at].to_vec());
                self.ids = id;
                self.models.insert(id, Model { slot: found.unwrap(), tenant, tokens, run: None });
            }
            _ => assert!(found.is_err()),
        }
    }

    fn release(&mut self) {
        let id = self.any_id();
        let found = self.scheduler.release(SequenceId(id));
        match self.models.remove(&id) {
            Some(model) => assert_eq!(found.unwrap().is_some(), model.run.is_some()),
            None => assert_eq!(found, Err(Failure::Unknown(SequenceId(id)))),
        }
    }

    fn step(&mut self) {
        let mut plan = std::mem::take(&mut self.plan);
        self.scheduler.plan(&mut plan);
        self.check_plan(&plan);
        self.draft(&mut plan);
        for copy in &plan.copies {
            let from = copy.from as usize * KV_BLOCK_TOKENS;
            self.shadow.copy_within(from..from + KV_BLOCK_TOKENS, copy.to as usize * KV_BLOCK_TOKENS);
        }
        let drafts = std::mem::take(&mut self.drafts);
        plan.work.iter().zip(&drafts).for_each(|(work, draft)| self.forward(work, draft));
        plan.work.iter().zip(&drafts).for_each(|(work, draft)| self.accept(work, draft));
        self.count_passed_over(&plan);
        self.plan = plan;
    }

    fn check_plan(&self, plan: &Plan) {
        let rows: usize = plan.work.iter().map(|work| work.rows).sum();
        assert!(rows <= limits().rows && plan.work.len() <= limits().seats);
        assert!(plan.work.iter().all(|work| work.rows > 0));
        assert_eq!(plan.work.is_empty(), self.running() == 0, "work is planned whenever something runs");
    }

    /// Guesses behind some of the sequences that decode. They take nothing from anybody.
    fn draft(&mut self, plan: &mut Plan) {
        let before = self.scheduler.stats();
        self.drafts = vec![Vec::new(); plan.work.len()];
        for index in 0..plan.work.len() {
            if plan.only_decodes() && self.random.below(2) == 0 {
                let rows = self.scheduler.draft_rows_max(&plan.work[index]) as u64;
                let rows = if self.random.below(4) == 0 { rows } else { self.random.below(rows + 1) };
                self.scheduler.draft(plan, index, rows as usize);
                let drafted = plan.work[index].drafted;
                self.drafts[index] = (0..drafted).map(|_| self.random.below(2) as u32).collect();
            }
        }
        let after = self.scheduler.stats();
        assert_eq!((after.preemptions, after.evictions), (before.preemptions, before.evictions));
    }

    /// Reads what the rows attend to and writes what they add.
    fn forward(&mut self, work: &Work, draft: &[u32]) {
        let sequence = self.scheduler.sequence(work.slot);
        let model = &self.models[&sequence.id.0];
        assert!(model.run.is_some() && sequence.tokens == model.tokens && sequence.tenant == model.tenant);
        let (from, to) = (sequence.lease.computed, sequence.lease.computed + work.rows);
        let tokens = [&model.tokens[..to], draft].concat();
        for (position, expected) in digest(model.tenant, &tokens).enumerate() {
            let block = sequence.lease.blocks[position / KV_BLOCK_TOKENS];
            let cell = block as usize * KV_BLOCK_TOKENS + position % KV_BLOCK_TOKENS;
            if position < from {
                assert_eq!(self.shadow[cell], expected, "foreign KV at {position} of {}", sequence.id.0);
                continue;
            }
            let leases = self.models.values().map(|model| &self.scheduler.sequence(model.slot).lease);
            let owners = leases.filter(|lease| lease.blocks.contains(&block)).count();
            assert_eq!(owners, 1, "block {block} is written with {owners} owners");
            self.shadow[cell] = expected;
        }
    }

    fn accept(&mut self, work: &Work, draft: &[u32]) {
        self.scheduler.advance(*work);
        let id = self.scheduler.sequence(work.slot).id.0;
        let model = self.models.get_mut(&id).unwrap();
        let run = model.run.as_mut().unwrap();
        match work.ends {
            Ends::Unfinished => {}
            Ends::Prefilled => {
                assert_eq!(run.max_tokens, 0);
                model.run = None;
                self.scheduler.finish(work.slot);
            }
            Ends::WithToken => {
                let mut guesses = draft.iter();
                loop {
                    let guess = guesses.next().copied();
                    let (token, finished) = self.accept_token(id, guess);
                    if finished || guess != Some(token) {
                        break;
                    }
                    self.scheduler.confirm(work.slot);
                }
                self.scheduler.drop_draft(work.slot);
            }
        }
    }

    /// A token is sampled, mostly the one that was guessed. Says whether the generation ends with it.
    fn accept_token(&mut self, id: u64, guess: Option<u32>) -> (u32, bool) {
        let guess = guess.filter(|_| self.random.below(8) > 0);
        let other = if self.random.below(40) == 0 { STOP } else { self.random.below(2) as u32 };
        let token = guess.unwrap_or(other);
        let model = self.models.get_mut(&id).unwrap();
        let run = model.run.as_mut().unwrap();
        model.tokens.push(token);
        run.generated += 1;
        let expected = match () {
            () if token == STOP => Some(FinishReason::Stop),
            () if run.generated == run.max_tokens => Some(FinishReason::Length),
            () if model.tokens.len() == CONTEXT => Some(FinishReason::Context),
            () => None,
        };
        assert_eq!(self.scheduler.accept(model.slot, token), expected);
        if expected.is_some() {
            let counts = self.scheduler.finish(model.slot);
            assert_eq!(counts.generated, run.generated);
            model.run = None;
        }
        (token, expected.is_some())
    }

    fn count_passed_over(&mut self, plan: &Plan) {
        for model in self.models.values_mut() {
            let Some(run) = &mut model.run else { continue };
            match plan.work.iter().find(|work| work.slot == model.slot) {
                None => run.passed_over += 1,
                Some(work) if work.ends == Ends::WithToken => run.passed_over = 0,
                Some(_) => {}
            }
            self.worst_wait = self.worst_wait.max(run.passed_over);
            assert!(run.passed_over <= starvation_bound(), "passed over {} times", run.passed_over);
        }
    }

    fn check_tenants(&self) {
        let mut tenants = HashMap::new();
        for model in self.models.values() {
            for block in &self.scheduler.sequence(model.slot).lease.blocks {
                let tenant = *tenants.entry(*block).or_insert(model.tenant);
                assert_eq!(tenant, model.tenant, "block {block} is shared across tenants");
            }
        }
    }
}

fn checked(tokens: Vec<u32>) -> Result<Vec<u32>, Failure> {
    match tokens.len() {
        0 => Err(Failure::Empty),
        len if len >= CONTEXT => Err(Failure::TooLong { tokens: len as u64, limit: CONTEXT as u64 - 1 }),
        _ => Ok(tokens),
    }
}

#[test]
fn random_operations_keep_every_promise() {
    let (mut stats, mut worst_wait) = (Vec::new(), 0);
    for seed in 0..TRIALS {
        let mut trial = Trial::new(seed);
        trial.run();
        stats.push(trial.scheduler.stats());
        worst_wait = worst_wait.max(trial.worst_wait);
    }
    // The trials are only worth something if they reach the hard cases.
    assert!(stats.iter().all(|stats| stats.preemptions > 50), "{stats:?}");
    assert!(stats.iter().all(|stats| stats.evictions > 100), "{stats:?}");
    assert!(stats.iter().all(|stats| stats.tokens_cached > 1000), "{stats:?}");
    assert!(stats.iter().all(|stats| stats.rows_accepted > 1000), "{stats:?}");
    assert!(stats.iter().all(|stats| stats.rows_drafted > stats.rows_accepted + 1000), "{stats:?}");
    assert!(
        worst_wait > limits().starvation_steps,
        "nobody ever starved enough to be an elder: {worst_wait}"
    );
}

#[test]
fn background_work_goes_on_under_endless_keystrokes() {
    let mut scheduler = Scheduler::new(BLOCKS, limits());
    let background = Generate { priority: Priority::Background, ..request(1, Base::New, &[0; 200], 5) };
    let slot = scheduler.generate(&background).unwrap();
    let (mut plan, mut waited, mut id) = (Plan::default(), 0, 1);
    while scheduler.sequence(slot).run.is_some() {
        while scheduler.stats().sequences_running < RUNNING_MAX as u64 {
            id += 1;
            let keystroke = Generate { tenant: Tenant(id), ..request(id, Base::New, &[1; 40], 8) };
            scheduler.generate(&Generate { priority: Priority::Keystroke, ..keystroke }).unwrap();
        }
        scheduler.plan(&mut plan);
        waited = if plan.work.iter().any(|work| work.slot == slot) { 0 } else { waited + 1 };
        assert!(waited <= starvation_bound());
        for work in &plan.work {
            scheduler.advance(*work);
            if work.ends == Ends::WithToken && scheduler.accept(work.slot, 0).is_some() {
                scheduler.finish(work.slot);
                let id = scheduler.sequence(work.slot).id;
                (work.slot != slot).then(|| scheduler.release(id).unwrap());
            }
        }
    }
}
