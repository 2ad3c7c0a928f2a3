//! The server: HTTP, SSE and WebSocket in front of the engine.
//!
//! Read `turn.rs` first: it is the way of one request. `http` and `ws` are the two doors to it.

#![forbid(unsafe_code)]

mod checked;
pub mod database;
mod decode;
mod grammar;
mod guard;
mod http;
mod ids;
pub mod keys;
pub mod limits;
mod log;
mod model;
mod prepare;
mod prompt;
mod sampling;
mod server;
mod sessions;
mod tls;
mod toolbook;
mod truth;
mod turn;
mod writer;
mod ws;

pub use checked::Checked;
pub use model::{Facts, Model, Truth};
pub use server::Server;
pub use sessions::Sessions;
pub use tls::{Tls, TlsError};

use axum::Router;
use axum::serve::{Listener, ListenerExt};
use guard::{Guard, Names};
use keys::Ring;
use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::sync::Arc;
use tokio::net::TcpListener;

/// How the server is to be reached.
#[derive(Default)]
pub struct Front {
    pub allow_hosts: Vec<String>,   // besides its own address and loopback
    pub allow_origins: Vec<String>, // of pages in browsers
    pub tls: Option<Tls>,
}

/// Serves until `shutdown` resolves.
pub async fn run(
    server: Server,
    keys: Ring,
    front: Front,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let secure = front.tls.is_some();
    let names = Names::new(listener.local_addr()?, secure, &front.allow_hosts, &front.allow_origins);
    let router = http::router(Arc::new(server), Guard { keys: Arc::new(keys), names });
    match front.tls {
        Some(tls) => serve(tls.listen(listener)?, router, shutdown).await,
        None => {
            // Without it the kernel holds small frames back; a socket that refuses is only slower.
            let quick = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
            serve(quick, router, shutdown).await
        }
    }
}

async fn serve<L: Listener<Addr: Debug>>(
    listener: L,
    router: Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener, router).with_graceful_shutdown(shutdown).await
}
