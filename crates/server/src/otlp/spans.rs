//! The spans of one request, in OTLP's JSON: the request itself and, inside it, where the time of its responses
//! went. Names are those of OpenTelemetry's conventions for HTTP and GenAI.

use super::Record;
use crate::note::Answered;
use crate::trace::new_span;
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant, UNIX_EPOCH};

const KIND_INTERNAL: u8 = 1;
const KIND_SERVER: u8 = 2;
const STATUS_ERROR: u8 = 2;

pub fn of(record: &Record) -> Vec<Value> {
    let mut spans = vec![request(record)];
    spans.extend(record.said.answers.iter().flat_map(|answered| phases(record, answered)));
    spans
}

fn request(record: &Record) -> Value {
    let Record { trace, said, .. } = record;
    let mut span = span(record, &name(record), KIND_SERVER, record.began, record.began + record.took);
    span.insert("spanId".to_owned(), trace.span.as_str().into());
    if let Some(parent) = &trace.parent {
        span.insert("parentSpanId".to_owned(), parent.as_str().into());
    }
    let status = said.status.to_string();
    // That a client was refused is no error of the server.
    let error = said.error.or_else(|| (said.status >= 500).then_some(status.as_str()));
    let mut all = http(record);
    all.extend(gen_ai(record));
    if let Some(error) = error {
        all.push(("error.type", text(error)));
        span.insert("status".to_owned(), json!({"code": STATUS_ERROR}));
    }
    span.insert("attributes".to_owned(), attributes(all));
    span.into()
}

fn name(record: &Record) -> String {
    let said = &record.said;
    match (said.turned_to(), &said.route) {
        (Some(model), _) => format!("{} {}", operation(record), model.asked),
        (None, Some(route)) => format!("{} {route}", said.method),
        (None, None) => said.method.clone(),
    }
}

fn operation(record: &Record) -> &'static str {
    match record.said.path.as_str() {
        "/v1/completions" => "text_completion",
        _ => "chat",
    }
}

fn http(record: &Record) -> Vec<(&'static str, Value)> {
    let Record { said, address, .. } = record;
    let mut all = vec![("url.path", text(&said.path)), ("http.response.status_code", number(said.status))];
    match said.method.as_str() {
        // A turn of a WebSocket is no request of its own to HTTP.
        "WS" => all.push(("network.protocol.name", text("websocket"))),
        method => all.push(("http.request.method", text(method))),
    }
    all.extend(said.route.as_ref().map(|route| ("http.route", text(route))));
    if let Some(address) = address {
        all.push(("server.address", text(&address.ip().to_string())));
        all.push(("server.port", number(address.port())));
    }
    all
}

fn gen_ai(record: &Record) -> Vec<(&'static str, Value)> {
    let said = &record.said;
    let Some(model) = said.turned_to() else { return Vec::new() };
    let mut all = vec![
        ("gen_ai.operation.name", text(operation(record))),
        ("gen_ai.provider.name", text("flint")),
        ("gen_ai.request.model", text(&model.asked)),
    ];
    all.extend(said.key.as_ref().map(|key| ("flint.key", text(key))));
    if let (Some(last), Some(usage)) = (said.answers.last(), said.usage()) {
        all.push(("gen_ai.response.model", text(&model.served)));
        all.push(("gen_ai.response.id", text(&last.response)));
        all.push(("gen_ai.usage.input_tokens", number(usage.input)));
        all.push(("gen_ai.usage.output_tokens", number(usage.output)));
        all.push(("gen_ai.usage.cache_read.input_tokens", number(usage.cached)));
    }
    all
}

/// What a response did one after the other; what it did not come to is left out.
fn phases(record: &Record, answered: &Answered) -> Vec<Value> {
    let timing = &answered.timing;
    let lasting = |from: Option<Instant>, time: Duration| Some((from?, from? + time));
    let first = timing.first_token.or(timing.ended);
    let phases = [
        ("render", lasting(timing.arrived, timing.rendered)),
        ("queue", lasting(timing.queued_at, timing.queued)),
        ("prefill", timing.sent.zip(first)),
        ("decode", timing.first_token.zip(timing.ended)),
    ];
    let phase = |(name, times): (&str, Option<(Instant, Instant)>)| {
        let (from, to) = times?;
        let mut span = span(record, name, KIND_INTERNAL, from, to);
        span.insert("parentSpanId".to_owned(), record.trace.span.as_str().into());
        let response = ("gen_ai.response.id", text(&answered.response));
        span.insert("attributes".to_owned(), attributes([response]));
        Some(span.into())
    };
    phases.into_iter().filter_map(phase).collect()
}

/// A span without a parent and attributes.
fn span(record: &Record, name: &str, kind: u8, from: Instant, to: Instant) -> Map<String, Value> {
    let pairs = [
        ("traceId", record.trace.id.as_str().into()),
        ("spanId", new_span().into()),
        ("name", name.into()),
        ("kind", kind.into()),
        ("startTimeUnixNano", unix_ns(record, from).to_string().into()),
        ("endTimeUnixNano", unix_ns(record, to).to_string().into()),
    ];
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// The time of day of a moment before the record was made.
fn unix_ns(record: &Record, moment: Instant) -> u128 {
    let before_end = (record.began + record.took).saturating_duration_since(moment);
    record.ended_at.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(before_end).as_nanos()
}

pub fn attributes<'a>(pairs: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    pairs.into_iter().map(|(key, value)| json!({"key": key, "value": value})).collect()
}

pub fn text(text: &str) -> Value {
    json!({"stringValue": text})
}

/// OTLP writes numbers of 64 bits as text.
fn number(number: impl Into<i64>) -> Value {
    json!({"intValue": number.into().to_string()})
}
