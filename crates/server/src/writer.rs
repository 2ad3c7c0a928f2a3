//! Deltas of an answer to the items and events of a response.

use crate::decode::Delta;
use crate::ids::item_id;
use crate::log::Frame;
use crate::toolbook::Toolbook;
use bytes::Bytes;
use flint_wire::output::{self, Callee};
use flint_wire::{Event, Incomplete, Item, Numbered, Response, Status};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

/// Room for an event when it is written; one that shows the whole response takes more.
const EVENT_BYTES_USUAL: usize = 512;

/// A response as it grows. What it says goes to `frames`, in order.
pub struct Writer {
    pub response: Response,
    tools: Toolbook,
    number: u64, // of the next event
    open: Option<Open>,
    items: Vec<Arc<Item>>, // of the response's output, as a turn that follows takes them
    gathered: usize,       // of that output, that `items` has
    frames: Vec<Frame>,
    compacting: Option<String>, // the answer becomes a compaction item
    dropped: bool,              // an item that had been begun
    token_at: Option<Instant>,  // when the token was known that events are made of
}

/// The item that is being written.
enum Open {
    Message { id: String, text: String, logprobs: Vec<Value> },
    Reasoning { id: String, text: String },
    Call { id: String, callee: Callee, arguments: String },
}

impl Writer {
    pub fn new(response: Response, tools: Toolbook) -> Writer {
        Writer {
            response,
            tools,
            number: 0,
            open: None,
            items: Vec::new(),
            gathered: 0,
            frames: Vec::new(),
            compacting: None,
            dropped: false,
            token_at: None,
        }
    }

    /// The answer is a summary of the conversation, not a message in it.
    pub fn compact(&mut self) {
        self.compacting = Some(String::new());
    }

    /// Events from now on are made of a token that was known then, or of none.
    pub fn token_at(&mut self, at: Option<Instant>) {
        self.token_at = at;
    }

    /// Events that have not been taken yet.
    pub fn take(&mut self) -> Vec<Frame> {
        std::mem::take(&mut self.frames)
    }

    /// Forgets what has not been taken, which was told before, and goes on from this number.
    pub fn resume_at(&mut self, number: u64) {
        self.frames.clear();
        self.number = number;
    }

    /// The number of the next event.
    pub fn next_number(&self) -> u64 {
        self.number
    }

    pub fn created(&mut self) {
        self.tell_whole(|response| Event::Created { response });
    }

    pub fn queued(&mut self) {
        self.tell_whole(|response| Event::Queued { response });
    }

    pub fn in_progress(&mut self) {
        self.response.status = Status::InProgress;
        self.tell_whole(|response| Event::InProgress { response });
    }

    pub fn delta(&mut self, delta: Delta) {
        match (delta, &mut self.compacting) {
            (Delta::Text { text, .. }, Some(summary)) => summary.push_str(&text),
            (_, Some(_)) => {}
            (Delta::Text { text, logprobs }, None) => self.text(text, logprobs),
            (Delta::Reasoning(text), None) => self.reasoning(text),
            (Delta::CallStart { name }, None) => self.call_start(&name),
            (Delta::CallArguments(text), None) => self.call_arguments(text),
            (Delta::CallEnd, None) => self.close("completed"),
        }
    }

    fn text(&mut self, delta: String, delta_logprobs: Vec<Value>) {
        if !matches!(self.open, Some(Open::Message { .. })) {
            self.close("completed");
            // Blank lines between calls are nothing to show.
            if delta.trim().is_empty() && !self.response.output.is_empty() {
                return;
            }
            let id = self.new_item("msg");
            let item = output::message(&id, "in_progress", Vec::new());
            let output_index = self.index();
            self.tell(Event::ItemAdded { output_index, item });
            let part = output::text_part("", &[]);
            self.tell(Event::PartAdded { item_id: id.clone(), output_index, content_index: 0, part });
            self.open = Some(Open::Message { id, text: String::new(), logprobs: Vec::new() });
        }
        let Some(Open::Message { id, text, logprobs }) = &mut self.open else { return };
        text.push_str(&delta);
        logprobs.extend_from_slice(&delta_logprobs);
        let (item_id, output_index) = (id.clone(), self.index());
        self.tell(Event::TextDelta {
            item_id,
            output_index,
            content_index: 0,
            delta,
            logprobs: delta_logprobs,
        });
    }

