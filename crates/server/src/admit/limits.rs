//! What the operator allows, as `config.toml` says it.

use super::Class;
use super::pool::Size;
use crate::limits::{
    REQUESTS_A_MINUTE_DEFAULT, TOKENS_A_MINUTE_DEFAULT, TURNS_A_KEY_DEFAULT, TURNS_RUNNING_DEFAULT,
    TURNS_WAITING_DEFAULT,
};
use serde::Deserialize;

/// `[limits]`: of each model, and of each key, model and class.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    pub turns_running: usize, // of a model
    pub turns_waiting: usize, // of a model, in each class
    pub turns: u32,           // of a key, those that wait counted
    pub requests_a_minute: u64,
    pub tokens_a_minute: u64,
    #[serde(rename = "rule")]
    pub rules: Vec<Rule>,
}

/// `[[limits.rule]]`: other numbers for some. Where several are for the same, the last one counts.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rule {
    pub key: Option<String>, // its name
    pub model: Option<String>,
    pub class: Option<Class>,
    pub turns: Option<u32>,
    pub requests_a_minute: Option<u64>,
    pub tokens_a_minute: Option<u64>,
}

/// What one key may do with one model in one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    pub turns: u32,
    pub requests_a_minute: u64,
    pub tokens_a_minute: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            turns_running: TURNS_RUNNING_DEFAULT,
            turns_waiting: TURNS_WAITING_DEFAULT,
            turns: TURNS_A_KEY_DEFAULT,
            requests_a_minute: REQUESTS_A_MINUTE_DEFAULT,
            tokens_a_minute: TOKENS_A_MINUTE_DEFAULT,
            rules: Vec::new(),
        }
    }
}

impl Limits {
    pub fn size(&self) -> Size {
        // Without a slot nothing would ever run.
        Size { running: self.turns_running.max(1), waiting: self.turns_waiting }
    }

    pub fn allowance(&self, key: &str, model: &str, class: Class) -> Allowance {
        let Limits { turns, requests_a_minute, tokens_a_minute, .. } = *self;
        let general = Allowance { turns, requests_a_minute, tokens_a_minute };
        let applies = |rule: &&Rule| {
            rule.key.as_deref().is_none_or(|own| own == key)
                && rule.model.as_deref().is_none_or(|own| own == model)
                && rule.class.is_none_or(|own| own == class)
        };
        self.rules.iter().filter(applies).fold(general, |so_far, rule| Allowance {
            turns: rule.turns.unwrap_or(so_far.turns),
            requests_a_minute: rule.requests_a_minute.unwrap_or(so_far.requests_a_minute),
            tokens_a_minute: rule.tokens_a_minute.unwrap_or(so_far.tokens_a_minute),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rule_that_applies_counts() {
        let rule = |key: Option<&str>, class, turns, requests| Rule {
            key: key.map(str::to_owned),
            class,
            turns,
            requests_a_minute: requests,
            ..Rule::default()
        };
        let limits = Limits {
            turns: 9,
            rules: vec![
                rule(None, Some(Class::Background), Some(2), Some(5)),
                rule(Some("ci"), None, Some(1), None),
            ],
            ..Limits::default()
        };
        let turns = |key, class| limits.allowance(key, "m", class).turns;
        assert_eq!(turns("ann", Class::Interactive), 9);
        assert_eq!(turns("ann", Class::Background), 2);
        assert_eq!(turns("ci", Class::Background), 1);
        assert_eq!(limits.allowance("ci", "m", Class::Background).requests_a_minute, 5);
    }
}
