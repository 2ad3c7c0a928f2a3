//! `/v1/chat/completions`: a turn whose events are told in the older form.

use super::{App, Failed, json, parse, responses, sse};
use crate::keys::Holder;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use flint_wire::chat::{ChatRequest, Chunks, completion};

pub async fn create(
    State(app): State<App>,
    Extension(holder): Extension<Holder>,
    body: Bytes,
) -> Result<Response, Failed> {
    let ChatRequest { request, include_usage } = ChatRequest::parse(&parse(&body)?)?;
    let stream = request.stream;
    let running = app.server.turn(request, None, holder.tenant, None).await?;
    let reader = running.log.read(0);
    if stream {
        let mut chunks = Chunks::new(include_usage);
        return Ok(sse::chunks(reader, move |event| chunks.event(event)));
    }
    let response = responses::done(reader).await?;
    Ok(json(StatusCode::OK, &completion(&response)))
}
