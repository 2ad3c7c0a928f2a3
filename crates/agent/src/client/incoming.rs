//! What a server tells while it answers, as far as the agent does something with it.

use crate::talk::{Limit, Served};
use serde_json::Value;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Debug, Clone, PartialEq)]
pub enum Incoming {
    Created {
        response: String,
    },
    /// How many turns are before this one.
    Queued {
        position: Option<u64>,
    },
    ItemAdded {
        id: String,
        item: Value,
    },
    TextDelta {
        id: String,
        text: String,
    },
    ReasoningDelta {
        id: String,
        text: String,
    },
    /// Of a call's arguments or input.
    CallDelta {
        id: String,
        text: String,
    },
    ItemDone {
        item: Value,
    },
    /// It was begun and is given up.
    ItemDropped {
        id: String,
    },
    SteerAccepted,
    /// It follows the outputs of the calls that are open.
    SteerPending,
    SteerFailed {
        why: String,
    },
    Ended(Box<Ended>),
    Refused(Refusal),
    Limits(Vec<Limit>),
    /// Nothing that the agent acts on; the server is alive.
    Other,
}

/// How a response ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    pub response: String,
    pub how: How,
    pub output: Vec<Value>,
    pub served: Served,
    pub flint: bool, // the server is one of ours
    pub tokens: Tokens,
    pub queued: Option<Duration>,
    pub tokens_a_second: Option<f64>,
    pub cache_break: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum How {
    Completed,
    /// Another one follows by itself.
    Steered,
    Interrupted,
    /// It ran into a limit of tokens, or was cut short otherwise.
    Incomplete {
        why: String,
    },
    Failed {
        why: String,
    },
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tokens {
    pub input: u64,
    pub cached: u64,
    pub output: u64,
    pub reasoning: u64,
}

/// A request that was not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: Option<u16>,
    pub code: String,
    pub message: String,
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// From the body of an error, or the frame that holds one.
    pub fn read(status: Option<u16>, body: &Value) -> Refusal {
        let error = &body["error"];
        let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        let message = match text("message") {
            empty if empty.is_empty() => "the server refused the request and does not say why".to_owned(),
            message => message,
        };
        let status = status.or_else(|| body["status"].as_u64().and_then(|status| status.try_into().ok()));
        let seconds = body["headers"]["retry-after"].as_str().and_then(|text| text.parse().ok());
        Refusal { status, code: text("code"), message, retry_after: seconds.map(Duration::from_secs) }
    }

    /// The same request could be served later.
    pub fn passes(&self) -> bool {
        matches!(self.status, Some(408 | 409 | 425 | 429 | 500..=599))
    }

    pub fn is_about_model(&self) -> bool {
        self.code == "model_not_found"
    }

    /// The server does not have the response that this one was to follow.
    pub fn lost_previous(&self) -> bool {
        self.code.starts_with("previous_response")
    }
}

/// Why a WebSocket takes no more requests, if the event says so: not the request's fault, nor the server's.
pub fn ended_connection(event: &Value) -> Option<String> {
    let ended = event["error"]["code"] == "websocket_connection_limit_reached";
    ended.then(|| Refusal::read(None, event).message)
}

impl Incoming {
    /// Of one event. What is not as it should be counts as nothing.
    pub fn read(event: &Value) -> Incoming {
        let id = || text(&event["item_id"]);
        let delta = || text(&event["delta"]);
        match event["type"].as_str().unwrap_or_default() {
            "response.created" => Incoming::Created { response: text(&event["response"]["id"]) },
            "response.queued" => Incoming::Queued { position: position(&event["response"]) },
            "response.output_item.added" => {
                Incoming::ItemAdded { id: text(&event["item"]["id"]), item: event["item"].clone() }
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                Incoming::TextDelta { id: id(), text: delta() }
            }
            "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" => {
                Incoming::ReasoningDelta { id: id(), text: delta() }
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                Incoming::CallDelta { id: id(), text: delta() }
            }
            "response.output_item.done" => Incoming::ItemDone { item: event["item"].clone() },
            "response.output_item.interrupted" => Incoming::ItemDropped { id: id() },
            "response.steer.accepted" => Incoming::SteerAccepted,
            "response.steer.pending" => Incoming::SteerPending,
            "response.steer.failed" => Incoming::SteerFailed { why: text(&event["error"]["message"]) },
            "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" => {
                Incoming::Ended(Box::new(Ended::read(&event["response"])))
            }
            "error" => Incoming::Refused(Refusal::read(None, event)),
            "codex.rate_limits" => Incoming::Limits(limits(&event["rate_limits"])),
            _ => Incoming::Other,
        }
    }
}

