//! Notes every request, and says in the head of its answer what clients look for there: the trace it is in, which
//! model was asked for and which served, and what is left of the key's limits.

use crate::admit::Level;
use crate::note::{Journal, Note};
use crate::turn::now;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use std::fmt::Display;
use std::sync::Arc;

pub async fn noted(State(journal): State<Arc<Journal>>, request: Request, next: Next) -> Response {
    // Probes come every few seconds and say nothing new.
    if request.uri().path() == "/health" {
        return next.run(request).await;
    }
    let parent = request.headers().get("traceparent").and_then(|value| value.to_str().ok());
    let trace = journal.trace(parent);
    let note = Note::new(journal, request.method().as_str(), request.uri().path(), trace);
    if let Some(path) = request.extensions().get::<MatchedPath>() {
        note.route(path.as_str());
    }
    let mut response = note.clone().during(next.run(request)).await;
    note.status(response.status().as_u16());
    tell(response.headers_mut(), &note);
    response
}

fn tell(headers: &mut HeaderMap, note: &Note) {
    let (said, took) = note.so_far();
    put(headers, "traceparent", note.trace.header());
    put(headers, "x-request-id", &note.trace.id);
    put(headers, "openai-processing-ms", took.as_millis());
    if let Some(models) = &said.model {
        put(headers, "openai-model", &models.served);
        put(headers, "x-flint-model-asked", &models.asked);
        put(headers, "x-flint-model-served", &models.served);
    }
    if let Some(standing) = &said.standing {
        for (of, level) in [("requests", standing.requests), ("tokens", standing.tokens)] {
            level.into_iter().for_each(|level| tell_level(headers, of, level));
        }
        for (window, level) in ["primary", "secondary"].into_iter().zip(standing.windows()) {
            level.into_iter().for_each(|level| tell_window(headers, window, level));
        }
    }
}

fn tell_level(headers: &mut HeaderMap, of: &str, level: Level) {
    put(headers, &format!("x-ratelimit-limit-{of}"), level.a_minute);
    put(headers, &format!("x-ratelimit-remaining-{of}"), level.left);
    put(headers, &format!("x-ratelimit-reset-{of}"), duration(level.full_in_ns));
}

/// The same for the Codex CLI, which reads it here when it has no WebSocket.
fn tell_window(headers: &mut HeaderMap, window: &str, level: Level) {
    put(headers, &format!("x-codex-{window}-used-percent"), level.used * 100.0);
    put(headers, &format!("x-codex-{window}-window-minutes"), 1);
    put(headers, &format!("x-codex-{window}-reset-at"), level.full_at_s(now()));
}

/// As OpenAI writes it: `0s`, `250ms`, `1.5s`, `4m2s`.
fn duration(ns: u64) -> String {
    let ms = ns.div_ceil(1_000_000);
    match ms {
        1..1000 => format!("{ms}ms"),
        0..60_000 => format!("{}s", ms as f64 / 1e3),
        _ => format!("{}m{}s", ms / 60_000, (ms % 60_000) as f64 / 1e3),
    }
}

/// What no header can say is left out.
fn put(headers: &mut HeaderMap, name: &str, value: impl Display) {
    let (name, value) = (HeaderName::try_from(name), HeaderValue::try_from(value.to_string()));
    if let (Ok(name), Ok(value)) = (name, value) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short_and_have_units() {
        let ms = 1_000_000;
        for (ns, text) in [
            (0, "0s"),
            (1, "1ms"),
            (250 * ms, "250ms"),
            (1500 * ms, "1.5s"),
            (60_000 * ms, "1m0s"),
            (242_000 * ms, "4m2s"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }
}
