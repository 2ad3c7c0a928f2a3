//! The writing half of a connection.

use super::watch::Watch;
use crate::limits::SOCKET_FRAMES_WAITING_MAX;
use crate::log::Read;
use crate::store::Tail;
use axum::extract::ws::{Message, Utf8Bytes, WebSocket};
use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, SplitSink};
use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

/// Where frames and responses go that the client is to see.
#[derive(Debug, Clone)]
pub struct Outlet {
    orders: mpsc::Sender<Order>,
}

enum Order {
    Frame(Value),
    /// Write all events of a response, then say so.
    Response(Flow),
    Close,
}

impl Outlet {
    /// Sends one frame. A client that is gone gets nothing.
    pub async fn frame(&self, frame: Value) {
        let _ = self.orders.send(Order::Frame(frame)).await;
    }

    /// Sends all events of a response; the receiver hears when the last is out, or that it never will be.
    pub async fn response(
        &self,
        reader: Tail,
        stream: Option<String>,
        watch: Option<Watch>,
    ) -> oneshot::Receiver<()> {
        let (done, receiver) = oneshot::channel();
        let _ = self.orders.send(Order::Response(Flow { reader, stream, watch, done })).await;
        receiver
    }

    /// Whether nothing can reach the client any more.
    pub fn is_closed(&self) -> bool {
        self.orders.is_closed()
    }

    pub async fn close(&self) {
        let _ = self.orders.send(Order::Close).await;
    }
}

type Sink = SplitSink<WebSocket, Message>;

/// An outlet and the task that writes what goes into it.
pub fn open(sink: Sink) -> (Outlet, impl Future<Output = ()>) {
    let (orders, receiver) = mpsc::channel(SOCKET_FRAMES_WAITING_MAX);
    (Outlet { orders }, write(sink, receiver))
}

/// A response on its way out.
struct Flow {
    reader: Tail,
    stream: Option<String>,
    watch: Option<Watch>, // if the client asked for times
    done: oneshot::Sender<()>,
}

async fn write(mut sink: Sink, mut orders: mpsc::Receiver<Order>) {
    let mut flows = FuturesUnordered::new();
    loop {
        let message = tokio::select! {
            order = orders.recv() => match order {
                Some(Order::Frame(frame)) => Message::Text(frame.to_string().into()),
                Some(Order::Response(flow)) => {
                    flows.push(next(flow));
                    continue;
                }
                Some(Order::Close) | None => break,
            },
            Some((mut flow, read)) = flows.next() => match read {
                Read::Frame(frame) => {
                    let message = encode(frame.json, flow.stream.as_deref());
                    if sink.send(message).await.is_err() {
                        break;
                    }
                    if let (Some(watch), Some(at)) = (&mut flow.watch, frame.token_at) {
                        watch.written(at);
                    }
                    if !frame.last {
                        flows.push(next(flow));
                        continue;
                    }
                    let Flow { stream, watch, done, .. } = flow;
                    if let Some(watch) = watch
                        && sink.send(Message::Text(watch.event(stream.as_deref()).to_string().into())).await.is_err()
                    {
                        break;
                    }
                    let _ = done.send(());
                    continue;
                }
                Read::End => continue,
                // The client has read too slowly to be told everything.
                Read::Lost => break,
            },
        };
        if sink.send(message).await.is_err() {
            break;
        }
    }
    // Before the client's leave is waited for: what is made for it only stops, and nothing more begins.
    orders.close();
    drop(flows);
    let _ = sink.close().await;
}

async fn next(mut flow: Flow) -> (Flow, Read) {
    let read = flow.reader.next().await;
    (flow, read)
}

/// The event, with its lane's name if it has one.
fn encode(json: Bytes, stream: Option<&str>) -> Message {
    let json = match stream {
        None => json,
        Some(stream) => {
            let name = Value::from(stream).to_string();
            let body = json.strip_suffix(b"}").unwrap_or(&json);
            Bytes::from([body, b",\"stream_id\":", name.as_bytes(), b"}"].concat())
        }
    };
    match Utf8Bytes::try_from(json) {
        Ok(text) => Message::Text(text),
        Err(_) => Message::Text(Utf8Bytes::from_static("{}")),
    }
}
