//! One request for each turn, its answer as server-sent events: for servers without a WebSocket.
//!
//! The request blocks a thread of its own, which ends when nobody wants its events any more.

use super::ClientError;
use crate::limits::{BODY_BYTES_MAX, EVENTS_WAITING_MAX, FRAME_BYTES_MAX};
use crate::provider::Provider;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use tokio::sync::mpsc;
use ureq::{RequestBuilder, http};

#[derive(Debug)]
pub struct Stream {
    events: mpsc::Receiver<Result<Value, ClientError>>,
}

/// What is to be streamed.
#[derive(Debug)]
pub enum Wanted {
    /// A response to this request.
    New(Value),
    /// One that runs, after the event of this number.
    Rest { response: String, after: u64 },
}

impl Stream {
    pub fn open(provider: &Provider, wanted: Wanted) -> Stream {
        let (sender, events) = mpsc::channel(EVENTS_WAITING_MAX);
        let provider = provider.clone();
        std::thread::spawn(move || {
            if let Err(error) = stream(&provider, &wanted, &sender) {
                // Who is gone needs no error.
                let _ = sender.blocking_send(Err(error));
            }
        });
        Stream { events }
    }

    /// The next event. Whoever stops waiting loses none.
    pub async fn next(&mut self) -> Result<Value, ClientError> {
        let ended = || Err(ClientError::Lost { why: "the stream ended before the response".to_owned() });
        self.events.recv().await.unwrap_or_else(ended)
    }
}

/// A JSON document by GET.
pub fn get(provider: &Provider, path: &str) -> Result<Value, ClientError> {
    let answer = with_head(provider, agent(provider).get(provider.url(path))).call();
    body(provider, answer.map_err(|error| unreachable(provider, &error))?)
}

/// A JSON document in answer to another.
pub fn post(provider: &Provider, path: &str, said: &Value) -> Result<Value, ClientError> {
    let request = with_head(provider, agent(provider).post(provider.url(path)));
    let answer = request.header("content-type", "application/json").send(said.to_string());
    body(provider, answer.map_err(|error| unreachable(provider, &error))?)
}

/// Ends a response that nobody listens to any more. If that fails it ends by itself, later.
pub fn cancel(provider: &Provider, response: &str) {
    let path = format!("responses/{response}/cancel");
    let request = with_head(provider, agent(provider).post(provider.url(&path)));
    let _ = request.send_empty();
}

fn stream(
    provider: &Provider,
    wanted: &Wanted,
    events: &mpsc::Sender<Result<Value, ClientError>>,
) -> Result<(), ClientError> {
    let answer = match wanted {
        Wanted::New(body) => {
            let request = with_head(provider, agent(provider).post(provider.url("responses")));
            let request = request.header("accept", "text/event-stream");
            request.header("content-type", "application/json").send(body.to_string())
        }
        Wanted::Rest { response, after } => {
            let path = format!("responses/{response}?stream=true&starting_after={after}");
            let request = with_head(provider, agent(provider).get(provider.url(&path)));
            request.header("accept", "text/event-stream").call()
        }
    };
    let answer = answer.map_err(|error| unreachable(provider, &error))?;
    if !answer.status().is_success() {
        let status = answer.status().as_u16();
        let said = self::body(provider, answer).unwrap_or_default();
        return Err(ClientError::of_status(provider, status, said));
    }
    let mut lines = BufReader::new(answer.into_body().into_reader());
    let mut data = String::new();
    while let Some(line) = next_line(&mut lines)? {
        if let Some(more) = line.strip_prefix("data:") {
            data += more.strip_prefix(' ').unwrap_or(more);
        } else if line.is_empty() && !data.is_empty() {
            let event = serde_json::from_str(&data).unwrap_or_default();
            data.clear();
            if events.blocking_send(Ok(event)).is_err() {
                return Ok(());
            }
        }
        if data.len() > FRAME_BYTES_MAX {
            return Err(ClientError::Lost { why: format!("an event has more than {FRAME_BYTES_MAX} bytes") });
        }
    }
    Ok(())
}

/// Who asks, and by which key.
fn with_head<B>(provider: &Provider, request: RequestBuilder<B>) -> RequestBuilder<B> {
    let request = request.header("user-agent", super::USER_AGENT);
    match &provider.key {
        Some(key) => request.header("authorization", key.bearer()),
        None => request,
    }
}

fn next_line(from: &mut impl BufRead) -> Result<Option<String>, ClientError> {
    let mut line = Vec::new();
    let read = from.by_ref().take(FRAME_BYTES_MAX as u64).read_until(b'\n', &mut line);
    match read.map_err(|error| ClientError::Lost { why: error.to_string() })? {
        0 => Ok(None),
        _ => Ok(Some(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned())),
    }
}

fn agent(provider: &Provider) -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_connect(Some(provider.connect))
        .timeout_recv_response(Some(provider.idle));
    config.build().into()
}

fn body(provider: &Provider, mut answer: http::Response<ureq::Body>) -> Result<Value, ClientError> {
    let status = answer.status();
    let read = answer.body_mut().with_config().limit(BODY_BYTES_MAX).read_to_vec();
    let bytes = read.map_err(|error| unreachable(provider, &error))?;
    let json: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    match status.is_success() {
        true => Ok(json),
        false => Err(ClientError::of_status(provider, status.as_u16(), json)),
    }
}

fn unreachable(provider: &Provider, error: &ureq::Error) -> ClientError {
    ClientError::Unreachable { address: provider.base_url.clone(), why: error.to_string() }
}
