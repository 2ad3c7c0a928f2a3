//! What a model's output means, while it is being written: answer, reasoning, tool calls.
//!
//! Two families of formats exist. In gpt-oss's harmony, control tokens mark everything (`harmony`). In the
//! others, markers are text among text, and code may contain the same text: a parser must tell `<tool_call>`
//! that begins a call from one in a string, a code fence or a sentence. Here it waits: text that could be a
//! call is held back until it is one, whole and valid and naming a declared tool, or until it cannot become
//! one, and then it is text, to the letter. What the events say together does not depend on how the output
//! was cut into pieces.
//!
//! The crates `tool-parser` and `reasoning-parser` were looked at first. They copy their whole buffer at
//! every piece, take closing tags out of plain text, lose text between calls, and bring an async runtime and
//! a parser of Python; `openai-harmony` fetches its token ranks from the network. None keeps the guarantees
//! above.

mod calls;
mod candidate;
mod fence;
mod harmony;
mod json;
mod object;
mod think;
mod xml;

use crate::chat::Tool;
use calls::CallFinder;
use harmony::HarmonyParser;
use std::sync::Arc;
use think::{Reasoned, ThinkSplitter};

/// A step of the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// More of the answer.
    Text(String),
    /// More of the reasoning.
    Reasoning(String),
    /// A call begins: the `index`-th of this output. Outside harmony, `name` is that of a declared tool.
    CallStart { index: usize, name: String },
    /// More of the call's arguments: JSON text.
    CallArguments(String),
    /// The call's arguments are complete.
    CallEnd,
}

/// A piece of output: text from the detokenizer, or one control token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    Text(&'a str),
    Control(&'a str),
}

/// How a model writes tool calls and reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Calls in `<tool_call>`, as JSON (Hermes, Qwen2.5, Qwen3) or as XML (Qwen3-Coder).
    Tagged,
    /// Calls as bare JSON objects, after `<|python_tag|>` or not (Llama 3).
    Llama3,
    /// Channels and recipients (gpt-oss).
    Harmony,
}

/// What is known before the first token of an answer.
#[derive(Debug, Clone)]
pub struct Options {
    pub format: Format,
    pub tools: Arc<[Tool]>,   // calls to others are text
    pub reasoning_open: bool, // the prompt ends inside `<think>`
}

/// The parser of one answer.
#[derive(Debug)]
pub struct Parser {
    inner: Inner,
}

#[derive(Debug)]
enum Inner {
    Marked { think: ThinkSplitter, calls: Box<CallFinder> },
    Harmony(HarmonyParser),
}

impl Parser {
    pub fn new(options: Options) -> Self {
        let inner = match options.format {
            Format::Harmony => Inner::Harmony(HarmonyParser::new()),
            Format::Tagged | Format::Llama3 => Inner::Marked {
                think: ThinkSplitter::new(options.reasoning_open),
                calls: Box::new(CallFinder::new(options.tools, options.format == Format::Tagged)),
            },
        };
        Parser { inner }
    }

    /// Takes the next piece and appends what it tells.
    pub fn push(&mut self, piece: Piece, events: &mut Vec<Event>) {
        match (&mut self.inner, piece) {
            (Inner::Harmony(parser), piece) => parser.push(piece, events),
            (Inner::Marked { think, calls }, Piece::Text(text)) => {
                think.push(text, &mut |part| route(part, calls, events));
            }
            // The only control token inside an answer of these formats is Llama's `<|python_tag|>`: what
            // follows it is as good as a new line.
            (Inner::Marked { calls, .. }, Piece::Control(_)) => calls.start_line(),
        }
    }

    /// The output has ended: what was held back is decided.
    pub fn finish(&mut self, events: &mut Vec<Event>) {
        match &mut self.inner {
            Inner::Harmony(parser) => parser.finish(events),
            Inner::Marked { think, calls } => {
                think.finish(&mut |part| route(part, calls, events));
                calls.finish(events);
            }
        }
    }
}

fn route(part: Reasoned, calls: &mut CallFinder, events: &mut Vec<Event>) {
    match part {
        Reasoned::Reasoning("") => {}
        Reasoned::Reasoning(text) => events.push(Event::Reasoning(text.to_owned())),
        Reasoned::Answer(text) => calls.push(text, events),
    }
}

/// A call that is complete and valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub name: String,
    pub arguments: String, // JSON object
}

/// The calls in a finished text, for a model that was told of `tools`: in tags, fenced or bare. The rest is
/// text.
pub fn calls_in(text: &str, tools: &[Tool]) -> (String, Vec<Call>) {
    let mut finder = CallFinder::new(tools.into(), true);
    let mut events = Vec::new();
    finder.push(text, &mut events);
    finder.finish(&mut events);
    collect(events)
}

fn collect(events: Vec<Event>) -> (String, Vec<Call>) {
    let (mut text, mut calls) = (String::new(), Vec::<Call>::new());
    for event in events {
        match (event, calls.last_mut()) {
            (Event::Text(part), _) => text.push_str(&part),
            (Event::CallStart { name, .. }, _) => calls.push(Call { name, arguments: String::new() }),
            (Event::CallArguments(part), Some(call)) => call.arguments.push_str(&part),
            (Event::CallArguments(_) | Event::CallEnd | Event::Reasoning(_), _) => {}
        }
    }
    (text, calls)
}
