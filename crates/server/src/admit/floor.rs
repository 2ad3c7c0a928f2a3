//! The decision itself: in, waiting, or refused. It knows no clock and nobody waits for it.

use super::limits::{Allowance, Limits};
use super::meter::{Level, Meter};
use super::pool::{Entry, Pool};
use super::{Ask, Class};
use crate::limits::{REQUESTS_A_MINUTE_DEFAULT, TOKENS_A_MINUTE_DEFAULT};
use flint_engine::message::Tenant;
use std::collections::HashMap;

#[derive(Debug)]
pub struct Floor {
    limits: Limits,
    accounts: HashMap<(Tenant, String, Class), Account>,
    pools: HashMap<String, Pool>,
}

/// What one key does with one model in one class.
#[derive(Debug, Clone, Copy, Default)]
struct Account {
    requests: Meter,
    tokens: Meter,
    turns: u32,
}

/// What a key has left of its limits; none where nobody has set one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Standing {
    pub requests: Option<Level>,
    pub tokens: Option<Level>,
}

impl Standing {
    /// As the Codex CLI wants them, which knows no names of limits: a primary one and a secondary one.
    pub fn windows(&self) -> [Option<Level>; 2] {
        match (self.tokens, self.requests) {
            (None, requests) => [requests, None],
            both => both.into(),
        }
    }
}

/// Why a turn is not let in, and when it may be worth to ask again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    pub why: Why,
    pub wait_s: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    Requests { a_minute: u64 },
    Tokens { a_minute: u64 },
    Turns { max: u32 },
    QueueFull { waiting: usize },
}

impl Floor {
    pub fn new(limits: Limits) -> Floor {
        Floor { limits, accounts: HashMap::new(), pools: HashMap::new() }
    }

    /// Lets a turn in or gives it a place in the queue, and charges the tokens that it is expected to use.
    /// Who is refused is charged nothing.
    pub fn enter(&mut self, now_ns: u64, ask: &Ask) -> Result<Entry, Refusal> {
        let allowed = self.allowance(ask);
        let account = self.accounts.entry(ask.account()).or_default();
        let size = self.limits.size();
        let pool = self.pools.entry(ask.model.clone()).or_insert_with(|| Pool::new(size));
        account.check(now_ns, &allowed, ask.tokens, pool.wait_ms())?;
        if pool.is_full(ask.class) {
            let wait_s = seconds(pool.wait_ms() * 1_000_000);
            return Err(Refusal { why: Why::QueueFull { waiting: pool.waiting_of(ask.class) }, wait_s });
        }
        account.turns += 1;
        account.requests.spend(now_ns, allowed.requests_a_minute, 1);
        account.tokens.spend(now_ns, allowed.tokens_a_minute, ask.tokens);
        Ok(pool.enter(ask.class, ask.ahead))
    }

    /// A turn is over, or given up in the queue.
    pub fn leave(&mut self, ask: &Ask, entry: Entry) {
        if let Some(pool) = self.pools.get_mut(&ask.model) {
            pool.leave(entry);
        }
        if let Some(account) = self.accounts.get_mut(&ask.account()) {
            account.turns = account.turns.saturating_sub(1);
        }
    }

    /// What was charged against what was used.
    pub fn settle(&mut self, now_ns: u64, ask: &Ask, charged: u64, used: u64) {
        let a_minute = self.allowance(ask).tokens_a_minute;
        let Some(account) = self.accounts.get_mut(&ask.account()) else { return };
        account.tokens.give_back(a_minute, charged.saturating_sub(used));
        if used > charged {
            account.tokens.spend(now_ns, a_minute, used - charged);
        }
    }

    /// How the key stands with the model and class that it asks for.
    pub fn standing(&self, now_ns: u64, ask: &Ask) -> Standing {
        let allowed = self.allowance(ask);
        let account = self.accounts.get(&ask.account()).copied().unwrap_or_default();
        let level = |meter: Meter, a_minute, nobody_set: u64| {
            (a_minute != nobody_set).then(|| meter.level(now_ns, a_minute))
        };
        Standing {
            requests: level(account.requests, allowed.requests_a_minute, REQUESTS_A_MINUTE_DEFAULT),
            tokens: level(account.tokens, allowed.tokens_a_minute, TOKENS_A_MINUTE_DEFAULT),
        }
    }

    /// A turn has run this long.
    pub fn took(&mut self, model: &str, turn_ms: u64) {
        if let Some(pool) = self.pools.get_mut(model) {
            pool.took(turn_ms);
        }
    }

    pub fn position(&self, ask: &Ask, entry: Entry) -> Option<usize> {
        match entry {
            Entry::Running => None,
            Entry::Waiting(place) => self.pools.get(&ask.model)?.position(&place),
        }
    }

    pub fn running(&self, model: &str) -> usize {
        self.pools.get(model).map_or(0, Pool::running)
    }

