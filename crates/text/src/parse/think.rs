//! Reasoning in `<think>` ... `</think>`, which can only stand before the answer.

use crate::limits::PARSE_SPACE_BYTES_MAX;

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";
const CLOSE_LINE: &str = "\n</think>"; // a tag on a line of its own: the line end before it belongs to it

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reasoned<'a> {
    Reasoning(&'a str),
    Answer(&'a str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Start,         // nothing but white space yet
    ReasoningLine, // just opened: the line end after the tag is not part of it
    Reasoning,
    AnswerLines, // just closed: nor are the line ends here
    Answer,
}

#[derive(Debug)]
pub(super) struct ThinkSplitter {
    state: State,
    held: String, // what may be part of a tag: white space and less than a tag
}

impl ThinkSplitter {
    pub(super) fn new(open: bool) -> Self {
        ThinkSplitter { state: if open { State::ReasoningLine } else { State::Start }, held: String::new() }
    }

    pub(super) fn push(&mut self, text: &str, out: &mut dyn FnMut(Reasoned)) {
        if self.state == State::Answer {
            return out(Reasoned::Answer(text));
        }
        self.held.push_str(text);
        while self.advance(out) {}
    }

    pub(super) fn finish(&mut self, out: &mut dyn FnMut(Reasoned)) {
        match self.state {
            State::Start | State::Answer => out(Reasoned::Answer(&self.held)),
            State::ReasoningLine | State::Reasoning => out(Reasoned::Reasoning(&self.held)),
            State::AnswerLines => {}
        }
        self.held.clear();
    }

    /// One step; false when more text is needed.
    fn advance(&mut self, out: &mut dyn FnMut(Reasoned)) -> bool {
        match self.state {
            State::Start => self.advance_start(),
            State::ReasoningLine => self.skip_line_ends(1, State::Reasoning),
            State::Reasoning => self.advance_reasoning(out),
            State::AnswerLines => self.skip_line_ends(usize::MAX, State::Answer),
            State::Answer => {
                out(Reasoned::Answer(&std::mem::take(&mut self.held)));
                false
            }
        }
    }

    fn advance_start(&mut self) -> bool {
        let text = self.held.trim_start();
        let spaces = self.held.len() - text.len();
        if spaces > PARSE_SPACE_BYTES_MAX || !(OPEN.starts_with(text) || text.starts_with(OPEN)) {
            self.state = State::Answer;
            return true;
        }
        let Some(after) = text.strip_prefix(OPEN) else { return false };
        self.held = after.to_owned();
        self.state = State::ReasoningLine;
        true
    }

    fn skip_line_ends(&mut self, most: usize, next: State) -> bool {
        let Some(first) = self.held.chars().next() else { return false };
        if first == '\n' {
            self.held.remove(0);
        }
        if first != '\n' || most == 1 {
            self.state = next;
        }
        true
    }

    fn advance_reasoning(&mut self, out: &mut dyn FnMut(Reasoned)) -> bool {
        if let Some(at) = self.held.find(CLOSE) {
            let thought = &self.held[..at];
            out(Reasoned::Reasoning(thought.strip_suffix('\n').unwrap_or(thought)));
            self.held.drain(..at + CLOSE.len());
            self.state = State::AnswerLines;
            return true;
        }
        let keep = partial_suffix(&self.held, CLOSE).max(partial_suffix(&self.held, CLOSE_LINE));
        let decided = self.held.len() - keep;
        out(Reasoned::Reasoning(&self.held[..decided]));
        self.held.drain(..decided);
        false
    }
}

/// How many bytes at the end of `text` could be the beginning of `marker`.
fn partial_suffix(text: &str, marker: &str) -> usize {
    let longest = marker.len().saturating_sub(1).min(text.len());
    (1..=longest).rev().find(|&len| text.as_bytes().ends_with(&marker.as_bytes()[..len])).unwrap_or(0)
}
