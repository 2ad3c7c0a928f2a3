//! The HTTP surface: routes, and what all answers have in common.

mod chat;
mod completions;
mod count;
mod items;
mod models;
mod noted;
mod plain;
mod query;
mod responses;
mod sse;
mod stored;
mod watch;

use crate::guard::{Guard, guard};
use crate::limits::REQUEST_BYTES_MAX;
use crate::server::Server;
use crate::ws;
use axum::Router;
use axum::body::Body;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use flint_wire::ApiError;
use serde_json::Value;
use std::sync::Arc;

/// What handlers share.
#[derive(Clone)]
pub struct App {
    pub server: Arc<Server>,
    pub websockets: bool, // or only HTTP
}

pub fn router(app: App, door: Guard) -> Router {
    let journal = app.server.gate.journal.clone();
    let v1 = Router::new()
        .route("/responses", post(responses::create).get(ws::upgrade))
        .route("/chat/completions", post(chat::create))
        .route("/completions", post(completions::create))
        .route("/responses/input_tokens", post(count::input_tokens))
        .route("/responses/{id}", get(stored::get).delete(stored::delete))
        .route("/responses/{id}/cancel", post(stored::cancel))
        .route("/responses/{id}/input_items", get(items::list))
        .route("/models", get(models::list))
        .route("/usage", get(watch::usage));
    Router::new()
        .route("/health", get(health))
        .route("/version", get(watch::version))
        .route("/openapi.json", get(openapi))
        .route("/metrics", get(watch::metrics))
        .nest("/v1", v1)
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .layer(from_fn_with_state(Arc::new(door), guard))
        .layer(from_fn(plain::dress))
        .layer(from_fn_with_state(journal, noted::noted))
        .with_state(app)
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], flint_wire::OPENAPI).into_response()
}

async fn health() -> Response {
    json(StatusCode::OK, &serde_json::json!({"status": "ok"}))
}

pub fn json(status: StatusCode, body: &Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An error as an answer.
pub struct Failed(pub ApiError);

impl From<ApiError> for Failed {
    fn from(error: ApiError) -> Failed {
        Failed(error)
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = json(status, &self.0.body());
        if let Some(seconds) = self.0.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// A body that must be JSON.
pub fn parse(body: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request("invalid_json", format!("the body is not JSON: {error}")))
}
