//! `/v1/responses` as a WebSocket: one connection, any number of lanes, each a conversation in order.
//!
//! Two tasks a connection. One reads frames and starts turns; the other writes, always the next event of
//! whichever lane has one. A client that reads slowly holds up its own socket only: responses go on in their
//! rings. What falls off its ring is read from the store; where the response is not stored, the connection ends.

mod lane;
mod limits;
mod outlet;
mod watch;

use crate::http::{App, Failed};
use crate::keys::Holder;
use crate::limits::{LANES_MAX, REQUEST_BYTES_MAX, SOCKET_CLOSE_SECONDS_MAX, SOCKET_READ_BYTES};
use crate::note::Note;
use crate::server::{Memory, Server};
use axum::Extension;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use flint_engine::message::Tenant;
use flint_wire::{ApiError, Frame};
use futures_util::StreamExt;
use futures_util::stream::SplitStream;
use lane::Lane;
use outlet::Outlet;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What the lanes of a connection share.
pub(super) struct Connection {
    pub server: Arc<Server>,
    pub memory: Arc<Memory>,
    pub tenant: Tenant,
    pub outlet: Outlet,
    pub is_codex: bool,
    pub timed: bool,                 // the client wants to know what its turns took
    pub traceparent: Option<String>, // of the upgrade
    pub turns: Turns,
    is_old: AtomicBool, // it has been open for its time
}

/// How many turns of a connection wait or run.
pub(super) type Turns = tokio::sync::watch::Sender<usize>;

impl Connection {
    /// Resolves when the server is to end and nothing is left to be done here.
    async fn drained(&self) {
        self.server.gate.drain.begun().await;
        self.quiet().await;
    }

    /// Resolves when it has been open for its time and what ran then has ended, or has had its time too.
    async fn expired(&self) {
        let pace = self.server.pace;
        tokio::time::sleep(pace.socket_open).await;
        self.is_old.store(true, Ordering::Relaxed);
        let _ = tokio::time::timeout(pace.socket_last_turns, self.quiet()).await;
    }

    /// Resolves when no turn waits or runs.
    async fn quiet(&self) {
        // The sender lives as long as this.
        let _ = self.turns.subscribe().wait_for(|turns| *turns == 0).await;
    }

    /// A connection that has been open for its time takes no more turns.
    fn check_age(&self) -> Result<(), ApiError> {
        match self.is_old.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(too_old()),
        }
    }
}

/// The upgrade; 426 to who asks for this path without one, or where there are none.
pub async fn upgrade(
    State(app): State<App>,
    Extension(holder): Extension<Holder>,
    request: Request,
) -> Response {
    if !app.websockets {
        let message = "WebSockets are switched off here: POST to the same path";
        let error = ApiError::bad_request("websockets_off", message);
        return Failed(ApiError { status: 426, ..error }).into_response();
    }
    let (mut parts, _) = request.into_parts();
    let is_codex = limits::wanted(&parts.headers);
    let timed = watch::wanted(&parts.headers);
    let traceparent = Note::current().map(|note| note.trace.header());
    match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
        Ok(upgrade) => upgrade
            .max_message_size(REQUEST_BYTES_MAX)
            .max_frame_size(REQUEST_BYTES_MAX)
            .read_buffer_size(SOCKET_READ_BYTES)
            .on_upgrade(move |socket| {
                let (sink, stream) = socket.split();
                let (outlet, writing) = outlet::open(sink);
                let (server, memory, tenant, turns) =
                    (app.server, Arc::default(), holder.tenant, Turns::new(0));
                let is_old = AtomicBool::new(false);
                serve(
                    Connection {
                        server,
                        memory,
                        tenant,
                        outlet,
                        is_codex,
                        timed,
                        traceparent,
                        turns,
                        is_old,
                    },
                    stream,
                    writing,
                )
            }),
        Err(_) => StatusCode::UPGRADE_REQUIRED.into_response(),
    }
}

async fn serve(
    connection: Connection,
    stream: SplitStream<WebSocket>,
    writing: impl Future<Output = ()> + Send + 'static,
) {
    let _guest = connection.server.gate.drain.guest();
    let connection = Arc::new(connection);
    let mut writer = tokio::spawn(writing);
    let last_frame = tokio::select! {
        () = read(&connection, stream) => None,
        () = connection.drained() => None,
        () = connection.expired() => Some(too_old().frame(None)),
    };
    let end = async {
        if let Some(frame) = last_frame {
            connection.outlet.frame(frame).await;
        }
        connection.outlet.close().await;
        // How the end comes makes no difference.
        let _ = (&mut writer).await;
    };
    // One that does not read its last frames is not waited for.
    if tokio::time::timeout(Duration::from_secs(SOCKET_CLOSE_SECONDS_MAX), end).await.is_err() {
        writer.abort();
    }
}

/// Clients know this code: they open another connection and send all they have.
fn too_old() -> ApiError {
    let message = "this connection has been open for as long as it may be: open another one";
    ApiError::bad_request("websocket_connection_limit_reached", message)
}

/// Reads until the client is gone.
async fn read(connection: &Arc<Connection>, mut stream: SplitStream<WebSocket>) {
    let mut lanes: HashMap<Option<String>, Lane> = HashMap::new();
    while let Some(Ok(message)) = stream.next().await {
        let text = match message {
            Message::Text(text) => text,
            Message::Binary(_) => {
                let error = ApiError::bad_request("invalid_frame", "frames are JSON text, not binary");
                connection.outlet.frame(error.frame(None)).await;
                continue;
            }
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) => continue,
        };
        match Frame::parse(&text) {
            Ok(frame) => hand_over(connection, &mut lanes, frame).await,
            Err(error) => connection.outlet.frame(error.frame(None)).await,
        }
    }
}

/// The lane that makes the response which a frame is about, or else the one that the frame names: a steer names a response
/// alone.
fn lane_of(lanes: &HashMap<Option<String>, Lane>, frame: &Frame) -> Option<String> {
    let makes = |response: &str| lanes.iter().find(|(_, lane)| lane.makes(response)).map(|(name, _)| name);
    let found = lane::response(frame).and_then(makes);
    found.cloned().unwrap_or_else(|| lane::name(frame))
}

async fn hand_over(connection: &Arc<Connection>, lanes: &mut HashMap<Option<String>, Lane>, frame: Frame) {
    let name = lane_of(lanes, &frame);
    if !lanes.contains_key(&name) {
        lanes.retain(|_, lane| !lane.is_idle());
        if lanes.len() >= LANES_MAX {
            let message = format!("this connection has {LANES_MAX} lanes already");
            let error = ApiError::limited(message, 1).frame(name.as_deref());
            return connection.outlet.frame(error).await;
        }
    }
    let lane = lanes.entry(name.clone()).or_insert_with(|| Lane::open(connection.clone(), name));
    lane.frame(frame).await;
}
