//! Whether a constraint can be honoured, before any model is asked.

use super::compile::{limits, started, words_of};
use super::{BadConstraint, Constraint, scan};
use crate::limits::{CONSTRAINT_CHECK_MS_MAX, CONSTRAINT_CHECKS_MAX, CONSTRAINT_STACK_BYTES};
use llguidance::api::GrammarInit;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities};
use llguidance::{ParserFactory, panic_utils};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

/// Checks that are under way, those that nobody waits for any more included.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Compiles the constraint as a worker would, but for the tokens: each is one byte, and ids of tokens are
/// taken on trust. Ends within `CONSTRAINT_CHECK_MS_MAX`, whatever the grammar.
pub fn check(constraint: &Constraint) -> Result<(), BadConstraint> {
    constraint.check_size()?;
    scan::check(constraint.grammar())?;
    let place = Place::take()?;
    let (answer, outcome) = sync_channel(1);
    let constraint = constraint.clone();
    let thread = thread::Builder::new().name("constraint".into()).stack_size(CONSTRAINT_STACK_BYTES);
    let spawned = thread.spawn(move || {
        // Whoever asked may have given up.
        let _ = answer.try_send(compile(&constraint));
        drop(place);
    });
    spawned.map_err(|_| BadConstraint::Busy)?;
    outcome.recv_timeout(Duration::from_millis(CONSTRAINT_CHECK_MS_MAX)).unwrap_or_else(|error| match error {
        RecvTimeoutError::Timeout => Err(BadConstraint::TooSlow),
        RecvTimeoutError::Disconnected => Err(BadConstraint::refused("its compiler failed")),
    })
}

fn compile(constraint: &Constraint) -> Result<(), BadConstraint> {
    let made = panic_utils::catch_unwind(AssertUnwindSafe(|| {
        let grammar = GrammarInit::Serialized(constraint.top_level());
        let (grammar, lexer) = grammar.to_internal(None, limits())?;
        let mut factory =
            ParserFactory::new(&ApproximateTokEnv::single_byte_env(), InferenceCapabilities::default(), &[])?;
        factory.quiet();
        *factory.limits_mut() = limits();
        started(&factory, GrammarInit::Internal(grammar, lexer))
    }));
    made.map(drop).map_err(words_of(constraint))
}

/// One of the `CONSTRAINT_CHECKS_MAX` checks that may run.
struct Place;

impl Place {
    fn take() -> Result<Place, BadConstraint> {
        let place = Place;
        match RUNNING.fetch_add(1, Ordering::Relaxed) {
            0..CONSTRAINT_CHECKS_MAX => Ok(place),
            _ => Err(BadConstraint::Busy),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}