    fn reasoning(&mut self, delta: String) {
        if !matches!(self.open, Some(Open::Reasoning { .. })) {
            self.close("completed");
            let id = self.new_item("rs");
            let item = output::reasoning(&id, "in_progress", "");
            self.tell(Event::ItemAdded { output_index: self.index(), item });
            self.open = Some(Open::Reasoning { id, text: String::new() });
        }
        let Some(Open::Reasoning { id, text }) = &mut self.open else { return };
        text.push_str(&delta);
        let (item_id, output_index) = (id.clone(), self.index());
        self.tell(Event::ReasoningDelta { item_id, output_index, content_index: 0, delta });
    }

    fn call_start(&mut self, shown: &str) {
        self.close("completed");
        let call_id = item_id("call", &self.response.id, self.index());
        let callee = self.tools.callee(shown, call_id);
        let id = self.new_item(if callee.custom { "ctc" } else { "fc" });
        let item = output::call(&id, "in_progress", &callee, "");
        self.tell(Event::ItemAdded { output_index: self.index(), item });
        self.open = Some(Open::Call { id, callee, arguments: String::new() });
    }

    fn call_arguments(&mut self, delta: String) {
        let output_index = self.index();
        let Some(Open::Call { id, callee, arguments }) = &mut self.open else { return };
        arguments.push_str(&delta);
        // A custom tool's input is inside a JSON string: it can be told once it is whole.
        if !callee.custom {
            let item_id = id.clone();
            self.tell(Event::ArgumentsDelta { item_id, output_index, delta });
        }
    }

    /// Ends the item that is open.
    fn close(&mut self, status: &str) {
        let output_index = self.index();
        let item = match self.open.take() {
            None => return,
            Some(Open::Message { id, text, logprobs }) => {
                let part = output::text_part(&text, &logprobs);
                let (item_id, content_index) = (id.clone(), 0);
                self.tell(Event::TextDone {
                    item_id: id.clone(),
                    output_index,
                    content_index,
                    text,
                    logprobs,
                });
                self.tell(Event::PartDone { item_id, output_index, content_index, part: part.clone() });
                output::message(&id, status, vec![part])
            }
            Some(Open::Reasoning { id, text }) => {
                let item = output::reasoning(&id, status, &text);
                self.tell(Event::ReasoningDone { item_id: id, output_index, content_index: 0, text });
                item
            }
            Some(Open::Call { id, callee, arguments }) => self.close_call(id, &callee, arguments, status),
        };
        self.response.output.push(item.clone());
        self.tell(Event::ItemDone { output_index, item });
    }

    fn close_call(&mut self, id: String, callee: &Callee, arguments: String, status: &str) -> Value {
        let output_index = self.index();
        if callee.custom {
            let input = custom_input(&arguments);
            let item = output::call(&id, status, callee, &input);
            self.tell(Event::InputDelta { item_id: id.clone(), output_index, delta: input.clone() });
            self.tell(Event::InputDone { item_id: id, output_index, input });
            return item;
        }
        let item = output::call(&id, status, callee, &arguments);
        let name = callee.name.clone();
        self.tell(Event::ArgumentsDone { item_id: id, output_index, name, arguments });
        item
    }

    /// The model has ended, or is not let go on; what is open counts as far as it came.
    pub fn end(&mut self, status: Status, incomplete: Option<Incomplete>) {
        if let Some(summary) = self.compacting.take() {
            let id = self.new_item("cmp");
            let item = output::compaction(&id, &summary);
            self.response.output.push(item.clone());
            self.tell(Event::ItemDone { output_index: self.index() - 1, item });
        }
        // Half a call cannot be run: better none.
        if status != Status::Completed && matches!(self.open, Some(Open::Call { .. })) {
            self.open = None;
            self.dropped = true;
        }
        self.close(if status == Status::Completed { "completed" } else { "incomplete" });
        self.last(status, incomplete);
    }

    /// Ends at once; what is open is forgotten.
    pub fn interrupt(&mut self) {
        let response_id = self.response.id.clone();
        self.tell(Event::InterruptAccepted { response_id: response_id.clone() });
        if let Some(open) = self.open.take() {
            self.dropped = true;
            let (item_id, output_index) = (open.id().to_owned(), self.index());
            self.tell(Event::ItemInterrupted { response_id, item_id, output_index });
        }
        self.last(Status::Incomplete, Some(Incomplete::Interrupted));
    }

