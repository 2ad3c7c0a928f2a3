//! What the server shows of itself: `/metrics`, `/version` and `/v1/usage`.

use super::{App, Failed, json};
use crate::admit::Class;
use crate::keys::Holder;
use crate::limits::STATS_WAIT_MS_MAX;
use crate::metrics::{Page, label};
use crate::model::Model;
use crate::server::blocking;
use crate::usage::{Row, Sum};
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use flint_engine::message::Stats;
use flint_wire::ApiError;
use serde_json::json as value;
use std::sync::Arc;
use std::time::Duration;

/// What the key has used, the latest day first.
pub async fn usage(State(app): State<App>, Extension(holder): Extension<Holder>) -> Result<Response, Failed> {
    let books = app.server.gate.books.clone();
    let rows = blocking(move || books.rows(Some(holder.tenant))).await?;
    let rows = rows.map_err(|_| ApiError::internal("the usage cannot be read"))?;
    let mut total = Sum::default();
    rows.iter().for_each(|row| total += row.sum);
    let body = value!({
        "object": "list",
        "data": rows.iter().map(Row::json).collect::<Vec<_>>(),
        "total": {
            "requests": total.requests,
            "input_tokens": total.input,
            "cached_tokens": total.cached,
            "output_tokens": total.output,
            "reasoning_tokens": total.reasoning,
            "price": total.price(),
        },
    });
    Ok(json(StatusCode::OK, &body))
}

pub async fn version(State(app): State<App>) -> Response {
    let models: Vec<&str> = app.server.models.iter().map(|model| model.name.as_str()).collect();
    let body = value!({
        "name": "flint",
        "version": env!("CARGO_PKG_VERSION"),
        "commit": option_env!("FLINT_COMMIT"), // set where releases are built
        "models": models,
    });
    json(StatusCode::OK, &body)
}

pub async fn metrics(State(app): State<App>) -> Result<Response, Failed> {
    let mut page = Page::default();
    app.server.gate.metrics.write(&mut page);
    turns(&app, &mut page);
    app.server.gate.journal.outbox().into_iter().for_each(|outbox| outbox.write(&mut page));
    let models = app.server.models.clone();
    let stats = blocking(move || models.into_iter().map(stats_of).collect::<Vec<_>>()).await?;
    engines(&stats, &mut page);
    let mut response = Response::new(Body::from(page.0));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

fn turns(app: &App, page: &mut Page) {
    let (gate, models) = (&app.server.gate, &app.server.models);
    page.family("flint_turns_running", "gauge", "Turns that have a slot.");
    for model in models {
        page.sample("flint_turns_running", &label("model", &model.name), gate.running(&model.name));
    }
    page.family("flint_queue_depth", "gauge", "Turns that wait for a slot.");
    for model in models {
        for class in Class::ALL {
            let labels = format!("{},{}", label("model", &model.name), label("class", class.name()));
            page.sample("flint_queue_depth", &labels, gate.waiting(&model.name, class));
        }
    }
}

/// An engine that does not answer in time has nothing to show but its deaths.
fn stats_of(model: Arc<Model>) -> (Arc<Model>, Option<Stats>) {
    let stats = model.engine.stats(Duration::from_millis(STATS_WAIT_MS_MAX)).ok();
    (model, stats)
}

fn engines(all: &[(Arc<Model>, Option<Stats>)], page: &mut Page) {
    let known = || all.iter().filter_map(|(model, stats)| Some((model.name.as_str(), stats.as_ref()?)));
    let help = "Blocks of the KV pool: used by a running sequence, kept by an idle one, cached, or free.";
    page.family("flint_kv_blocks", "gauge", help);
    for (model, stats) in known() {
        let Stats { blocks, blocks_running, blocks_free, blocks_cached, .. } = *stats;
        let kept = blocks.saturating_sub(blocks_running + blocks_free + blocks_cached);
        let states =
            [("used", blocks_running), ("idle", kept), ("cached", blocks_cached), ("free", blocks_free)];
        by_label(page, "flint_kv_blocks", model, "state", &states);
    }
    page.family("flint_sequences", "gauge", "Sequences that the engine knows: running, or idle and warm.");
    for (model, stats) in known() {
        let idle = stats.sequences.saturating_sub(stats.sequences_running);
        let states = [("running", stats.sequences_running), ("idle", idle)];
        by_label(page, "flint_sequences", model, "state", &states);
    }
    page.family("flint_steps_total", "counter", "Forward passes of the worker that runs now.");
    for (model, stats) in known() {
        page.sample("flint_steps_total", &label("model", model), stats.steps);
    }
    page.family("flint_rows_total", "counter", "Tokens that the worker that runs now has computed.");
    for (model, stats) in known() {
        let kinds = [("prefill", stats.rows_prefilled), ("decode", stats.rows_decoded)];
        by_label(page, "flint_rows_total", model, "kind", &kinds);
    }
    page.family("flint_drafted_total", "counter", "Tokens that were guessed before they were computed.");
    for (model, stats) in known() {
        let wrong = stats.rows_drafted.saturating_sub(stats.rows_accepted);
        by_label(
            page,
            "flint_drafted_total",
            model,
            "guess",
            &[("right", stats.rows_accepted), ("wrong", wrong)],
        );
    }
    page.family("flint_worker_deaths_total", "counter", "Times that a worker has died and was restarted.");
    for (model, _) in all {
        page.sample("flint_worker_deaths_total", &label("model", &model.name), model.engine.deaths());
    }
}

/// A sample for each value of one label.
fn by_label(page: &mut Page, name: &str, model: &str, key: &str, values: &[(&str, u64)]) {
    for (value, count) in values {
        page.sample(name, &format!("{},{}", label("model", model), label(key, value)), count);
    }
}
