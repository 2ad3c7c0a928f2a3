//! Sequences that rest between turns, with their KV, and finding the one that a turn goes on from.
//!
//! A turn is matched by what its conversation says, item for item, so it does not matter how it came back:
//! over the same socket by `previous_response_id`, over another one by its `prompt_cache_key`, or as a whole
//! history from a client that remembers everything itself.

use crate::items::Items;
use crate::limits::{FORK_TOKENS_MIN, SESSIONS_IDLE_MAX};
use crate::prompt::Conversation;
use flint_engine::message::{Base, SequenceId, Tenant};
use flint_engine::supervise::Generation;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A sequence of the engine that no turn is using, or that one turn has taken.
pub struct Session {
    pub sequence: SequenceId,
    pub tenant: Tenant,
    pub tokens: Vec<u32>,            // all of the sequence
    pub items: usize,                // of the conversation, that the tokens say
    pub history: u64,                // fingerprint of these items
    pub answered: bool,              // they end with the model's own, not with a prompt
    pub key: Option<String>,         // the client's `prompt_cache_key`
    pub warming: Option<Generation>, // what prefills it at the moment
}

impl Session {
    /// One that holds nothing yet.
    pub fn new(sequence: SequenceId, tenant: Tenant, key: Option<&str>) -> Session {
        Session {
            sequence,
            tenant,
            tokens: Vec::new(),
            items: 0,
            history: 0,
            answered: false,
            key: key.map(str::to_owned),
            warming: None,
        }
    }
}

/// The idle sessions of one model, the longest unused first.
#[derive(Default)]
pub struct Sessions {
    idle: Mutex<VecDeque<Session>>,
}

/// Fingerprints of a conversation's beginnings.
#[derive(Debug, Clone)]
pub struct Fingerprints {
    head: u64,            // of what stands before the items
    items: Arc<Vec<u64>>, // of the first, the first two, ..
}

impl Fingerprints {
    pub fn of(conversation: &Conversation) -> Fingerprints {
        let mut hasher = DefaultHasher::new();
        conversation.instructions.hash(&mut hasher);
        conversation.effort.hash(&mut hasher);
        if let Some(raw) = &conversation.raw {
            (&raw.prompt, &raw.suffix).hash(&mut hasher);
        }
        conversation.tools.print().hash(&mut hasher);
        Fingerprints { head: hasher.finish(), items: conversation.items.prints() }
    }

    /// Of the same conversation, when more was said.
    pub fn later(&self, items: &Items) -> Fingerprints {
        Fingerprints { head: self.head, items: items.prints() }
    }

    /// With the first so many items.
    pub fn at(&self, items: usize) -> Option<u64> {
        let last = match items {
            0 => 0,
            _ => *self.items.get(items - 1)?,
        };
        let mut hasher = DefaultHasher::new();
        (self.head, last).hash(&mut hasher);
        Some(hasher.finish())
    }

    pub fn whole(&self) -> u64 {
        self.at(self.items.len()).unwrap_or_default()
    }
}

impl Sessions {
    /// The session that stands at the longest beginning of the conversation. It is the caller's now.
    pub fn take_known(&self, tenant: Tenant, prints: &Fingerprints) -> Option<Session> {
        let mut idle = self.lock();
        let known =
            |session: &Session| session.tenant == tenant && prints.at(session.items) == Some(session.history);
        let (index, _) = idle
            .iter()
            .enumerate()
            .filter(|(_, session)| known(session))
            .max_by_key(|(_, session)| (session.items, session.tokens.len()))?;
        idle.remove(index)
    }

    /// A sequence for `tokens` that nobody knows as a conversation: one that it extends, or shares its beginning
    /// with, or else a new one under the id that is given. Says also what the engine is to build on.
    pub fn take_alike(
        &self,
        tenant: Tenant,
        key: Option<&str>,
        tokens: &[u32],
        new: SequenceId,
    ) -> (Session, Base) {
        let mut idle = self.lock();
        let best = idle
            .iter()
            .enumerate()
            .filter(|(_, session)| session.tenant == tenant)
            .map(|(index, session)| (common(&session.tokens, tokens), index))
            .max();
        let fresh = |sequence| Session::new(sequence, tenant, key);
        let Some((common, index)) = best else { return (fresh(new), Base::New) };
        let session = &idle[index];
        let extends = common == session.tokens.len();
        let same_key = key.is_some() && session.key.as_deref() == key;
        if common >= FORK_TOKENS_MIN
            && (extends || same_key)
            && let Some(session) = idle.remove(index)
        {
            return (session, Base::Rewrite);
        }
        match common >= FORK_TOKENS_MIN {
            true => (fresh(new), Base::Fork { of: idle[index].sequence, at: common as u32 }),
            false => (fresh(new), Base::New),
        }
    }

