//! gpt-oss's output: messages with a channel and perhaps a recipient, told apart by control tokens alone.
//!
//! `<|channel|>analysis<|message|>...<|end|>` is reasoning, `final` and `commentary` are the answer, and a
//! message to `functions.x` is a call of `x`. Nothing in the text of a message is looked at, so it may say
//! anything.

use super::{Event, Piece};
use crate::limits::HARMONY_HEADER_BYTES_MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Header,
    Reasoning,
    Answer,
    Call,
}

#[derive(Debug)]
pub(super) struct HarmonyParser {
    state: State,
    header: String,  // what stands before `<|message|>`, with a space for each control token
    channel: String, // what follows `<|channel|>` in it
    in_channel: bool,
    calls: usize,
}

impl HarmonyParser {
    /// The prompt ends with `<|start|>assistant`, so a header is open.
    pub(super) fn new() -> Self {
        HarmonyParser {
            state: State::Header,
            header: String::new(),
            channel: String::new(),
            in_channel: false,
            calls: 0,
        }
    }

    pub(super) fn push(&mut self, piece: Piece, events: &mut Vec<Event>) {
        match piece {
            Piece::Text(text) => self.text(text, events),
            Piece::Control("<|message|>") if self.state == State::Header => self.open(events),
            Piece::Control("<|channel|>") if self.state == State::Header => {
                self.in_channel = true;
                self.header.push(' ');
            }
            Piece::Control("<|start|>" | "<|end|>" | "<|call|>" | "<|return|>") => self.finish(events),
            Piece::Control(_) => {
                self.in_channel = false;
                self.header.push(' ');
            }
        }
    }

    fn text(&mut self, text: &str, events: &mut Vec<Event>) {
        if text.is_empty() {
            return;
        }
        match self.state {
            State::Header => self.header_text(text),
            State::Reasoning => events.push(Event::Reasoning(text.to_owned())),
            State::Answer => events.push(Event::Text(text.to_owned())),
            State::Call => events.push(Event::CallArguments(text.to_owned())),
        }
    }

    /// A header longer than its bound only loses its end.
    fn header_text(&mut self, text: &str) {
        let room = HARMONY_HEADER_BYTES_MAX.saturating_sub(self.header.len());
        let text = &text[..text.ceil_char_boundary(room)];
        self.header.push_str(text);
        if self.in_channel {
            self.channel.push_str(text);
        }
    }

    /// The header is complete: it says what the message is.
    fn open(&mut self, events: &mut Vec<Event>) {
        let recipient = self.header.split_whitespace().find_map(|word| word.strip_prefix("to="));
        let recipient = recipient.filter(|name| !name.is_empty() && *name != "assistant");
        let channel = self.channel.split_whitespace().next().unwrap_or_default();
        self.state = match (recipient, channel) {
            (Some(recipient), _) => {
                let name = recipient.strip_prefix("functions.").unwrap_or(recipient).to_owned();
                events.push(Event::CallStart { index: self.calls, name });
                self.calls += 1;
                State::Call
            }
            (None, "analysis") => State::Reasoning,
            (None, _) => State::Answer,
        };
    }

    /// The message is over; the next header may begin.
    pub(super) fn finish(&mut self, events: &mut Vec<Event>) {
        if self.state == State::Call {
            events.push(Event::CallEnd);
        }
        self.state = State::Header;
        self.header.clear();
        self.channel.clear();
        self.in_channel = false;
    }
}
