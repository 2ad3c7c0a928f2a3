//! `/v1/responses/{id}`: a stored response, as it is or as it goes on.

use super::query::Query;
use super::responses::last;
use super::{App, Failed, json, sse};
use crate::keys::Holder;
use crate::note::Note;
use crate::store::{Kept, Tail};
use crate::turn::{Control, wait};
use axum::Extension;
use axum::extract::{Path, Query as AxumQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use flint_engine::message::Tenant;
use flint_wire::ApiError;
use serde_json::{Value, json as value};
use std::collections::HashMap;

pub async fn get(
    State(app): State<App>,
    Extension(holder): Extension<Holder>,
    Path(id): Path<String>,
    AxumQuery(query): AxumQuery<HashMap<String, String>>,
) -> Result<Response, Failed> {
    let query = Query(&query);
    let after: Option<u64> = query.number("starting_after", 0..=i64::MAX as u64 - 1)?;
    let stream = query.flag("stream")?;
    // First what runs: a response leaves there only when it is whole in the store.
    let running = app.server.registry.find(&id, holder.tenant);
    let kept = kept(&app, &id, holder.tenant).await?;
    let mut response = response(&kept)?;
    if let (Some(note), Some(served)) = (Note::current(), response["model"].as_str()) {
        note.models(response["metadata"]["flint.model_asked"].as_str().unwrap_or(served), served);
    }
    if !stream {
        if let Some(position) = running.and_then(|running| running.position()) {
            wait::stand_at(&mut response, position);
        }
        return Ok(json(StatusCode::OK, &response));
    }
    let from = after.map_or(0, |number| number + 1);
    Ok(sse::events(match running {
        Some(running) => running.read(from),
        None => Tail::stored(id, from, app.server.archive.store.clone()),
    }))
}

/// A response that runs is stopped first.
pub async fn delete(
    State(app): State<App>,
    Extension(holder): Extension<Holder>,
    Path(id): Path<String>,
) -> Result<Response, Failed> {
    kept(&app, &id, holder.tenant).await?;
    stop(&app, &id, holder.tenant).await?;
    app.server.archive.delete(&id).await.map_err(crate::store::unreadable)?;
    let deleted = value!({"id": id, "object": "response", "deleted": true});
    Ok(json(StatusCode::OK, &deleted))
}

/// What was written stays. A response that has ended is left as it is.
pub async fn cancel(
    State(app): State<App>,
    Extension(holder): Extension<Holder>,
    Path(id): Path<String>,
) -> Result<Response, Failed> {
    let body = match stop(&app, &id, holder.tenant).await? {
        Some(stopped) => stopped,
        None => response(&kept(&app, &id, holder.tenant).await?)?,
    };
    Ok(json(StatusCode::OK, &body))
}

/// The response as it ended, if it was running.
async fn stop(app: &App, id: &str, tenant: Tenant) -> Result<Option<Value>, ApiError> {
    let Some(running) = app.server.registry.find(id, tenant) else { return Ok(None) };
    let reader = running.log.read(running.log.next_number());
    running.control(Control::Cancel).await;
    last(reader).await.map(Some)
}

pub async fn kept(app: &App, id: &str, tenant: Tenant) -> Result<Kept, ApiError> {
    let wanted = id.to_owned();
    let found = app.server.archive.read(move |store| store.kept(&wanted, tenant)).await?;
    found.ok_or_else(|| {
        let message = format!("the response `{id}` is not known here: it was never stored, or was deleted");
        ApiError::not_found("response_not_found", message)
    })
}

fn response(kept: &Kept) -> Result<Value, ApiError> {
    serde_json::from_str(&kept.response).map_err(|_| ApiError::internal("the stored response cannot be read"))
}