    pub fn fail(&mut self, code: &str, message: String) {
        self.open = None;
        self.response.failure = Some(flint_wire::Failure { code: code.to_owned(), message });
        self.last(Status::Failed, None);
    }

    fn last(&mut self, status: Status, incomplete: Option<Incomplete>) {
        self.response.status = status;
        self.response.incomplete = incomplete;
        self.tell_whole(|response| match status {
            Status::Completed => Event::Completed { response },
            Status::Failed => Event::Failed { response },
            Status::Cancelled => Event::Cancelled { response },
            Status::Incomplete | Status::Queued | Status::InProgress => Event::Incomplete { response },
        });
    }

    /// Whether everything so far is in whole items.
    pub fn between_items(&self) -> bool {
        self.open.is_none()
    }

    /// Whether an item was begun and then left out.
    pub fn dropped_an_item(&self) -> bool {
        self.dropped
    }

    /// The outputs that must come before anything else can: of all calls, the one that is being written too.
    pub fn required_input(&self) -> Vec<Value> {
        let open = match &self.open {
            Some(Open::Call { id, callee, .. }) => Some(output::call(id, "in_progress", callee, "")),
            Some(Open::Message { .. } | Open::Reasoning { .. }) | None => None,
        };
        let required = |call: &Value| {
            let kind = match call["type"].as_str()? {
                "function_call" => "function_call_output",
                "custom_tool_call" => "custom_tool_call_output",
                _ => return None,
            };
            Some(json!({"type": kind, "call_id": call["call_id"], "name": call["name"]}))
        };
        self.response.output.iter().chain(&open).filter_map(required).collect()
    }

    pub fn steer_accepted(&mut self, steer: &str) {
        let steer = self.steer(steer);
        self.tell(Event::SteerAccepted { steer });
    }

    pub fn steer_pending(&mut self, steer: &str) {
        let (steer, required_input) = (self.steer(steer), self.required_input());
        self.tell(Event::SteerPending { steer, reason: "waiting_for_required_input", required_input });
    }

    fn steer(&self, id: &str) -> Value {
        json!({"id": id, "previous_response_id": self.response.id})
    }

    /// Reads the items that are whole by now as a turn that follows takes them. Done while the model writes on, it
    /// is not to be done at the end.
    pub fn gather(&mut self) {
        let new = &self.response.output[self.gathered..];
        self.items.extend(new.iter().filter_map(|json| Item::parse("output", json).ok()).map(Arc::new));
        self.gathered = self.response.output.len();
    }

    /// The whole items.
    pub fn items(&mut self) -> &[Arc<Item>] {
        self.gather();
        &self.items
    }

    fn index(&self) -> usize {
        self.response.output.len()
    }

    fn new_item(&self, prefix: &str) -> String {
        item_id(prefix, &self.response.id, self.index())
    }

    fn tell(&mut self, event: Event<'_>) {
        let frame = self.frame(&event);
        self.frames.push(frame);
        self.number += 1;
    }

    /// Tells an event that shows the response as it stands.
    fn tell_whole(&mut self, event: impl FnOnce(&Response) -> Event<'_>) {
        let frame = self.frame(&event(&self.response));
        self.frames.push(frame);
        self.number += 1;
    }

    fn frame(&self, event: &Event<'_>) -> Frame {
        let numbered = Numbered { event, sequence_number: self.number };
        let mut json = Vec::with_capacity(EVENT_BYTES_USUAL);
        serde_json::to_writer(&mut json, &numbered).expect("events have string keys only");
        // Many wait in rings: no more room than they need.
        let json = Bytes::from(json.into_boxed_slice());
        Frame { number: self.number, json, last: event.is_last(), token_at: self.token_at }
    }
}

impl Open {
    fn id(&self) -> &str {
        match self {
            Open::Message { id, .. } | Open::Reasoning { id, .. } | Open::Call { id, .. } => id,
        }
    }
}

/// The text inside `{"input": ".."}`.
fn custom_input(arguments: &str) -> String {
    let json: Value = serde_json::from_str(arguments).unwrap_or(json!({}));
    json.get("input").and_then(Value::as_str).unwrap_or(arguments).to_owned()
}
