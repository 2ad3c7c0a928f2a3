//! One request for each turn, its answer as server-sent events: for servers without a WebSocket.
//!
//! The request blocks a thread of its own, which ends when nobody wants its events any more.

use super::{ClientError, Incoming};
use crate::limits::{BODY_BYTES_MAX, EVENTS_WAITING_MAX, FRAME_BYTES_MAX};
use crate::provider::Provider;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use tokio::sync::mpsc;
use ureq::http;

#[derive(Debug)]
pub struct Stream {
    events: mpsc::Receiver<Result<Incoming, ClientError>>,
}

impl Stream {
    pub fn open(provider: &Provider, body: &Value) -> Stream {
        let (sender, events) = mpsc::channel(EVENTS_WAITING_MAX);
        let (provider, body) = (provider.clone(), body.to_string());
        std::thread::spawn(move || {
            if let Err(error) = stream(&provider, &body, &sender) {
                // Who is gone needs no error.
                let _ = sender.blocking_send(Err(error));
            }
        });
        Stream { events }
    }

    /// The next event. Whoever stops waiting loses none.
    pub async fn next(&mut self) -> Result<Incoming, ClientError> {
        let ended = || Err(ClientError::Lost { why: "the stream ended before the response".to_owned() });
        self.events.recv().await.unwrap_or_else(ended)
    }
}

/// A JSON document by GET.
pub fn get(provider: &Provider, path: &str) -> Result<Value, ClientError> {
    let mut request = agent(provider).get(provider.url(path));
    if let Some(key) = &provider.key {
        request = request.header("authorization", key.bearer());
    }
    let answer = request.header("user-agent", super::USER_AGENT).call();
    body(provider, answer.map_err(|error| unreachable(provider, &error))?)
}

fn stream(
    provider: &Provider,
    body: &str,
    events: &mpsc::Sender<Result<Incoming, ClientError>>,
) -> Result<(), ClientError> {
    let mut request = agent(provider).post(provider.url("responses"));
    if let Some(key) = &provider.key {
        request = request.header("authorization", key.bearer());
    }
    let request = request.header("user-agent", super::USER_AGENT).header("accept", "text/event-stream");
    let answer = request.header("content-type", "application/json").send(body);
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
            if events.blocking_send(Ok(Incoming::read(&event))).is_err() {
                return Ok(());
            }
        }
        if data.len() > FRAME_BYTES_MAX {
            return Err(ClientError::Lost { why: format!("an event has more than {FRAME_BYTES_MAX} bytes") });
        }
    }
    Ok(())
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
