//! The model's tokens to what they say: text, reasoning, tool calls.

use crate::model::Model;
use flint_engine::message::TokenLogprob;
use flint_text::chat::Tool;
use flint_text::parse::{Event as Parsed, Format, Options, Parser, Piece};
use flint_text::{Detokenizer, StopStrings};
use serde_json::{Value, json};
use std::sync::Arc;

/// A step of the answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    Text { text: String, logprobs: Vec<Value> },
    Reasoning(String),
    CallStart { name: String },
    CallArguments(String),
    CallEnd,
}

/// One sampled token with what the engine told about it.
#[derive(Debug)]
pub struct Sampled<'a> {
    pub token: u32,
    pub logprob: Option<f32>,
    pub top: &'a [TokenLogprob],
}

/// The state of one answer.
pub struct Decoder {
    model: Arc<Model>,
    detokenizer: Detokenizer,
    parser: Option<Parser>, // none: everything is text
    stop: StopStrings,
    parsed: Vec<Parsed>,
    logprobs: Vec<Value>, // of tokens whose text has not come out yet
    stopped: bool,        // at a stop string
    reasoning_tokens: u32,
    reasoning: bool, // the last that came out was reasoning
}

impl Decoder {
    /// For an answer in the model's own format, which may call these tools.
    pub fn chat(model: Arc<Model>, tools: Arc<[Tool]>, stop: &[String], reasoning_open: bool) -> Decoder {
        let format = model.facts.format;
        Decoder::new(model, Some(Parser::new(Options { format, tools, reasoning_open })), stop)
    }

    /// For plain text.
    pub fn plain(model: Arc<Model>, stop: &[String]) -> Decoder {
        Decoder::new(model, None, stop)
    }

    fn new(model: Arc<Model>, parser: Option<Parser>, stop: &[String]) -> Decoder {
        Decoder {
            model,
            detokenizer: Detokenizer::new(),
            parser,
            stop: StopStrings::new(stop),
            parsed: Vec::new(),
            logprobs: Vec::new(),
            stopped: false,
            reasoning_tokens: 0,
            reasoning: false,
        }
    }

    /// Whether a stop string has come: what follows is of no use.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    pub fn reasoning_tokens(&self) -> u32 {
        self.reasoning_tokens
    }

    pub fn push(&mut self, sampled: &Sampled<'_>, deltas: &mut Vec<Delta>) {
        if self.stopped || self.model.text.stop_tokens.contains(&sampled.token) {
            return;
        }
        if let Some(logprob) = sampled.logprob {
            self.logprobs.push(logprob_json(&self.model, sampled.token, logprob, sampled.top));
        }
        self.text_of(sampled.token);
        self.reasoning_tokens += u32::from(self.reasoning);
        self.drain(deltas);
    }

    /// The answer has ended: what was held back comes out.
    pub fn finish(&mut self, deltas: &mut Vec<Delta>) {
        if self.stopped {
            return;
        }
        let rest = self.detokenizer.finish().to_owned();
        self.feed(Piece::Text(&rest));
        if let Some(parser) = &mut self.parser {
            parser.finish(&mut self.parsed);
        }
        self.drain(deltas);
        let held = if self.stopped { String::new() } else { self.stop.finish() };
        self.emit_text(held, deltas);
    }

    fn text_of(&mut self, token: u32) {
        let model = self.model.clone();
        let tokenizer = &model.text.tokenizer;
        let text = self.detokenizer.push(tokenizer, token).to_owned();
        self.feed(Piece::Text(&text));
        if tokenizer.is_control(token) {
            let literal = String::from_utf8_lossy(tokenizer.token_bytes(token)).into_owned();
            self.control(&literal);
        }
    }

    /// Control tokens that are markers of the format are part of what the parser reads.
    fn control(&mut self, literal: &str) {
        match self.model.facts.format {
            Format::Harmony => {
                // It begins or ends a message, as what stands before it in a head does.
                self.logprobs.clear();
                self.feed(Piece::Control(literal));
            }
            Format::Llama3 if literal == "<|python_tag|>" => self.feed(Piece::Control(literal)),
            Format::Llama3 | Format::Tagged => self.feed(Piece::Text(literal)),
        }
    }

    fn feed(&mut self, piece: Piece<'_>) {
        match (&mut self.parser, piece) {
            (_, Piece::Text("")) => {}
            (Some(parser), piece) => parser.push(piece, &mut self.parsed),
            (None, Piece::Text(text) | Piece::Control(text)) => {
                self.parsed.push(Parsed::Text(text.to_owned()))
            }
        }
    }

    fn drain(&mut self, deltas: &mut Vec<Delta>) {
        for event in std::mem::take(&mut self.parsed) {
            self.words_only(&event);
            self.reasoning = matches!(event, Parsed::Reasoning(_));
            match event {
                Parsed::Text(text) => {
                    let (text, stopped) = self.stop.push(&text);
                    self.emit_text(text, deltas);
                    self.stopped |= stopped;
                    if stopped {
                        return;
                    }
                }
                Parsed::Reasoning(text) => deltas.push(Delta::Reasoning(text)),
                Parsed::CallStart { name, .. } => {
                    let held = self.stop.finish();
                    self.emit_text(held, deltas);
                    deltas.push(Delta::CallStart { name });
                }
                Parsed::CallArguments(text) => deltas.push(Delta::CallArguments(text)),
                Parsed::CallEnd => deltas.push(Delta::CallEnd),
            }
        }
    }

    /// Log-probabilities are told of words. What led from thoughts to them was marks, but for the last token.
    fn words_only(&mut self, event: &Parsed) {
        let words = match event {
            Parsed::Text(_) if self.reasoning => 1,
            Parsed::Text(_) => return,
            Parsed::Reasoning(_) | Parsed::CallStart { .. } | Parsed::CallArguments(_) | Parsed::CallEnd => 0,
        };
        self.logprobs.drain(..self.logprobs.len().saturating_sub(words));
    }

    fn emit_text(&mut self, text: String, deltas: &mut Vec<Delta>) {
        if !text.is_empty() {
            deltas.push(Delta::Text { text, logprobs: std::mem::take(&mut self.logprobs) });
        }
    }
}

fn logprob_json(model: &Model, token: u32, logprob: f32, top: &[TokenLogprob]) -> Value {
    let entry = |token: u32, logprob: f32| {
        let bytes = model.text.tokenizer.token_bytes(token);
        json!({"token": String::from_utf8_lossy(bytes), "bytes": bytes, "logprob": logprob})
    };
    let mut json = entry(token, logprob);
    json["top_logprobs"] = top.iter().map(|top| entry(top.token, top.logprob)).collect();
    json
}
