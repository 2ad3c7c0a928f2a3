//! The server: HTTP, SSE and WebSocket in front of the engine.
//!
//! Read `turn.rs` first: it is the way of one request. `http` and `ws` are the two doors to it.

#![forbid(unsafe_code)]

mod checked;
pub mod database;
mod decode;
mod grammar;
mod http;
mod ids;
pub mod limits;
mod log;
mod model;
mod prepare;
mod prompt;
mod sampling;
mod server;
mod sessions;
mod toolbook;
mod truth;
mod turn;
mod writer;
mod ws;

pub use checked::Checked;
pub use model::{Facts, Model, Truth};
pub use server::Server;
pub use sessions::Sessions;

use std::future::Future;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Serves until `shutdown` resolves.
pub async fn run(
    server: Server,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let router = http::router(Arc::new(server));
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        // Without it the kernel holds small frames back; a socket that refuses is only slower.
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router).with_graceful_shutdown(shutdown).await
}
