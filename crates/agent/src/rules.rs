//! What was said yes to once and for more than once.

use std::time::{Duration, SystemTime};

/// Commands that need no further yes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub argv: Vec<Word>, // of the beginning of a command
    pub scope: Scope,
    pub until: Option<SystemTime>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    Exactly(String),
    Any,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Session,
    /// This folder, in later sessions too.
    Project,
}

/// How long a rule for a project holds, unless it is given anew.
pub const PROJECT_RULE: Duration = Duration::from_secs(30 * 24 * 3600);
