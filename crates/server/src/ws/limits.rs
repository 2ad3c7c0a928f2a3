//! What is left of a key's limits, as the Codex CLI shows it: an event of its own before each response.

use crate::admit::{Level, Standing};
use axum::http::HeaderMap;
use serde_json::{Value, json};

/// Only that client is told: others may not know the event. It names its window in every upgrade.
const HEADER: &str = "x-codex-window-id";

pub fn wanted(headers: &HeaderMap) -> bool {
    headers.contains_key(HEADER)
}

/// Nothing, where nobody has set a limit.
pub fn event(standing: &Standing, now_s: u64) -> Option<Value> {
    let window = |level: Level| {
        let (used, full_at_s) = (level.used * 100.0, level.full_at_s(now_s));
        json!({"used_percent": used, "window_minutes": 1, "reset_at": full_at_s})
    };
    let [primary, secondary] = standing.windows().map(|level| level.map(window));
    let limits = json!({"primary": primary?, "secondary": secondary});
    Some(json!({"type": "codex.rate_limits", "rate_limits": limits}))
}