    pub fn waiting(&self, model: &str, class: Class) -> usize {
        self.pools.get(model).map_or(0, |pool| pool.waiting_of(class))
    }

    fn allowance(&self, ask: &Ask) -> Allowance {
        self.limits.allowance(&ask.holder.name, &ask.model, ask.class)
    }
}

impl Account {
    fn check(&self, now_ns: u64, allowed: &Allowance, tokens: u64, turn_ms: u64) -> Result<(), Refusal> {
        if self.turns >= allowed.turns {
            let wait_s = seconds(turn_ms * 1_000_000);
            return Err(Refusal { why: Why::Turns { max: allowed.turns }, wait_s });
        }
        let a_minute = allowed.requests_a_minute;
        let wait_ns = self.requests.wait_ns(now_ns, a_minute, 1);
        if wait_ns > 0 {
            return Err(Refusal { why: Why::Requests { a_minute }, wait_s: seconds(wait_ns) });
        }
        let a_minute = allowed.tokens_a_minute;
        let wait_ns = self.tokens.wait_ns(now_ns, a_minute, tokens);
        match wait_ns {
            0 => Ok(()),
            _ => Err(Refusal { why: Why::Tokens { a_minute }, wait_s: seconds(wait_ns) }),
        }
    }
}

/// Whole seconds, at least one: `Retry-After: 0` would be an invitation.
fn seconds(ns: u64) -> u64 {
    ns.div_ceil(1_000_000_000).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Holder;

    fn ask(tenant: u64, tokens: u64) -> Ask {
        Ask {
            holder: Holder { tenant: Tenant(tenant), name: format!("key{tenant}").into() },
            model: "m".to_owned(),
            class: Class::Interactive,
            ahead: false,
            tokens,
        }
    }

    fn why(result: Result<Entry, Refusal>) -> Why {
        result.unwrap_err().why
    }

    #[test]
    fn a_key_has_its_own_limits() {
        let limits = Limits { requests_a_minute: 1, ..Limits::default() };
        let mut floor = Floor::new(limits);
        assert!(floor.enter(0, &ask(1, 10)).is_ok());
        let refused = floor.enter(0, &ask(1, 10)).unwrap_err();
        assert_eq!(refused, Refusal { why: Why::Requests { a_minute: 1 }, wait_s: 60 });
        assert!(floor.enter(0, &ask(2, 10)).is_ok());
    }

    #[test]
    fn a_limit_that_somebody_set_is_shown() {
        let mut floor = Floor::new(Limits { tokens_a_minute: 100, ..Limits::default() });
        floor.enter(0, &ask(1, 40)).unwrap();
        let standing = floor.standing(0, &ask(1, 40));
        assert_eq!((standing.requests, standing.tokens.unwrap().left), (None, 60));
        assert_eq!(floor.standing(0, &ask(2, 40)).tokens.unwrap().left, 100);
    }

    #[test]
    fn tokens_are_settled_with_what_was_used() {
        let limits = Limits { tokens_a_minute: 100, ..Limits::default() };
        let mut floor = Floor::new(limits);
        floor.enter(0, &ask(1, 90)).unwrap();
        assert_eq!(why(floor.enter(0, &ask(1, 20))), Why::Tokens { a_minute: 100 });
        floor.settle(0, &ask(1, 90), 90, 10);
        floor.enter(0, &ask(1, 20)).unwrap();
        // A turn that used more than it was expected to is owed by the next.
        floor.settle(0, &ask(1, 20), 20, 500);
        assert_eq!(floor.enter(0, &ask(1, 1)).unwrap_err().wait_s, 247);
    }

    #[test]
    fn turns_at_once_are_bounded_and_come_back() {
        let limits = Limits { turns: 1, ..Limits::default() };
        let mut floor = Floor::new(limits);
        let entry = floor.enter(0, &ask(1, 1)).unwrap();
        assert_eq!(why(floor.enter(0, &ask(1, 1))), Why::Turns { max: 1 });
        floor.leave(&ask(1, 1), entry);
        assert!(floor.enter(0, &ask(1, 1)).is_ok());
    }

    #[test]
    fn a_full_queue_refuses_and_charges_nothing() {
        let limits = Limits { turns_running: 1, turns_waiting: 1, requests_a_minute: 3, ..Limits::default() };
        let mut floor = Floor::new(limits);
        let first = floor.enter(0, &ask(1, 1)).unwrap();
        let second = floor.enter(0, &ask(1, 1)).unwrap();
        assert_eq!(floor.position(&ask(1, 1), second), Some(1));
        for _ in 0..5 {
            assert_eq!(why(floor.enter(0, &ask(1, 1))), Why::QueueFull { waiting: 1 });
        }
        floor.leave(&ask(1, 1), first);
        assert_eq!(floor.position(&ask(1, 1), second), None);
        assert!(matches!(floor.enter(0, &ask(1, 1)), Ok(Entry::Waiting(_))));
    }
}
