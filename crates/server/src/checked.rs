//! Constraints that have been found good or bad: clients send the same tools with every turn.

use crate::limits::CHECKED_CONSTRAINTS_MAX;
use flint_engine::constrain::{BadConstraint, Constraint};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

#[derive(Debug, Default)]
pub struct Checked {
    outcomes: Mutex<VecDeque<(Constraint, Result<(), BadConstraint>)>>,
}

impl Checked {
    /// What `check` says of the constraint, or has said.
    pub fn pass(
        &self,
        constraint: &Constraint,
        check: impl FnOnce(&Constraint) -> Result<(), BadConstraint>,
    ) -> Result<(), BadConstraint> {
        let known =
            self.lock().iter().find(|(known, _)| known == constraint).map(|(_, outcome)| outcome.clone());
        if let Some(outcome) = known {
            return outcome;
        }
        let outcome = check(constraint);
        let mut outcomes = self.lock();
        outcomes.push_back((constraint.clone(), outcome.clone()));
        let surplus = outcomes.len().saturating_sub(CHECKED_CONSTRAINTS_MAX);
        outcomes.drain(..surplus);
        outcome
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<(Constraint, Result<(), BadConstraint>)>> {
        // A panic elsewhere leaves the list whole.
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
