//! Answers that no handler wrote, such as those of the router and of extractors, in the form of all errors.

use super::Failed;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use flint_wire::ApiError;

/// Bytes of an extractor's own message that are worth repeating.
const MESSAGE_BYTES_MAX: usize = 1024;

pub async fn dress(request: Request, next: Next) -> Response {
    let what = format!("{} {}", request.method(), request.uri().path());
    let response = next.run(request).await;
    let is_plain = response.headers().get(header::CONTENT_TYPE).is_none_or(|kind| kind != "application/json");
    match response.status().is_client_error() && is_plain {
        true => dressed(&what, response).await,
        false => response,
    }
}

async fn dressed(what: &str, response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    let text = to_bytes(body, MESSAGE_BYTES_MAX).await.unwrap_or_default();
    let error = error(what, parts.status, &String::from_utf8_lossy(&text));
    // The body is another one now.
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.remove(header::CONTENT_TYPE);
    let mut response = Failed(error).into_response();
    response.headers_mut().extend(parts.headers);
    response
}

fn error(what: &str, status: StatusCode, text: &str) -> ApiError {
    let (code, message) = match status {
        StatusCode::NOT_FOUND => ("not_found", format!("there is no `{what}` here")),
        StatusCode::METHOD_NOT_ALLOWED => ("method_not_allowed", format!("`{what}` is not to be had")),
        StatusCode::PAYLOAD_TOO_LARGE => ("request_too_large", "the body is too large".to_owned()),
        StatusCode::UPGRADE_REQUIRED => {
            ("upgrade_required", format!("`{what}` is a WebSocket: ask for the upgrade"))
        }
        _ if text.is_empty() => ("invalid_request", format!("`{what}` was refused: {status}")),
        _ => ("invalid_request", text.to_owned()),
    };
    ApiError { status: status.as_u16(), ..ApiError::bad_request(code, message) }
}
