//! What every response says about itself: which model was asked for, what was served, and where the time went.

use crate::grammar::Held;
use crate::model::Model;
use flint_engine::message::{Break, BreakCause, Counts};
use flint_wire::Request;
use serde_json::{Map, Value};
use std::time::{Duration, Instant};

/// The times of one turn.
#[derive(Debug, Clone, Copy, Default)]
pub struct Timing {
    pub arrived: Option<Instant>, // none: in an earlier process
    pub queued_at: Option<Instant>,
    pub queued: Duration,
    pub rendered: Duration,
    pub sent: Option<Instant>, // to the engine
    pub first_token: Option<Instant>,
    pub ended: Option<Instant>,
}

impl Timing {
    pub fn prefill(&self) -> Option<Duration> {
        Some(self.first_token.or(self.ended)?.duration_since(self.sent?))
    }

    pub fn decode(&self) -> Option<Duration> {
        Some(self.ended?.duration_since(self.first_token?))
    }

    /// From the request to its first token, with the queue and the rendering.
    pub fn first_token_after(&self) -> Option<Duration> {
        Some(self.first_token?.duration_since(self.arrived?))
    }

    /// Tokens a second after the first.
    pub fn rate(&self, generated: u32) -> Option<f64> {
        let decode = self.decode()?.as_secs_f64();
        (generated > 1 && decode > 0.0).then(|| f64::from(generated - 1) / decode)
    }
}

/// What is known before the model has written anything.
pub fn served(model: &Model, request: &Request, held: &Held) -> Map<String, Value> {
    let asked = request.model.as_deref().unwrap_or(&model.name);
    let pairs = [
        ("flint.model_asked", asked),
        ("flint.model_served", &model.name),
        ("flint.weights_sha256", &model.truth.sha256),
        ("flint.quantisation", &model.truth.quantisation),
        ("flint.device", &model.truth.device),
        ("flint.engine", &model.truth.engine),
        ("flint.speculation", if model.truth.speculation { "on" } else { "off" }),
        ("flint.fallback", model.truth.fallback.as_deref().unwrap_or("none")),
        ("flint.service_tier", request.tier.name()),
    ];
    let mut metadata = request.metadata.clone();
    metadata.extend(pairs.map(|(key, value)| (key.to_owned(), value.into())));
    let mut ignored = request.ignored.clone();
    if !model.facts.heeds_effort && request.effort.as_ref().is_some_and(|effort| effort != "none") {
        ignored.push("reasoning.effort".to_owned());
    }
    if !model.truth.speculation && request.prediction.is_some() {
        ignored.push("prediction".to_owned());
    }
    for (key, names) in [
        ("flint.ignored_fields", &ignored),
        ("flint.skipped_tools", &request.tools.skipped),
        ("flint.unenforced_tools", &held.unenforced),
    ] {
        if !names.is_empty() {
            metadata.insert(key.to_owned(), names.join(", ").into());
        }
    }
    metadata
}

/// Adds what the turn took, once it has ended.
pub fn add_measured(
    metadata: &mut Map<String, Value>,
    timing: &Timing,
    counts: Counts,
    broke: Option<Break>,
) {
    let milliseconds = |time: Duration| format!("{:.3}", time.as_secs_f64() * 1e3);
    let mut pairs = vec![
        ("flint.tokens_cached", counts.cached.to_string()),
        ("flint.tokens_prefilled", counts.new.to_string()),
        ("flint.tokens_generated", counts.generated.to_string()),
        ("flint.tokens_drafted", counts.drafted.to_string()),
        ("flint.tokens_accepted", counts.accepted.to_string()),
        ("flint.queue_ms", milliseconds(timing.queued)),
        ("flint.render_ms", milliseconds(timing.rendered)),
    ];
    pairs.extend(timing.prefill().map(|time| ("flint.prefill_ms", milliseconds(time))));
    pairs.extend(timing.decode().map(|time| ("flint.decode_ms", milliseconds(time))));
    let rate = timing.rate(counts.generated);
    pairs.extend(rate.map(|rate| ("flint.tokens_per_second", format!("{rate:.1}"))));
    pairs.extend(broke.map(|broke| ("flint.cache_break", explain(broke))));
    metadata.extend(pairs.into_iter().map(|(key, value)| (key.to_owned(), value.into())));
}

fn explain(broke: Break) -> String {
    let cause = match broke.cause {
        BreakCause::Differs => "the prompt differs from the earlier one here",
        BreakCause::Evicted => "the KV from here on had been given to others",
    };
    format!("at token {}: {cause}", broke.at)
}
