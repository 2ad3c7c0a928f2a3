//! What needs a yes.
//!
//! A command is judged by its text before it runs; what it does is the sandbox's to hold. So nothing here has to be
//! guessed: what is not known to be harmless, and not allowed by a rule, is asked about or runs confined.

mod book;
mod guard;
mod looks;
mod offer;
mod split;

pub use book::{Book, BookError};
pub use flint_sandbox::Mode;
pub use guard::guarded;
pub use split::{Opaque, Simple, split};

use crate::files::Change;
use crate::rules::{Rule, Rules};
use crate::tools::{Ran, ShellCall};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::SystemTime;

/// When a person is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Before all but what only looks.
    Untrusted,
    /// When the model wants more than the sandbox gives.
    OnRequest,
    /// Likewise, and when the sandbox has refused something.
    OnFailure,
    Never,
}

#[derive(Debug, Clone)]
pub struct Approvals {
    pub policy: Policy,
    pub mode: Mode,
    pub rules: Rules,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// As it was asked for: confined, unless the call says otherwise.
    Run,
    Ask {
        why: String,
        rules: Vec<Rule>, // that would make the question needless, the narrowest first
    },
    Refuse {
        why: String,
    },
}

impl fmt::Display for Policy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Policy::Untrusted => "untrusted",
            Policy::OnRequest => "on-request",
            Policy::OnFailure => "on-failure",
            Policy::Never => "never",
        })
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        match text {
            "untrusted" => Ok(Policy::Untrusted),
            "on-request" => Ok(Policy::OnRequest),
            "on-failure" => Ok(Policy::OnFailure),
            "never" => Ok(Policy::Never),
            other => Err(format!("{other:?} is none of untrusted, on-request, on-failure and never")),
        }
    }
}

impl Approvals {
    pub fn judge(&self, call: &ShellCall) -> Verdict {
        self.judge_at(call, SystemTime::now())
    }

    pub fn judge_at(&self, call: &ShellCall, now: SystemTime) -> Verdict {
        let unconfined = call.unconfined && self.mode != Mode::DangerFullAccess;
        match self.policy {
            Policy::Never if unconfined => Verdict::Refuse { why: NEVER_UNCONFINED.to_owned() },
            Policy::Never => Verdict::Run,
            Policy::OnRequest | Policy::OnFailure if !unconfined => Verdict::Run,
            Policy::OnRequest | Policy::OnFailure | Policy::Untrusted if unconfined => {
                self.unless_allowed(call, true, "it is to run without the sandbox", now)
            }
            Policy::OnRequest | Policy::OnFailure | Policy::Untrusted => {
                self.unless_allowed(call, false, "it may do more than look", now)
            }
        }
    }

    /// Whether a command that has run may run again, without the sandbox this time. None: it need not.
    pub fn judge_again(&self, call: &ShellCall, ran: &Ran) -> Option<Verdict> {
        let confined = !call.unconfined && self.mode != Mode::DangerFullAccess;
        match self.policy {
            Policy::OnFailure if confined && ran.denied => {
                let why = "the sandbox seems to have refused it something; it is to run again without";
                Some(self.unless_allowed(call, true, why, SystemTime::now()))
            }
            Policy::OnFailure | Policy::OnRequest | Policy::Untrusted | Policy::Never => None,
        }
    }

    /// Changes to files beneath a folder, by a patch or an edit.
    pub fn judge_files(&self, changes: &[Change], folder: &Path) -> Verdict {
        if self.mode == Mode::DangerFullAccess && self.policy != Policy::Untrusted {
            return Verdict::Run;
        }
        let guarded = changes.iter().map(|change| &change.name).find(|name| guarded(folder, name));
        let why = match (guarded, self.mode, self.policy) {
            (Some(name), ..) => format!("{name} tells git or agents what to do"),
            (None, Mode::ReadOnly, _) => "files may only be read here".to_owned(),
            (None, _, Policy::Untrusted) => "it changes files".to_owned(),
            (None, _, Policy::OnRequest | Policy::OnFailure | Policy::Never) => return Verdict::Run,
        };
        match self.policy {
            Policy::Never => Verdict::Refuse { why },
            Policy::Untrusted | Policy::OnRequest | Policy::OnFailure => {
                Verdict::Ask { why, rules: Vec::new() }
            }
        }
    }

    /// Git runs programs that a repository's own settings name, even for a look: without a sandbox that is more than one.
    fn only_looks(&self, simple: &Simple) -> bool {
        let git = simple.argv.first().is_some_and(|program| program == "git");
        looks::only_looks(&simple.argv) && !(git && self.mode == Mode::DangerFullAccess)
    }

    /// Runs if each of its commands is harmless or allowed by a rule.
    fn unless_allowed(&self, call: &ShellCall, unconfined: bool, why: &str, now: SystemTime) -> Verdict {
        let commands = match split(&call.command) {
            Ok(commands) => commands,
            Err(opaque) => return Verdict::Ask { why: format!("{why}: {opaque}"), rules: Vec::new() },
        };
        // A rule for commands in the sandbox does not hold where there is none.
        let free = unconfined || self.mode == Mode::DangerFullAccess;
        let allowed = |simple: &Simple| {
            let harmless = if unconfined { is_idle(simple) } else { self.only_looks(simple) };
            harmless || (!simple.expands && self.rules.allow(&simple.argv, free, now))
        };
        let others: Vec<&Simple> = commands.iter().filter(|simple| !allowed(simple)).collect();
        let rules = match others.as_slice() {
            [] => return Verdict::Run,
            [simple] if !simple.expands => offer::offered(&simple.argv, free, now),
            // One rule could not allow it.
            _ => Vec::new(),
        };
        Verdict::Ask { why: why.to_owned(), rules }
    }
}

const NEVER_UNCONFINED: &str = "no command runs without the sandbox here, and nobody is to be asked: do it within the \
     workspace and without the network, or say what the person should run";

/// What does nothing even without a sandbox. A folder that is gone to must be one of the workspace: elsewhere the same words
/// would be another command.
fn is_idle(simple: &Simple) -> bool {
    let words: Vec<&str> = simple.argv.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["cd", folder] => {
            let within = !folder.starts_with(['/', '-', '~']) && !folder.split('/').any(|part| part == "..");
            within && !simple.expands && !folder.is_empty()
        }
        ["pwd" | "true" | "false"] => true,
        ["echo", ..] => !simple.expands,
        _ => false,
    }
}
