//! A call as a JSON object: `{"name": "read", "arguments": {"path": "a.rs"}}`.

use super::Call;
use super::json::{JsonMachine, Step};
use crate::chat::Tool;
use std::ops::Range;

/// The keys that such an object may have. `parameters` is what Llama calls the arguments.
const KEYS: [&str; 5] = ["name", "arguments", "parameters", "id", "type"];

/// Watches an object grow and gives up as soon as it cannot be a call to one of the tools.
#[derive(Debug)]
pub(super) struct ObjectScan {
    machine: JsonMachine,
    string: usize,        // where the last string began, after its quote
    key: &'static str,    // whose value is being read
    value: Option<usize>, // where that value begins
    name: Option<Range<usize>>,
    arguments: Option<Range<usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scan {
    More,
    Done,
    Bad,
}

impl ObjectScan {
    pub(super) fn new() -> Self {
        ObjectScan {
            machine: JsonMachine::new(),
            string: 0,
            key: "",
            value: None,
            name: None,
            arguments: None,
        }
    }

    /// Takes the character at byte `at` of `text`.
    pub(super) fn step(&mut self, text: &str, at: usize, c: char, tools: &[Tool]) -> Scan {
        let end = at + c.len_utf8();
        let begins_value = self.value.is_none() && !self.key.is_empty() && !c.is_whitespace() && c != ':';
        if begins_value {
            self.value = Some(at);
        }
        let was_in_string = self.machine.in_string();
        let step = self.machine.step(c);
        if !was_in_string && self.machine.in_string() {
            self.string = end;
        }
        match step {
            Step::More => Scan::More,
            Step::Done => self.done(),
            Step::Bad => Scan::Bad,
            Step::Key => self.end_key(&text[self.string..at]),
            Step::Value => self.end_value(text, end, tools),
        }
    }

    fn end_key(&mut self, key: &str) -> Scan {
        let Some(known) = KEYS.into_iter().find(|known| *known == key) else { return Scan::Bad };
        self.key = known;
        self.value = None;
        Scan::More
    }

    fn end_value(&mut self, text: &str, end: usize, tools: &[Tool]) -> Scan {
        let Some(start) = self.value else { return Scan::Bad };
        let value = &text[start..end];
        match self.key {
            "name" if self.name.is_none() => {
                self.name = Some(start + 1..end - 1);
                let name = value.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
                let declared = tools.iter().any(|tool| name == Some(&tool.name));
                return if declared { Scan::More } else { Scan::Bad };
            }
            "arguments" | "parameters" if self.arguments.is_none() && value.starts_with('{') => {
                self.arguments = Some(start..end);
            }
            "id" | "type" => {}
            _ => return Scan::Bad,
        }
        Scan::More
    }

    fn done(&self) -> Scan {
        if self.name.is_some() && self.arguments.is_some() { Scan::Done } else { Scan::Bad }
    }

    /// The call, once the object is done.
    pub(super) fn call(&self, text: &str) -> Option<Call> {
        let name = text.get(self.name.clone()?)?.to_owned();
        Some(Call { name, arguments: text.get(self.arguments.clone()?)?.to_owned() })
    }
}
