//! Grammars to parsers, on a thread of their own: nobody's tokens wait for it.

use super::error::{BadConstraint, words};
use super::vocabulary::Vocabulary;
use super::{Constraint, Guide, scan};
use crate::limits::{
    CONSTRAINT_FUEL_MAX, CONSTRAINT_GRAMMAR_SYMBOLS_MAX, CONSTRAINT_LEXER_STATES_MAX,
    CONSTRAINT_ROW_ITEMS_MAX, CONSTRAINT_STACK_BYTES, CONSTRAINT_STEP_FUEL_MAX, CONSTRAINT_STEP_ITEMS_MAX,
    CONSTRAINT_WAIT_MS_MAX, CONSTRAINTS_KEPT_MAX, CONSTRAINTS_QUEUED_MAX,
};
use llguidance::api::{GrammarInit, ParserLimits};
use llguidance::{ParserFactory, TokenParser, panic_utils};
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Makes the vocabulary when the first constraint comes: most engines never need one.
pub type VocabularySource = Box<dyn FnOnce() -> Result<Vocabulary, String> + Send>;

/// The compiling thread's other end.
pub struct Compiler {
    source: Option<VocabularySource>, // until the thread runs
    vocab: usize,                     // logits of the model
    queue: Option<SyncSender<Job>>,
}

struct Job {
    constraint: Constraint,
    draft: Arc<Draft>,
}

/// A parser at the beginning of its grammar, or what went wrong, once it is there.
pub(super) struct Draft {
    outcome: Mutex<Option<Result<TokenParser, BadConstraint>>>,
    changed: Condvar,
    deadline: Instant, // when it is too late
}

impl Compiler {
    /// One that refuses every constraint.
    pub fn without_vocabulary(vocab: usize) -> Compiler {
        Compiler { source: None, vocab, queue: None }
    }

    pub fn new(source: VocabularySource, vocab: usize) -> Compiler {
        Compiler { source: Some(source), vocab, queue: None }
    }

    /// Whether constraints can be compiled at all.
    pub fn check(&self, constraint: &Constraint) -> Result<(), BadConstraint> {
        constraint.check_size()?;
        match (&self.source, &self.queue) {
            (None, None) => Err(BadConstraint::NoVocabulary("none was given to it".to_owned())),
            _ => Ok(()),
        }
    }

    /// Begins to compile. The guide stands for a generation whose first token has the position `begin`.
    pub fn begin(&mut self, constraint: &Constraint, begin: usize) -> Guide {
        let draft = Arc::new(Draft::new());
        let job = Job { constraint: constraint.clone(), draft: draft.clone() };
        let sent = self.queue().and_then(|queue| queue.try_send(job).map_err(|_| BadConstraint::Busy));
        if let Err(bad) = sent {
            draft.set(Err(bad));
        }
        Guide::new(draft, begin)
    }

    fn queue(&mut self) -> Result<&SyncSender<Job>, BadConstraint> {
        if let Some(source) = self.source.take() {
            let (queue, jobs) = sync_channel(CONSTRAINTS_QUEUED_MAX);
            let vocab = self.vocab;
            let thread = thread::Builder::new().name("constraints".into()).stack_size(CONSTRAINT_STACK_BYTES);
            let spawned = thread.spawn(move || work(source, vocab, &jobs));
            spawned.map_err(|error| BadConstraint::NoVocabulary(error.to_string()))?;
            self.queue = Some(queue);
        }
        self.queue.as_ref().ok_or(BadConstraint::Busy)
    }
}

impl Draft {
    fn new() -> Draft {
        let deadline = Instant::now() + Duration::from_millis(CONSTRAINT_WAIT_MS_MAX);
        Draft { outcome: Mutex::default(), changed: Condvar::new(), deadline }
    }

    fn set(&self, outcome: Result<TokenParser, BadConstraint>) {
        *self.lock() = Some(outcome);
        self.changed.notify_all();
    }

