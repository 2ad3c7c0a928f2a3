//! `/v1/models`: one body that OpenAI's clients and the Codex CLI both read.

use super::{App, json};
use crate::model::Model;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json as value};

pub async fn list(State(app): State<App>) -> Response {
    let models = &app.server.models;
    let body = value!({
        "object": "list",
        "data": models.iter().map(|model| entry(model)).collect::<Vec<_>>(),
        "models": models.iter().enumerate().map(|(at, model)| codex_entry(at, model)).collect::<Vec<_>>(),
    });
    json(StatusCode::OK, &body)
}

fn entry(model: &Model) -> Value {
    value!({
        "id": model.name,
        "object": "model",
        "created": model.facts.created,
        "owned_by": "flint",
        "context_window": model.context(),
        "weights_sha256": model.truth.sha256,
        "quantisation": model.truth.quantisation,
        "device": model.truth.device,
    })
}

/// Short instructions: a small model reads its prompt slowly and forgets the middle of a long one.
const CODEX_INSTRUCTIONS: &str = "You are a coding agent on the user's computer. Use the tools to read files, \
    run commands and change code; do not guess what a command would print. When the task is done, say in a few \
    words what you did.";

fn codex_entry(priority: usize, model: &Model) -> Value {
    let levels = &model.facts.reasoning;
    let levels: Vec<Value> =
        levels.iter().map(|level| value!({"effort": level, "description": level})).collect();
    value!({
        "slug": model.name,
        "display_name": model.facts.title,
        "description": format!("{} on your own hardware", model.facts.title),
        "supported_reasoning_levels": levels,
        "shell_type": "unified_exec",
        "visibility": "list",
        "supported_in_api": true,
        "priority": priority + 1,
        "base_instructions": CODEX_INSTRUCTIONS,
        "support_verbosity": false,
        "truncation_policy": {"mode": "tokens", "limit": model.context() / 4},
        "experimental_supported_tools": [],
        "context_window": model.context(),
        "max_context_window": model.context(),
        "input_modalities": ["text"],
        "use_responses_lite": true,
        "tool_mode": "direct",
        "apply_patch_tool_type": null,
        "service_tiers": [{"id": "priority", "name": "Fast", "description": "ahead of others, at twice the price"}],
    })
}
