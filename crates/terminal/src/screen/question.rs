//! What needs a yes.

use crate::limits::{QUESTION_PAUSE, QUESTIONS_MAX};
use flint_agent::talk::{Decision, Order, Question};
use std::collections::VecDeque;
use std::time::Duration;

/// The questions that wait, the first of which is shown.
#[derive(Debug, Default)]
pub struct Panel {
    questions: VecDeque<Question>,
    since: Duration, // that the first one has been shown, or a key was meant for something else
    pub offered: Option<usize>, // rules of it that are on the screen; none: not even the question is
    pub reason: bool, // the composer holds why not
    pub scrolled: usize, // rows of the diff or command above the panel
}

impl Panel {
    /// Whether it could still be taken.
    pub fn ask(&mut self, question: Question, now: Duration) -> bool {
        if self.questions.is_empty() {
            self.next(now);
        }
        let room = self.questions.len() < QUESTIONS_MAX;
        if room {
            self.questions.push_back(question);
        }
        room
    }

    pub fn question(&self) -> Option<&Question> {
        self.questions.front()
    }

    pub fn waiting(&self) -> usize {
        self.questions.len()
    }

    /// Whether a key would be an answer: nobody who is typing is asked in the middle of a word.
    pub fn listens(&self, now: Duration) -> bool {
        !self.questions.is_empty()
            && self.offered.is_some()
            && now.saturating_sub(self.since) >= QUESTION_PAUSE
    }

    /// A key went elsewhere.
    pub fn heard(&mut self, now: Duration) {
        self.since = now;
    }

    pub fn decide(&mut self, decision: Decision, now: Duration) -> Option<Order> {
        let question = self.questions.pop_front()?;
        self.next(now);
        Some(Order::Decide { item: question.item, decision })
    }

    /// `Always`, by the number of the rule.
    pub fn decide_always(&mut self, rule: usize, now: Duration) -> Option<Order> {
        let offered = self.offered.unwrap_or(0);
        let rule = self.question()?.rules.iter().take(offered).nth(rule)?.clone();
        self.decide(Decision::Always(rule), now)
    }

    /// It was decided elsewhere, or the agent that asked has ended.
    pub fn settle(&mut self, item: &str, now: Duration) {
        let of_agent = |other: &str| other.strip_prefix(item).is_some_and(|rest| rest.starts_with('/'));
        self.keep(now, |question| question.item != item && !of_agent(&question.item));
    }

    /// Only other agents still wait for an answer.
    pub fn end_turn(&mut self, now: Duration) {
        self.keep(now, |question| question.who.is_some());
    }

    fn keep(&mut self, now: Duration, kept: impl Fn(&Question) -> bool) {
        let first = self.question().is_some_and(|question| !kept(question));
        self.questions.retain(kept);
        if first {
            self.next(now);
        }
    }

    /// The next question must be read too.
    fn next(&mut self, now: Duration) {
        self.since = now;
        self.offered = None;
        self.reason = false;
        self.scrolled = 0;
    }
}
