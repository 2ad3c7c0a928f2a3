//! Constraints that have been found good or bad: clients send the same tools with every turn.

use crate::limits::CHECKED_CONSTRAINTS_MAX;
use crate::recent::Recent;
use flint_engine::constrain::{BadConstraint, Constraint};
use std::convert::Infallible;

#[derive(Debug)]
pub struct Checked {
    outcomes: Recent<Constraint, Result<(), BadConstraint>>,
}

impl Default for Checked {
    fn default() -> Checked {
        Checked { outcomes: Recent::new(CHECKED_CONSTRAINTS_MAX) }
    }
}

impl Checked {
    /// What `check` says of the constraint, or has said.
    pub fn pass(
        &self,
        constraint: &Constraint,
        check: impl FnOnce(&Constraint) -> Result<(), BadConstraint>,
    ) -> Result<(), BadConstraint> {
        let Ok(outcome) = self.outcomes.get(constraint.clone(), |new| Ok::<_, Infallible>(check(new)));
        outcome
    }
}
