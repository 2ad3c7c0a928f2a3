//! What a response tells while it is being made. The same over SSE and WebSocket.

use crate::response::Response;
use serde::Serialize;
use serde_json::Value;

/// One event. Items and parts are addressed by their place in the response.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type")]
pub enum Event<'r> {
    #[serde(rename = "response.created")]
    Created { response: &'r Response },
    #[serde(rename = "response.queued")]
    Queued { response: &'r Response },
    #[serde(rename = "response.in_progress")]
    InProgress { response: &'r Response },
    #[serde(rename = "response.output_item.added")]
    ItemAdded { output_index: usize, item: Value },
    #[serde(rename = "response.content_part.added")]
    PartAdded { item_id: String, output_index: usize, content_index: usize, part: Value },
    #[serde(rename = "response.output_text.delta")]
    TextDelta {
        item_id: String,
        output_index: usize,
        content_index: usize,
        delta: String,
        logprobs: Vec<Value>,
    },
    #[serde(rename = "response.output_text.done")]
    TextDone {
        item_id: String,
        output_index: usize,
        content_index: usize,
        text: String,
        logprobs: Vec<Value>,
    },
    #[serde(rename = "response.content_part.done")]
    PartDone { item_id: String, output_index: usize, content_index: usize, part: Value },
    #[serde(rename = "response.reasoning_text.delta")]
    ReasoningDelta { item_id: String, output_index: usize, content_index: usize, delta: String },
    #[serde(rename = "response.reasoning_text.done")]
    ReasoningDone { item_id: String, output_index: usize, content_index: usize, text: String },
    #[serde(rename = "response.function_call_arguments.delta")]
    ArgumentsDelta { item_id: String, output_index: usize, delta: String },
    #[serde(rename = "response.function_call_arguments.done")]
    ArgumentsDone { item_id: String, output_index: usize, name: String, arguments: String },
    #[serde(rename = "response.custom_tool_call_input.delta")]
    InputDelta { item_id: String, output_index: usize, delta: String },
    #[serde(rename = "response.custom_tool_call_input.done")]
    InputDone { item_id: String, output_index: usize, input: String },
    #[serde(rename = "response.output_item.done")]
    ItemDone { output_index: usize, item: Value },
    /// An item that was begun is given up.
    #[serde(rename = "response.output_item.interrupted")]
    ItemInterrupted { response_id: String, item_id: String, output_index: usize },
    /// A steer is taken: this response will end at the next token, and its successor begin.
    #[serde(rename = "response.steer.accepted")]
    SteerAccepted { steer: Value },
    /// A steer has to wait until outputs of calls are there.
    #[serde(rename = "response.steer.pending")]
    SteerPending { steer: Value, reason: &'static str, required_input: Vec<Value> },
    #[serde(rename = "response.interrupt.accepted")]
    InterruptAccepted { response_id: String },
    #[serde(rename = "response.completed")]
    Completed { response: &'r Response },
    #[serde(rename = "response.incomplete")]
    Incomplete { response: &'r Response },
    #[serde(rename = "response.failed")]
    Failed { response: &'r Response },
    #[serde(rename = "response.cancelled")]
    Cancelled { response: &'r Response },
}

impl Event<'_> {
    /// Nothing follows.
    pub fn is_last(&self) -> bool {
        matches!(
            self,
            Event::Completed { .. }
                | Event::Incomplete { .. }
                | Event::Failed { .. }
                | Event::Cancelled { .. }
        )
    }
}

/// An event in its place in the response's order.
#[derive(Debug, Serialize)]
pub struct Numbered<'a> {
    #[serde(flatten)]
    pub event: &'a Event<'a>,
    pub sequence_number: u64,
}
