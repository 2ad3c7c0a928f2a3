//! Hearing the engine's worker on the server's own threads: whoever sees that a token has come makes its event too.

use flint_engine::supervise::{Ear, Listener};
use std::io;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::runtime::Handle;

/// Listens on the threads of this runtime.
pub fn listener(runtime: Handle) -> Listener {
    Box::new(move |ear| {
        let _inside = runtime.enter();
        let link = UnixStream::from_std(ear.link().try_clone()?)?;
        runtime.spawn(listen(link, ear));
        Ok(())
    })
}

async fn listen(link: UnixStream, mut ear: Ear) {
    while link.readable().await.is_ok() {
        let heard_all = || if ear.hear() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) };
        if link.try_io(Interest::READABLE, heard_all).is_ok() {
            return;
        }
    }
}
