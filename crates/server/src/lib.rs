//! The server: HTTP, SSE and WebSocket in front of the engine.
//!
//! Read `turn.rs` first: it is the way of one request. `http` and `ws` are the two doors to it.

#![forbid(unsafe_code)]

mod admit;
mod ask;
mod data;
pub mod database;
mod decode;
mod drain;
mod ear;
mod enrol;
mod gate;
mod grammar;
mod guard;
mod history;
mod holds;
mod http;
mod ids;
mod items;
pub mod keys;
pub mod limits;
mod listen;
mod log;
mod messages;
mod metrics;
mod model;
mod note;
mod otlp;
mod pace;
mod prepare;
mod prompt;
mod recent;
mod registry;
mod resume;
mod sampling;
mod server;
mod sessions;
mod store;
mod tail;
mod ticket;
mod tls;
mod toolbook;
mod trace;
mod truth;
mod turn;
pub mod usage;
mod writer;
mod ws;

pub use admit::{Limits, Rule};
pub use data::{Data, DataError};
pub use ear::listener;
pub use gate::{Gate, Rules};
pub use listen::listen;
pub use model::{Facts, Model, Truth};
pub use note::{Journal, Style};
pub use otlp::{Collector, CollectorError, Outbox};
pub use pace::Pace;
pub use server::{Server, Settings};
pub use tls::{Tls, TlsError};

use axum::Router;
use axum::serve::{Listener, ListenerExt};
use guard::{Guard, Names};
use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// How the server is to be reached.
pub struct Front {
    pub allow_hosts: Vec<String>,   // besides its own address and loopback
    pub allow_origins: Vec<String>, // of pages in browsers
    pub websockets: bool,           // or only HTTP
    pub tls: Option<Tls>,
    pub drain: Duration,        // what runs is given to end, once the server is to
    pub idle: Option<Duration>, // without a guest, after which the server ends by itself
}

/// When nobody was there for so long; never, where nothing is said.
async fn idle(drain: &drain::Drain, long: Option<Duration>) {
    match long {
        Some(long) => drain.idle(long).await,
        None => std::future::pending().await,
    }
}

/// Goes on with what an earlier process left unfinished, and serves until `shutdown` resolves. Then nothing new
/// begins, and what runs is given time to end.
pub async fn run(
    server: Server,
    front: Front,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let gate = server.gate.clone();
    let address = listener.local_addr()?;
    gate.journal.serves_at(address);
    let names = Names::new(address, front.tls.is_some(), &front.allow_hosts, &front.allow_origins);
    let server = Arc::new(server);
    // Before anyone can ask: a response must not look as if nobody were making it.
    server.resume().await;
    let app = http::App { server, websockets: front.websockets };
    let router = http::router(app, Guard { keys: gate.keys.clone(), names });
    let books = tokio::spawn(gate::keep_books(gate.books.clone()));
    let ending = gate.clone();
    let stop = async move {
        tokio::select! {
            () = shutdown => {}
            () = idle(&ending.drain, front.idle) => {}
        }
        ending.drain.begin();
    };
    let served = async {
        match front.tls {
            Some(tls) => serve(tls.listen(listener)?, router, stop).await?,
            None => {
                // Without it the kernel holds small frames back; a socket that refuses is only slower.
                let quick = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
                serve(quick, router, stop).await?;
            }
        }
        gate.drain.empty().await;
        Ok(())
    };
    let too_long = async {
        gate.drain.begun().await;
        tokio::time::sleep(front.drain).await;
    };
    let served = tokio::select! {
        served = served => served,
        () = too_long => Ok(()),
    };
    books.abort();
    let journal = gate.journal.clone();
    let flush = move || journal.outbox().into_iter().for_each(Outbox::flush);
    tokio::task::spawn_blocking(flush).await.map_err(io::Error::other)?;
    gate.books.write().map_err(io::Error::other)?;
    served
}

async fn serve<L: Listener<Addr: Debug>>(
    listener: L,
    router: Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener, router).with_graceful_shutdown(shutdown).await
}
