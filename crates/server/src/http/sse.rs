//! Events of a response as server-sent events.

use crate::log::{Frame, Read, Reader};
use crate::store::Tail;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use futures_util::stream;
use serde_json::Value;
use std::convert::Infallible;

/// All events that the reader will see, as the body of an answer.
pub fn events(reader: Tail) -> Response {
    let next = |reader: Option<Tail>| async move {
        let mut reader = reader?;
        match reader.next().await {
            Read::Frame(frame) => {
                let rest = (!frame.last).then_some(reader);
                Some((Ok::<_, Infallible>(encode(&frame)), rest))
            }
            // The connection ends without a last event: the client knows that it has missed some.
            Read::Lost | Read::End => None,
        }
    };
    stream_of(Body::from_stream(stream::unfold(Some(reader), next)))
}

/// The same response in another shape: what `chunks` makes of each event, then `[DONE]`.
pub fn chunks<F>(reader: Reader, chunks: F) -> Response
where
    F: FnMut(&Value) -> Vec<Value> + Send + 'static,
{
    let next = |state: Option<(Reader, F)>| async move {
        let (mut reader, mut chunks) = state?;
        let Read::Frame(frame) = reader.next().await else { return None };
        let event = serde_json::from_slice(&frame.json).unwrap_or_default();
        let mut text = String::new();
        for chunk in chunks(&event) {
            text.push_str("data: ");
            text.push_str(&chunk.to_string());
            text.push_str("\n\n");
        }
        if frame.last {
            text.push_str("data: [DONE]\n\n");
        }
        let rest = (!frame.last).then_some((reader, chunks));
        Some((Ok::<_, Infallible>(Bytes::from(text)), rest))
    };
    stream_of(Body::from_stream(stream::unfold(Some((reader, chunks)), next)))
}

fn stream_of(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

fn encode(frame: &Frame) -> Bytes {
    let kind = kind(&frame.json);
    let mut text = Vec::with_capacity(frame.json.len() + kind.len() + 24);
    text.extend_from_slice(b"event: ");
    text.extend_from_slice(kind);
    text.extend_from_slice(b"\ndata: ");
    text.extend_from_slice(&frame.json);
    text.extend_from_slice(b"\n\n");
    Bytes::from(text)
}

/// The type of an event, which its JSON begins with.
fn kind(json: &[u8]) -> &[u8] {
    let rest = json.strip_prefix(b"{\"type\":\"").unwrap_or_default();
    rest.split(|&byte| byte == b'"').next().unwrap_or_default()
}
