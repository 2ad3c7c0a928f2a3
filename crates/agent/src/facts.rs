//! What happened, outside of what the model remembers: commands and their exit codes, files and what they became.
//!
//! A conversation that is made short loses words. Facts are not told by the model and are not lost.

use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Fact {
    Ran {
        command: String,
        code: Option<i32>,
    },
    Changed {
        path: String,
        sha256: Option<String>,
    }, // none: it is gone
    Checked {
        command: String,
        passed: bool,
        #[serde(default)]
        took_ms: Option<u64>, // none: written by an earlier version
    },
}

impl fmt::Display for Fact {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fact::Ran { command, code: Some(code) } => write!(out, "ran `{command}`: exit code {code}"),
            Fact::Ran { command, code: None } => write!(out, "ran `{command}`: it was ended"),
            Fact::Changed { path, sha256: Some(sha256) } => {
                write!(out, "changed {path}: sha256 {}", sha256.get(..12).unwrap_or(sha256))
            }
            Fact::Changed { path, sha256: None } => write!(out, "deleted {path}"),
            Fact::Checked { command, passed: true, .. } => write!(out, "checked with `{command}`: passed"),
            Fact::Checked { command, passed: false, .. } => write!(out, "checked with `{command}`: failed"),
        }
    }
}

/// As the model is told them: of several about the same thing the last, in the order in which they came.
pub fn told(facts: &[Fact]) -> String {
    let last = |index: &usize| {
        let same = |other: &Fact| about(other) == about(&facts[*index]);
        !facts[index + 1..].iter().any(same)
    };
    let lines = (0..facts.len()).filter(last).map(|index| format!("- {}\n", facts[index]));
    lines.collect()
}

fn about(fact: &Fact) -> (&str, &str) {
    match fact {
        Fact::Ran { command, .. } => ("ran", command),
        Fact::Changed { path, .. } => ("changed", path),
        Fact::Checked { command, .. } => ("checked", command),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_fact_about_a_thing_counts() {
        let ran = |code| Fact::Ran { command: "make".into(), code: Some(code) };
        let changed = Fact::Changed { path: "a".into(), sha256: Some("0123456789abcdef".into()) };
        let facts = [ran(1), changed, ran(0)];
        assert_eq!(told(&facts), "- changed a: sha256 0123456789ab\n- ran `make`: exit code 0\n");
    }
}
