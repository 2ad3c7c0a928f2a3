//! `/v1/completions`: text that goes on, without a conversation.

use super::{App, Failed, json, parse, responses, sse};
use crate::keys::Holder;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use flint_wire::completion::{CompletionRequest, TextChunks, text_completion};

pub async fn create(
    State(app): State<App>,
    Extension(holder): Extension<Holder>,
    body: Bytes,
) -> Result<Response, Failed> {
    let CompletionRequest { request, echo, include_usage } = CompletionRequest::parse(&parse(&body)?)?;
    let stream = request.stream;
    let prompt = request.raw.as_ref().filter(|_| echo).map(|raw| raw.prompt.clone());
    let running = app.server.turn(request, None, holder.tenant, None).await?;
    let reader = running.log.read(0);
    if stream {
        let mut chunks = TextChunks::new(prompt, include_usage);
        return Ok(sse::chunks(reader, move |event| chunks.event(event)));
    }
    let response = responses::done(reader).await?;
    Ok(json(StatusCode::OK, &text_completion(&response, prompt.as_deref().unwrap_or_default())))
}
