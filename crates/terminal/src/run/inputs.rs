//! Keys and signals.

use crate::limits::INPUTS_WAITING_MAX;
use crossterm::event::{Event, EventStream};
use futures_core::Stream;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long a stopped process may take to stop.
const STOP_TIME: Duration = Duration::from_secs(1);

/// What the person does, until it is dropped.
pub struct Inputs {
    pub receiver: Receiver<Event>,
    reader: JoinHandle<()>,
}

impl Inputs {
    pub fn read() -> Inputs {
        let (sender, receiver) = channel(INPUTS_WAITING_MAX);
        let reader = tokio::spawn(async move {
            let mut stream = EventStream::new();
            while let Some(Ok(event)) = poll_fn(|context| Pin::new(&mut stream).poll_next(context)).await {
                if sender.send(event).await.is_err() {
                    return;
                }
            }
        });
        Inputs { receiver, reader }
    }
}

impl Drop for Inputs {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

pub struct Signals {
    terminate: Signal,
    hang_up: Signal,
    interrupt: Signal,
    go_on: Signal,
}

impl Signals {
    pub fn listen() -> io::Result<Signals> {
        let go_on = SignalKind::from_raw(rustix::process::Signal::CONT.as_raw());
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            go_on: signal(go_on)?,
        })
    }

    /// The process is told to end.
    pub async fn end(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// After a stop: until the process goes on.
    pub async fn go_on(&mut self) {
        let _ = timeout(STOP_TIME, self.go_on.recv()).await;
    }
}
