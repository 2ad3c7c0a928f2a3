//! A real server as a child process, and a small client that speaks to it. Everything blocks.

mod served;
mod socket;

pub use served::{Duplex, Layer, Served, Settings, head, next_data, next_event};
pub use socket::Socket;

use serde_json::{Value, json};

/// The model whose tokenizer and template everything here uses.
pub const MODEL: &str = "smollm2-135m";

/// What a person says.
pub fn user(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

/// A turn, as a frame or as a body.
pub fn turn(input: &[Value]) -> Value {
    json!({"type": "response.create", "model": MODEL, "input": input, "store": false, "stream": true})
}

/// Whether no event of the response follows this one.
pub fn is_last(event: &Value) -> bool {
    matches!(
        event["type"].as_str(),
        Some(
            "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" | "error"
        )
    )
}

/// The text that an event adds to the answer.
pub fn delta(event: &Value) -> Option<&str> {
    (event["type"] == "response.output_text.delta").then(|| event["delta"].as_str()).flatten()
}