    /// Whether `parser` has an answer.
    pub(super) fn is_ready(&self) -> bool {
        self.lock().is_some() || Instant::now() >= self.deadline
    }

    /// Waits until it is ready, but not longer than this.
    pub(super) fn wait(&self, limit: Duration) {
        let limit = limit.min(self.deadline.saturating_duration_since(Instant::now()));
        drop(self.changed.wait_timeout_while(self.lock(), limit, |outcome| outcome.is_none()));
    }

    /// A parser of the caller's own, at the beginning of the grammar.
    pub(super) fn parser(&self) -> Result<TokenParser, BadConstraint> {
        match &*self.lock() {
            // Not a shallow copy: what one generation's lexer learns would count against another's limit.
            Some(Ok(parser)) => Ok(parser.deep_clone()),
            Some(Err(bad)) => Err(bad.clone()),
            None => Err(BadConstraint::TooSlow),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Result<TokenParser, BadConstraint>>> {
        // It is set once, whole.
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread: compiles one constraint after the other, and keeps the last few.
fn work(source: VocabularySource, vocab: usize, jobs: &Receiver<Job>) {
    let factory = source().and_then(|vocabulary| factory(&vocabulary, vocab));
    let mut kept: VecDeque<(Constraint, TokenParser)> = VecDeque::new();
    while let Ok(Job { constraint, draft }) = jobs.recv() {
        if Arc::strong_count(&draft) == 1 {
            continue; // its generation has ended
        }
        if let Some((_, parser)) = kept.iter().find(|(known, _)| *known == constraint) {
            draft.set(Ok(parser.deep_clone()));
            continue;
        }
        let outcome = match &factory {
            Ok(factory) => compile(factory, &constraint),
            Err(reason) => Err(BadConstraint::NoVocabulary(reason.clone())),
        };
        if let Ok(parser) = &outcome {
            kept.truncate(CONSTRAINTS_KEPT_MAX - 1);
            kept.push_front((constraint, parser.deep_clone()));
        }
        draft.set(outcome);
    }
}

fn factory(vocabulary: &Vocabulary, vocab: usize) -> Result<ParserFactory, String> {
    let made = panic_utils::catch_unwind(AssertUnwindSafe(|| {
        let mut factory = ParserFactory::new_simple(&vocabulary.token_env(vocab))?;
        factory.quiet();
        *factory.limits_mut() = limits();
        Ok(factory)
    }));
    made.map_err(words)
}

fn compile(factory: &ParserFactory, constraint: &Constraint) -> Result<TokenParser, BadConstraint> {
    scan::check(constraint.grammar())?;
    started(factory, GrammarInit::Serialized(constraint.top_level())).map_err(words_of(constraint))
}

/// A parser that waits for its first token.
pub(super) fn started(factory: &ParserFactory, grammar: GrammarInit) -> anyhow::Result<TokenParser> {
    let mut parser = factory.create_parser_from_init_default(grammar)?;
    parser.start_without_prompt();
    Ok(parser)
}

/// What llguidance has against a constraint, and where in it that is.
pub(super) fn words_of(constraint: &Constraint) -> impl FnOnce(anyhow::Error) -> BadConstraint {
    |error| {
        let words = words(error);
        let schemas = scan::schemas(constraint.grammar());
        let place = schemas.iter().find_map(|schema| scan::place(schema, &words));
        BadConstraint::Refused(place.map_or(words.clone(), |place| format!("{words}, at {place}")))
    }
}

pub(super) fn limits() -> ParserLimits {
    ParserLimits {
        initial_lexer_fuel: CONSTRAINT_FUEL_MAX,
        step_lexer_fuel: CONSTRAINT_STEP_FUEL_MAX,
        max_items_in_row: CONSTRAINT_ROW_ITEMS_MAX,
        step_max_items: CONSTRAINT_STEP_ITEMS_MAX,
        max_lexer_states: CONSTRAINT_LEXER_STATES_MAX,
        max_grammar_size: CONSTRAINT_GRAMMAR_SYMBOLS_MAX,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}
