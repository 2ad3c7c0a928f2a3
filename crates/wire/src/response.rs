//! A response as it stands at some moment.

use serde_json::{Map, Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Queued,
    InProgress,
    Completed,
    Incomplete,
    Failed,
    Cancelled,
}

impl Status {
    pub fn name(self) -> &'static str {
        match self {
            Status::Queued => "queued",
            Status::InProgress => "in_progress",
            Status::Completed => "completed",
            Status::Incomplete => "incomplete",
            Status::Failed => "failed",
            Status::Cancelled => "cancelled",
        }
    }

    pub fn parse(name: &str) -> Option<Status> {
        let all = [
            Status::Queued,
            Status::InProgress,
            Status::Completed,
            Status::Incomplete,
            Status::Failed,
            Status::Cancelled,
        ];
        all.into_iter().find(|status| status.name() == name)
    }

    pub fn is_final(self) -> bool {
        !matches!(self, Status::Queued | Status::InProgress)
    }
}

/// Why a response ended before the model did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incomplete {
    MaxOutputTokens,
    Interrupted,
    Steered,
}

impl Incomplete {
    pub fn name(self) -> &'static str {
        match self {
            Incomplete::MaxOutputTokens => "max_output_tokens",
            Incomplete::Interrupted => "interrupted",
            Incomplete::Steered => "steered",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: String,
    pub message: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub input: u32,
    pub cached: u32, // of `input`
    pub output: u32,
    pub reasoning: u32, // of `output`
}

impl Usage {
    pub fn json(&self) -> Value {
        json!({
            "input_tokens": self.input,
            "input_tokens_details": {"cached_tokens": self.cached},
            "output_tokens": self.output,
            "output_tokens_details": {"reasoning_tokens": self.reasoning},
            "total_tokens": self.input + self.output,
        })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    pub id: String,
    pub created_at: u64, // unix seconds
    pub completed_at: Option<u64>,
    pub status: Status,
    pub model: String, // the one that is served
    pub previous: Option<String>,
    pub output: Vec<Value>,
    pub incomplete: Option<Incomplete>,
    pub failure: Option<Failure>,
    pub usage: Option<Usage>,
    pub metadata: Map<String, Value>,
    pub settings: Map<String, Value>, // the request's fields, as they were taken
}

impl Response {
    pub fn json(&self) -> Value {
        let mut json = json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created_at,
            "completed_at": self.completed_at,
            "status": self.status.name(),
            "model": self.model,
            "previous_response_id": self.previous,
            "output": self.output,
            "error": self.failure.as_ref().map(|f| json!({"code": f.code, "message": f.message})),
            "incomplete_details": self.incomplete.map(|why| json!({"reason": why.name()})),
            "usage": self.usage.map(|usage| usage.json()),
            "metadata": self.metadata,
        });
        if let Value::Object(map) = &mut json {
            for (key, value) in &self.settings {
                map.entry(key).or_insert_with(|| value.clone());
            }
        }
        json
    }
}
