//! `/v1/responses/input_tokens`: how long a prompt would be, without asking the model.

use super::{App, Failed, json, parse};
use crate::history::conversation;
use crate::keys::Holder;
use crate::prompt;
use crate::server::blocking;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use flint_wire::{ApiError, Request};
use serde_json::json as value;

pub async fn input_tokens(
    State(app): State<App>,
    Extension(holder): Extension<Holder>,
    body: Bytes,
) -> Result<Response, Failed> {
    let mut request = Request::parse(&parse(&body)?)?;
    let model = app.server.model(request.model.as_deref())?;
    let count = move || {
        let history = app.server.history(&request, holder.tenant, None)?;
        let conversation = conversation(&model, &mut request, history.items)?;
        let tokens = prompt::tokens(&model, &conversation, true)?;
        Ok::<_, ApiError>(tokens.len())
    };
    let tokens = blocking(count).await??;
    Ok(json(StatusCode::OK, &value!({"object": "response.input_tokens", "input_tokens": tokens})))
}
