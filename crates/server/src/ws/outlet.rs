//! The writing half of a connection.

use super::watch::Watch;
use crate::limits::{SOCKET_FRAMES_WAITING_MAX, SOCKET_UNSENT_BYTES_MAX};
use crate::log::{Frame, Read};
use crate::store::Tail;
use axum::extract::ws::{Message, Utf8Bytes, WebSocket};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, SplitSink};
use futures_util::{FutureExt, SinkExt, StreamExt};
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

/// What is to be done next.
enum Task {
    Order(Order),
    Told(Flow, Read),
}

/// The client is gone, or has to go.
struct Gone;

/// The socket, and the responses that go out on it.
struct Writing {
    sink: Sink,
    unsent_bytes: usize, // written, but not given to the kernel yet
    flows: FuturesUnordered<BoxFuture<'static, (Flow, Read)>>,
}

async fn write(sink: Sink, mut orders: mpsc::Receiver<Order>) {
    let mut writing = Writing { sink, unsent_bytes: 0, flows: FuturesUnordered::new() };
    while let Ok(task) = writing.next(&mut orders).await
        && writing.perform(task).await.is_ok()
    {}
    let Writing { mut sink, flows, .. } = writing;
    // Before the client's leave is waited for: what is made for it only stops, and nothing more begins.
    orders.close();
    drop(flows);
    let _ = sink.close().await;
}

impl Writing {
    /// What comes next. What is written goes out together, as soon as nothing more is ready.
    async fn next(&mut self, orders: &mut mpsc::Receiver<Order>) -> Result<Task, Gone> {
        if self.unsent_bytes > 0 {
            match self.ready(orders).now_or_never() {
                Some(task) => return task,
                None => self.send().await?,
            }
        }
        self.ready(orders).await
    }

    async fn ready(&mut self, orders: &mut mpsc::Receiver<Order>) -> Result<Task, Gone> {
        tokio::select! {
            order = orders.recv() => order.map(Task::Order).ok_or(Gone),
            Some((flow, read)) = self.flows.next() => Ok(Task::Told(flow, read)),
        }
    }

    async fn perform(&mut self, task: Task) -> Result<(), Gone> {
        match task {
            Task::Order(Order::Frame(frame)) => self.put(frame.to_string().into()).await,
            Task::Order(Order::Response(flow)) => {
                self.flows.push(told(flow).boxed());
                Ok(())
            }
            Task::Told(flow, Read::Frame(frame)) => self.event(flow, frame).await,
            Task::Told(_, Read::End) => Ok(()),
            // The client has read too slowly to be told everything.
            Task::Told(_, Read::Lost) | Task::Order(Order::Close) => Err(Gone),
        }
    }

    /// Writes an event of a response.
    async fn event(&mut self, mut flow: Flow, frame: Frame) -> Result<(), Gone> {
        self.put(encode(frame.json, flow.stream.as_deref())).await?;
        if let (Some(watch), Some(at)) = (&mut flow.watch, frame.token_at) {
            self.send().await?;
            watch.written(at);
        }
        if !frame.last {
            self.flows.push(told(flow).boxed());
            return Ok(());
        }
        self.send().await?;
        let Flow { stream, watch, done, .. } = flow;
        if let Some(watch) = watch {
            self.put(watch.event(stream.as_deref()).to_string().into()).await?;
            self.send().await?;
        }
        let _ = done.send(());
        Ok(())
    }

    /// Writes a message; it is sent at the latest when `SOCKET_UNSENT_BYTES_MAX` wait.
    async fn put(&mut self, text: Utf8Bytes) -> Result<(), Gone> {
        self.unsent_bytes += text.len();
        self.sink.feed(Message::Text(text)).await.map_err(|_| Gone)?;
        if self.unsent_bytes > SOCKET_UNSENT_BYTES_MAX { self.send().await } else { Ok(()) }
    }

    async fn send(&mut self) -> Result<(), Gone> {
        self.unsent_bytes = 0;
        self.sink.flush().await.map_err(|_| Gone)
    }
}

async fn told(mut flow: Flow) -> (Flow, Read) {
    let read = flow.reader.next().await;
    (flow, read)
}

/// The event, with its lane's name if it has one.
fn encode(json: Bytes, stream: Option<&str>) -> Utf8Bytes {
    let json = match stream {
        None => json,
        Some(stream) => {
            let name = Value::from(stream).to_string();
            let body = json.strip_suffix(b"}").unwrap_or(&json);
            Bytes::from([body, b",\"stream_id\":", name.as_bytes(), b"}"].concat())
        }
    };
    Utf8Bytes::try_from(json).unwrap_or_else(|_| Utf8Bytes::from_static("{}"))
}