impl Ended {
    pub fn read(response: &Value) -> Ended {
        let said = &response["metadata"];
        let usage = &response["usage"];
        let count = |value: &Value| value.as_u64().unwrap_or_default();
        Ended {
            response: text(&response["id"]),
            how: how(response),
            output: response["output"].as_array().cloned().unwrap_or_default(),
            served: served(response),
            flint: said["flint.engine"].is_string(),
            tokens: Tokens {
                input: count(&usage["input_tokens"]),
                cached: count(&usage["input_tokens_details"]["cached_tokens"]),
                output: count(&usage["output_tokens"]),
                reasoning: count(&usage["output_tokens_details"]["reasoning_tokens"]),
            },
            queued: number(&said["flint.queue_ms"]).and_then(milliseconds),
            tokens_a_second: number(&said["flint.tokens_per_second"]),
            cache_break: optional(&said["flint.cache_break"]),
        }
    }
}

fn how(response: &Value) -> How {
    let reason = || text(&response["incomplete_details"]["reason"]);
    match response["status"].as_str() {
        Some("completed") => How::Completed,
        Some("incomplete") => match reason().as_str() {
            "steered" => How::Steered,
            "interrupted" => How::Interrupted,
            why => How::Incomplete { why: why.to_owned() },
        },
        Some("cancelled") => How::Interrupted,
        _ => How::Failed {
            why: optional(&response["error"]["message"])
                .unwrap_or_else(|| "the server gave the response up and does not say why".to_owned()),
        },
    }
}

fn served(response: &Value) -> Served {
    let said = &response["metadata"];
    let model = text(&response["model"]);
    Served {
        asked: optional(&said["flint.model_asked"]).unwrap_or_else(|| model.clone()),
        model: optional(&said["flint.model_served"]).unwrap_or(model),
        digest: optional(&said["flint.weights_sha256"]),
        quantisation: optional(&said["flint.quantisation"]),
        device: optional(&said["flint.device"]),
        engine: optional(&said["flint.engine"]),
        tier: optional(&response["service_tier"]),
        ignored: optional(&said["flint.ignored_fields"])
            .map(|list| list.split(", ").map(str::to_owned).collect())
            .unwrap_or_default(),
    }
}

fn position(response: &Value) -> Option<u64> {
    number(&response["metadata"]["flint.queue_position"]).map(|position| position as u64)
}

fn limits(all: &Value) -> Vec<Limit> {
    let limit = |name: &str| {
        let window = &all[name];
        let used_percent = window["used_percent"].as_f64()?;
        let minutes = window["window_minutes"].as_u64().unwrap_or_default();
        let what = if name == "primary" { "tokens" } else { "requests" };
        let reset_at = window["reset_at"].as_u64().map(|at_s| UNIX_EPOCH + Duration::from_secs(at_s));
        let resets = reset_at.and_then(|at| at.duration_since(SystemTime::now()).ok());
        Some(Limit { name: format!("{what} in {minutes} min"), used_percent, resets })
    };
    ["primary", "secondary"].into_iter().filter_map(limit).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn optional(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Metadata has numbers as text.
fn number(value: &Value) -> Option<f64> {
    let number = value.as_f64().or_else(|| value.as_str()?.parse().ok())?;
    number.is_finite().then_some(number)
}

fn milliseconds(ms: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(ms / 1e3).ok()
}
