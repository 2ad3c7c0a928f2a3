//! Finds tool calls in an answer, and leaves everything else as it is.
//!
//! A call can begin with `<tool_call>` anywhere outside a code fence, or, on a line of its own, as a JSON
//! object, bare or in a fence (models that know the format badly do that). Such a place is a candidate: its
//! text is held and watched until it is a call or cannot be one. In the latter case its first character is
//! text, and the search goes on after it.

use super::candidate::{Candidate, Verdict};
use super::fence::FenceTracker;
use super::object::ObjectScan;
use super::{Call, Event};
use crate::chat::Tool;
use crate::limits::{CALL_BYTES_MAX, PARSE_STEPS_MAX};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct CallFinder {
    tools: Arc<[Tool]>,
    tagged: bool,                 // whether `<tool_call>` begins a call
    held: String,                 // at most a candidate between two pushes
    start: usize,                 // where in `held` the undecided text begins
    watched: usize,               // up to where it has been looked at
    candidate: Option<Candidate>, // begins at `start`
    fence: FenceTracker,
    calls: usize,
    steps: usize, // characters that candidates have seen, over and over
}

impl CallFinder {
    pub(super) fn new(tools: Arc<[Tool]>, tagged: bool) -> Self {
        CallFinder {
            tools,
            tagged,
            held: String::new(),
            start: 0,
            watched: 0,
            candidate: None,
            fence: FenceTracker::new(),
            calls: 0,
            steps: 0,
        }
    }

    pub(super) fn push(&mut self, text: &str, events: &mut Vec<Event>) {
        self.held.push_str(text);
        self.run(events);
        self.held.drain(..self.start);
        self.watched -= self.start;
        self.start = 0;
    }

    /// The answer has ended: a candidate that lacks only its closing is a call, all else is text.
    pub(super) fn finish(&mut self, events: &mut Vec<Event>) {
        while let Some(candidate) = self.candidate.take() {
            match candidate.at_end(&self.held[self.start..], &self.tools) {
                Some(call) => self.accept(call, self.held.len(), events),
                None => self.reject(events),
            }
            self.run(events);
        }
    }

    /// A place where a line might as well begin.
    pub(super) fn start_line(&mut self) {
        if self.candidate.is_none() {
            self.fence.start_line();
        }
    }

    /// Looks at everything that has come and has not been looked at.
    fn run(&mut self, events: &mut Vec<Event>) {
        while let Some(c) = self.held[self.watched..].chars().next() {
            match self.candidate.take() {
                Some(candidate) => self.watch(candidate, c, events),
                None => self.seek(c, events),
            }
        }
        if self.candidate.is_none() {
            self.emit_text(self.watched, events);
        }
    }

    /// Passes a character that belongs to no candidate, unless one begins with it.
    fn seek(&mut self, c: char, events: &mut Vec<Event>) {
        match self.begins(c) {
            Some(candidate) => {
                self.emit_text(self.watched, events);
                self.candidate = Some(candidate);
            }
            None => {
                self.fence.step(c);
                self.watched += c.len_utf8();
            }
        }
    }

    fn begins(&self, c: char) -> Option<Candidate> {
        let line_start = self.fence.at_line_start();
        match c {
            _ if self.fence.inside() || self.tools.is_empty() || self.steps > PARSE_STEPS_MAX => None,
            '<' if self.tagged => Some(Candidate::Open { matched: 0 }),
            '{' if line_start => Some(Candidate::bare(ObjectScan::new())),
            '`' if line_start => Some(Candidate::FenceOpen),
            _ => None,
        }
    }

    fn watch(&mut self, candidate: Candidate, c: char, events: &mut Vec<Event>) {
        self.steps += 1;
        self.watched += c.len_utf8();
        let seen = &self.held[self.start..self.watched];
        match candidate.watch(seen, c, &self.tools) {
            Verdict::More(candidate) if seen.len() < CALL_BYTES_MAX => self.candidate = Some(candidate),
            Verdict::Call { call, used } => self.accept(call, self.start + used, events),
            Verdict::More(_) | Verdict::Text => self.reject(events),
        }
    }

    /// The text up to `end` was a call.
    fn accept(&mut self, call: Call, end: usize, events: &mut Vec<Event>) {
        events.push(Event::CallStart { index: self.calls, name: call.name });
        events.push(Event::CallArguments(call.arguments));
        events.push(Event::CallEnd);
        self.calls += 1;
        self.start = end;
        self.watched = end;
        self.fence.start_line();
    }

    /// The candidate was none: its first character is text.
    fn reject(&mut self, events: &mut Vec<Event>) {
        let Some(c) = self.held[self.start..].chars().next() else { return };
        self.fence.step(c);
        self.emit_text(self.start + c.len_utf8(), events);
    }

    /// The text up to `end` is text, and the search goes on there.
    fn emit_text(&mut self, end: usize, events: &mut Vec<Event>) {
        let text = &self.held[self.start..end];
        match events.last_mut() {
            _ if text.is_empty() => {}
            Some(Event::Text(last)) => last.push_str(text),
            _ => events.push(Event::Text(text.to_owned())),
        }
        self.start = end;
        self.watched = end;
    }
}
