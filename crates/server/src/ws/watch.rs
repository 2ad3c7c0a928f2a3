//! How long a response took on its way out: an extra event for clients that ask for it in their upgrade.

use crate::limits::TIMED_TOKENS_MAX;
use crate::turn::Running;
use axum::http::HeaderMap;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

const HEADER: &str = "x-responsesapi-include-timing-metrics";

/// Whether the client wants to know.
pub fn wanted(headers: &HeaderMap) -> bool {
    headers.get(HEADER).is_some_and(|value| value == "true")
}

/// The times of one response.
pub struct Watch {
    running: Arc<Running>,
    arrived: Instant,                    // the frame that asked for it
    token_at: Option<Instant>,           // of the token whose frame was last written
    token_to_frame_us: Vec<u32>,         // of each token, to the last of its frames
    first_frame_after: Option<Duration>, // with something of a token in it
}

impl Watch {
    pub fn new(running: Arc<Running>, arrived: Instant) -> Watch {
        Watch { running, arrived, token_at: None, token_to_frame_us: Vec::new(), first_frame_after: None }
    }

    /// A frame has just been written that tells of a token, known then.
    pub fn written(&mut self, token_at: Instant) {
        let took = u32::try_from(token_at.elapsed().as_micros()).unwrap_or(u32::MAX);
        self.first_frame_after.get_or_insert_with(|| self.arrived.elapsed());
        if self.token_at == Some(token_at) {
            self.token_to_frame_us.pop();
        }
        if self.token_to_frame_us.len() < TIMED_TOKENS_MAX {
            self.token_to_frame_us.push(took);
        }
        self.token_at = Some(token_at);
    }

    /// The event that says it all. The names without `flint.` are those that the Codex CLI reads.
    pub fn event(mut self, stream: Option<&str>) -> Value {
        let whole = self.arrived.elapsed();
        let timing = self.running.timing().unwrap_or_default();
        let (prefill, decode) = (timing.prefill().unwrap_or_default(), timing.decode().unwrap_or_default());
        let engine = prefill + decode;
        self.token_to_frame_us.sort_unstable();
        let gaps = self.token_to_frame_us.len().saturating_sub(1);
        let between_tokens_ms = ms(decode) / gaps.max(1) as f64;
        let mut event = json!({
            "type": "responsesapi.websocket_timing",
            "response_id": self.running.id,
            "timing_metrics": {
                "responses_duration_excl_engine_and_client_tool_time_ms": ms(whole.saturating_sub(engine)),
                "engine_service_total_ms": ms(engine),
                "engine_service_ttft_total_ms": ms(prefill),
                "engine_iapi_ttft_total_ms": ms(timing.first_token_after().unwrap_or_default()),
                "engine_service_tbt_across_engine_calls_ms": between_tokens_ms,
                "engine_iapi_tbt_across_engine_calls_ms": between_tokens_ms,
                "flint.first_frame_ms": self.first_frame_after.map(ms),
                "flint.tokens_timed": self.token_to_frame_us.len(),
                "flint.token_to_frame_us_p50": quantile(&self.token_to_frame_us, 0.5),
                "flint.token_to_frame_us_p99": quantile(&self.token_to_frame_us, 0.99),
            },
        });
        if let Some(stream) = stream {
            event["stream_id"] = stream.into();
        }
        event
    }
}

fn ms(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}

/// Of values in order.
fn quantile(sorted: &[u32], share: f64) -> Option<u32> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((last as f64 * share).round() as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_values_in_order() {
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[7], 0.99), Some(7));
        let hundred: Vec<u32> = (0..=100).collect();
        assert_eq!((quantile(&hundred, 0.5), quantile(&hundred, 0.99)), (Some(50), Some(99)));
    }

    #[test]
    fn only_the_word_true_asks_for_timings() {
        let headers =
            |value: &'static str| HeaderMap::from_iter([(HEADER.parse().unwrap(), value.parse().unwrap())]);
        assert!(wanted(&headers("true")));
        assert!(!wanted(&headers("false")) && !wanted(&HeaderMap::new()));
    }
}