    /// Does something while nobody can take this sequence. Says whether it rests here and begins with these tokens.
    pub fn while_resting<T>(
        &self,
        sequence: SequenceId,
        beginning: &[u32],
        work: impl FnOnce(bool) -> T,
    ) -> T {
        let idle = self.lock();
        let is_it = |session: &Session| session.sequence == sequence && session.tokens.starts_with(beginning);
        work(idle.iter().any(is_it))
    }

    /// Lets a session rest. Returns those that have rested longest and must go.
    pub fn rest(&self, session: Session) -> Vec<Session> {
        let mut idle = self.lock();
        idle.push_back(session);
        let surplus = idle.len().saturating_sub(SESSIONS_IDLE_MAX);
        idle.drain(..surplus).collect()
    }

    pub fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Session>> {
        // Each change is a push or a removal: a panic elsewhere leaves it whole.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINE: Tenant = Tenant(1);

    fn session(sequence: u64, tenant: Tenant, tokens: &[u32]) -> Session {
        Session { tokens: tokens.to_vec(), ..Session::new(SequenceId(sequence), tenant, None) }
    }

    fn ids(sessions: &[Session]) -> Vec<u64> {
        sessions.iter().map(|session| session.sequence.0).collect()
    }

    #[test]
    fn the_longest_unused_go_first() {
        let sessions = Sessions::default();
        let max = SESSIONS_IDLE_MAX as u64;
        let tokens: Vec<u32> = (0..FORK_TOKENS_MIN as u32).collect();
        assert!(sessions.rest(session(0, MINE, &tokens)).is_empty());
        for sequence in 1..max {
            assert!(sessions.rest(session(sequence, MINE, &[])).is_empty());
        }
        // The first is used once more, and is the latest then.
        let (used, base) = sessions.take_alike(MINE, None, &tokens, SequenceId(max));
        assert_eq!((used.sequence.0, base), (0, Base::Rewrite));
        assert!(sessions.rest(used).is_empty());
        assert_eq!(ids(&sessions.rest(session(max, MINE, &[]))), [1]);
        assert_eq!(ids(&sessions.rest(session(max + 1, MINE, &[]))), [2]);
        assert_eq!(sessions.count(), SESSIONS_IDLE_MAX);
    }

    #[test]
    fn a_sequence_is_shared_with_whoever_it_belongs_to_and_nobody_else() {
        let (sessions, tokens) = (Sessions::default(), (0..100).collect::<Vec<u32>>());
        sessions.rest(session(1, MINE, &tokens));
        let mut other = tokens.clone();
        other[60] = 7;
        let new = SequenceId(9);
        let (fresh, base) = sessions.take_alike(Tenant(2), None, &tokens, new);
        assert_eq!((fresh.sequence, base), (new, Base::New), "of another tenant");
        let (fork, base) = sessions.take_alike(MINE, None, &other, new);
        assert_eq!((fork.sequence, base), (new, Base::Fork { of: SequenceId(1), at: 60 }));
        let (fresh, base) = sessions.take_alike(MINE, None, &tokens[..FORK_TOKENS_MIN - 1], new);
        assert_eq!((fresh.sequence, base), (new, Base::New), "too little to share");
        assert_eq!(sessions.count(), 1, "it is still there");
        // The same client's changed conversation is the same sequence.
        sessions.rest(Session { key: Some("thread".into()), ..session(2, MINE, &other[..80]) });
        let changed = [&other[..70], &[1, 2, 3]].concat();
        let (taken, base) = sessions.take_alike(MINE, Some("thread"), &changed, new);
        assert_eq!((taken.sequence.0, base), (2, Base::Rewrite));
        let (taken, base) = sessions.take_alike(MINE, None, &tokens, new);
        assert_eq!((taken.sequence.0, base, sessions.count()), (1, Base::Rewrite, 0));
    }
}
