//! `/v1/responses`.

use super::{App, Failed, json, parse, sse};
use crate::keys::Holder;
use crate::log::{Read, Reader};
use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use flint_wire::{ApiError, Request};
use serde_json::Value;

pub async fn create(
    State(app): State<App>,
    Extension(holder): Extension<Holder>,
    body: Bytes,
) -> Result<Response, Failed> {
    let body = parse(&body)?;
    let request = Request::parse(&body)?;
    let (stream, background) = (request.stream, request.background);
    let running = app.server.turn(request, Some(&body), holder.tenant, None).await?;
    match (stream, background) {
        (true, _) => Ok(sse::events(running.read(0))),
        (false, true) => Ok(json(StatusCode::OK, &first(running.log.read(0)).await?)),
        (false, false) => Ok(json(StatusCode::OK, &last(running.log.read(0)).await?)),
    }
}

/// The response as it ended, if it did not fail: the older forms have no place for a failure but the status.
pub async fn done(reader: Reader) -> Result<Value, ApiError> {
    let response = last(reader).await?;
    match response["error"]["message"].as_str() {
        Some(message) => Err(ApiError::internal(message)),
        None => Ok(response),
    }
}

/// The response as it was created.
async fn first(mut reader: Reader) -> Result<Value, ApiError> {
    match reader.next().await {
        Read::Frame(frame) => response_of(&frame.json),
        Read::Lost | Read::End => Err(ApiError::internal("the response was lost")),
    }
}

/// The response as it ended.
pub async fn last(mut reader: Reader) -> Result<Value, ApiError> {
    loop {
        match reader.next().await {
            Read::Frame(frame) if frame.last => return response_of(&frame.json),
            Read::Frame(_) => {}
            // The last event is never dropped before it is read: go on from the oldest that is there.
            Read::Lost => reader.skip_to(reader.next_number() + 1),
            Read::End => return Err(ApiError::internal("the response was lost")),
        }
    }
}

fn response_of(event: &[u8]) -> Result<Value, ApiError> {
    let mut event: Value = serde_json::from_slice(event).unwrap_or_default();
    match event.get_mut("response") {
        Some(response) => Ok(response.take()),
        None => Err(ApiError::internal("the response was lost")),
    }
}
