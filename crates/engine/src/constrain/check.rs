//! Whether a constraint can be honoured, before any model is asked.

use super::Constraint;
use super::compile::{capabilities, limits, started};
use super::error::{BadConstraint, words};
use crate::limits::{CONSTRAINT_CHECK_MS_MAX, CONSTRAINT_STACK_BYTES};
use llguidance::api::{GrammarInit, TopLevelGrammar};
use llguidance::toktrie::ApproximateTokEnv;
use llguidance::{ParserFactory, panic_utils};
use std::panic::AssertUnwindSafe;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

/// Compiles the constraint as a worker would, but for the tokens: each is one byte, and ids of tokens are
/// taken on trust. Ends within `CONSTRAINT_CHECK_MS_MAX`, whatever the grammar.
pub fn check(constraint: &Constraint) -> Result<(), BadConstraint> {
    constraint.check_size()?;
    let (answer, outcome) = sync_channel(1);
    let constraint = constraint.clone();
    let thread = thread::Builder::new().name("constraint".into()).stack_size(CONSTRAINT_STACK_BYTES);
    let spawned = thread.spawn(move || {
        // Whoever asked may have given up.
        let _ = answer.try_send(compile(&constraint));
    });
    spawned.map_err(|error| BadConstraint::Refused(format!("no thread could be started: {error}")))?;
    outcome.recv_timeout(Duration::from_millis(CONSTRAINT_CHECK_MS_MAX)).unwrap_or_else(|error| match error {
        RecvTimeoutError::Timeout => Err(BadConstraint::TooSlow),
        RecvTimeoutError::Disconnected => Err(BadConstraint::Refused("its compiler failed".to_owned())),
    })
}

fn compile(constraint: &Constraint) -> Result<(), BadConstraint> {
    let made = panic_utils::catch_unwind(AssertUnwindSafe(|| {
        let grammar = TopLevelGrammar::from_lark(constraint.grammar().to_owned());
        let (grammar, lexer) = GrammarInit::Serialized(grammar).to_internal(None, limits())?;
        let mut factory = ParserFactory::new(&ApproximateTokEnv::single_byte_env(), capabilities(), &[])?;
        factory.quiet();
        *factory.limits_mut() = limits();
        Ok(started(&factory, GrammarInit::Internal(grammar, lexer)).map(drop))
    }));
    made.unwrap_or_else(|error| Err(BadConstraint::Refused(words(error))))
}
