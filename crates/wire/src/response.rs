//! A response as it stands at some moment.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use std::sync::Arc;

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

/// The request's fields as a response repeats them, in text: they are long, and told several times.
#[derive(Debug, Clone, Default)]
pub struct Settings(Arc<[(String, Box<RawValue>)]>);

impl PartialEq for Settings {
    fn eq(&self, other: &Settings) -> bool {
        let texts = |settings: &Settings| {
            settings.0.iter().map(|(key, value)| (key.clone(), value.to_string())).collect::<Vec<_>>()
        };
        texts(self) == texts(other)
    }
}

impl Settings {
    /// Of a response that was told before.
    pub fn of_response(fields: &Map<String, Value>) -> Settings {
        let own = |(key, _): &(&String, &Value)| !OWN_FIELDS.contains(&key.as_str());
        Settings::new(fields.iter().filter(own).map(|(key, value)| (key.as_str(), value)))
    }

    pub fn new<'a>(fields: impl Iterator<Item = (&'a str, &'a Value)>) -> Settings {
        Settings(
            fields.filter_map(|(key, value)| Some((key.to_owned(), to_raw_value(value).ok()?))).collect(),
        )
    }

    /// These, and those that are not among them.
    pub fn and(&self, more: Settings) -> Settings {
        let new = more.0.iter().filter(|(key, _)| !self.0.iter().any(|(known, _)| known == key));
        Settings(self.0.iter().chain(new).cloned().collect())
    }
}

/// What is the response's own, whatever the request said.
const OWN_FIELDS: [&str; 12] = [
    "id",
    "object",
    "created_at",
    "completed_at",
    "status",
    "model",
    "previous_response_id",
    "output",
    "error",
    "incomplete_details",
    "usage",
    "metadata",
];

#[derive(Debug, Clone)]
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
    pub settings: Settings,
}

impl Response {
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("responses have string keys only")
    }
}

impl Serialize for Response {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.id)?;
        map.serialize_entry("object", "response")?;
        map.serialize_entry("created_at", &self.created_at)?;
        map.serialize_entry("completed_at", &self.completed_at)?;
        map.serialize_entry("status", self.status.name())?;
        map.serialize_entry("model", &self.model)?;
        map.serialize_entry("previous_response_id", &self.previous)?;
        map.serialize_entry("output", &self.output)?;
        let error =
            self.failure.as_ref().map(|failure| json!({"code": failure.code, "message": failure.message}));
        map.serialize_entry("error", &error)?;
        map.serialize_entry("incomplete_details", &self.incomplete.map(|why| json!({"reason": why.name()})))?;
        map.serialize_entry("usage", &self.usage.map(|usage| usage.json()))?;
        map.serialize_entry("metadata", &self.metadata)?;
        for (key, value) in &*self.settings.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}
