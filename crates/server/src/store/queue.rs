//! Writes on their way to the store's thread.
//!
//! Putting one in never waits, so that a turn can do it anywhere; instead it waits for room, in one place, before
//! it takes the next token. So the queue holds at most `STORE_QUEUE_BYTES_MAX` and what each turn makes of one
//! token.

use super::{StoreError, Write};
use crate::limits::STORE_QUEUE_BYTES_MAX;
use crate::turn::Running;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};

pub struct Entry {
    pub write: Write,
    pub then: Then,
}

/// Who hears of it.
pub enum Then {
    /// Someone who waits for it.
    Answer(oneshot::Sender<Result<(), StoreError>>),
    /// The readers of a response.
    Publish(Arc<Running>),
}

#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    filled: Condvar,
    emptied: Notify,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    bytes: usize,
    closed: bool,
}

impl Queue {
    pub fn put(&self, entry: Entry) {
        self.put_together([entry]);
    }

    /// Entries of one transaction, in this order.
    pub fn put_together(&self, entries: impl IntoIterator<Item = Entry>) {
        let mut state = self.lock();
        for entry in entries {
            state.bytes += bytes(&entry.write);
            state.entries.push(entry);
        }
        drop(state);
        self.filled.notify_one();
    }

    /// Everything that waits, as soon as something does; none when nothing will come any more.
    pub fn take(&self) -> Option<Vec<Entry>> {
        let mut state = self.lock();
        while state.entries.is_empty() && !state.closed {
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.bytes = 0;
        let entries = std::mem::take(&mut state.entries);
        drop(state);
        self.emptied.notify_waiters();
        (!entries.is_empty()).then_some(entries)
    }

    /// Resolves when the store has kept up.
    pub async fn room(&self) {
        loop {
            let emptied = self.emptied.notified();
            tokio::pin!(emptied);
            emptied.as_mut().enable();
            if self.lock().bytes <= STORE_QUEUE_BYTES_MAX {
                return;
            }
            emptied.await;
        }
    }

    /// What waits is still taken; nothing else comes.
    pub fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change keeps it consistent, whoever panics elsewhere.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bytes(write: &Write) -> usize {
    match write {
        Write::Begin(record) => record.request.len() + record.input.len(),
        Write::Append(append) => append.frames.iter().map(|frame| frame.json.len()).sum(),
        Write::Delete { .. } => 0,
    }
}
