//! What was steered or queued, and how far each text is.

use crate::limits::SENT_KEPT_MAX;
use flint_agent::talk::{How, State};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    pub number: u64,
    pub text: String,
    pub how: How,
    pub state: Option<State>, // none: the agent has not answered yet
}

#[derive(Debug)]
pub struct SentList {
    list: Vec<Sent>,
    next: u64,
    pub editing: Option<Editing>,
}

/// A waiting text that is in the composer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Editing {
    pub number: u64,
    pub draft: String, // what was in the composer before
}

impl SentList {
    pub fn new(first: u64) -> SentList {
        SentList { list: Vec::new(), next: first.max(1), editing: None }
    }

    /// A number of its own for a text, which is listed from now on.
    pub fn add(&mut self, text: &str, how: How) -> u64 {
        let number = self.next;
        self.next = number.saturating_add(1);
        self.push(Sent { number, text: text.to_owned(), how, state: None });
        number
    }

    fn push(&mut self, sent: Sent) {
        if self.list.len() >= SENT_KEPT_MAX {
            self.list.remove(0);
        }
        self.list.push(sent);
    }

    /// Whether it was being edited and no longer can be.
    pub fn fold(&mut self, number: u64, text: String, how: How, state: State) -> bool {
        self.next = self.next.max(number.saturating_add(1));
        let late = state != State::Waiting && self.editing.as_ref().is_some_and(|now| now.number == number);
        if late {
            self.editing = None;
        }
        if state == State::Withdrawn {
            self.list.retain(|sent| sent.number != number);
            return late;
        }
        match self.list.iter_mut().find(|sent| sent.number == number) {
            Some(sent) => *sent = Sent { number, text, how, state: Some(state) },
            None => self.push(Sent { number, text, how, state: Some(state) }),
        }
        late
    }

    /// What has come to an end is no longer listed: the transcript has it.
    pub fn begin_turn(&mut self) {
        self.list.retain(|sent| !matches!(sent.state, Some(State::Applied | State::Failed { .. })));
    }

    pub fn list(&self) -> &[Sent] {
        &self.list
    }

    /// The last one that can still be changed, before the one that is being changed.
    pub fn to_edit(&self) -> Option<&Sent> {
        let before = self.editing.as_ref().map_or(u64::MAX, |now| now.number);
        let waits = |sent: &&Sent| sent.state == Some(State::Waiting) && sent.number < before;
        self.list.iter().rev().find(waits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_apart() {
        let mut list = SentList::new(0);
        assert_eq!(list.add("a", How::Steered), 1);
        list.fold(7, "resumed".into(), How::Queued, State::Waiting);
        assert_eq!(list.add("b", How::Steered), 8);
        list.fold(1, "a".into(), How::Steered, State::Applied);
        assert_eq!(list.to_edit().map(|sent| sent.number), Some(7));
        list.fold(7, "resumed".into(), How::Queued, State::Withdrawn);
        list.begin_turn();
        assert_eq!(list.list().iter().map(|sent| sent.number).collect::<Vec<_>>(), [8]);
        assert_eq!(list.to_edit(), None, "the agent has not taken it yet");
    }
}
