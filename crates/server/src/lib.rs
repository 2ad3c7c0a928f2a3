//! The server: HTTP, SSE and WebSocket in front of the engine.
//!
//! Read `turn.rs` first: it is the way of one request. `http` and `ws` are the two doors to it.

#![forbid(unsafe_code)]

mod checked;
mod data;
pub mod database;
mod decode;
mod enrol;
mod grammar;
mod history;
mod http;
mod ids;
pub mod limits;
mod log;
mod model;
mod prepare;
mod prompt;
mod registry;
mod resume;
mod sampling;
mod server;
mod sessions;
mod store;
mod toolbook;
mod truth;
mod turn;
mod writer;
mod ws;

pub use checked::Checked;
pub use data::{Data, DataError};
pub use model::{Facts, Model, Truth};
pub use server::{Server, Settings};
pub use sessions::Sessions;

use std::future::Future;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Goes on with what an earlier process left unfinished, and serves until `shutdown` resolves.
pub async fn run(
    server: Server,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let server = Arc::new(server);
    // Before anyone can ask: a response must not look as if nobody were making it.
    server.resume().await;
    let router = http::router(server);
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        // Without it the kernel holds small frames back; a socket that refuses is only slower.
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router).with_graceful_shutdown(shutdown).await
}
