//! The events of one response: written once, read by any number of readers, each at its own pace.
//!
//! The writer never waits. It keeps what fits into `RING_BYTES_MAX` bytes; a reader that is further behind has lost
//! events, and must get them from the store or give up.

use crate::limits::RING_BYTES_MAX;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// One event as JSON text, `{"type":..,..,"sequence_number":..}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub number: u64,
    pub json: Bytes,
    pub last: bool,
    pub token_at: Option<Instant>, // when the token was known that it tells of, if it was made of one just now
}

/// What a frame takes besides its JSON: a place in the ring, which grows by doubling, and the allocator's share.
const FRAME_BYTES: usize = size_of::<Frame>() + 64;

impl Frame {
    fn bytes(&self) -> usize {
        self.json.len() + FRAME_BYTES
    }
}

#[derive(Debug, Default)]
pub struct Log {
    state: Mutex<State>,
    written: Notify,
    readers: AtomicUsize,
    left: Notify, // a reader
}

#[derive(Debug, Default)]
struct State {
    frames: VecDeque<Frame>,
    bytes: usize,
    next: u64, // number of the next event
    ended: bool,
}

/// What a reader finds.
#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    Frame(Frame),
    /// The event is no longer in memory: the reader was too slow, or came late.
    Lost,
    End,
}

impl Log {
    /// Of a response whose first events, up to number `next`, are elsewhere.
    pub fn starting_at(next: u64) -> Log {
        Log { state: Mutex::new(State { next, ..State::default() }), ..Log::default() }
    }

    pub fn push(&self, frame: Frame) {
        let mut state = self.lock();
        state.next = frame.number + 1;
        state.ended |= frame.last;
        state.bytes += frame.bytes();
        state.frames.push_back(frame);
        while state.bytes > RING_BYTES_MAX && state.frames.len() > 1 {
            let dropped = state.frames.pop_front().map_or(0, |frame| frame.bytes());
            state.bytes -= dropped;
        }
        drop(state);
        self.written.notify_waiters();
    }

    pub fn next_number(&self) -> u64 {
        self.lock().next
    }

    /// A reader of the events from number `from` on.
    pub fn read(self: &Arc<Log>, from: u64) -> Reader {
        self.readers.fetch_add(1, Ordering::AcqRel);
        Reader { log: self.clone(), next: from }
    }

    /// Resolves when there was a reader and there is none any more, and none comes back within `grace`.
    pub async fn abandoned(&self, grace: Duration) {
        loop {
            let left = self.left.notified();
            tokio::pin!(left);
            left.as_mut().enable();
            left.await;
            if self.has_readers() {
                continue;
            }
            if !grace.is_zero() {
                tokio::time::sleep(grace).await;
            }
            if !self.has_readers() {
                return;
            }
        }
    }

    fn has_readers(&self) -> bool {
        self.readers.load(Ordering::Acquire) > 0
    }

    fn find(&self, number: u64) -> Option<Read> {
        let state = self.lock();
        let first = state.frames.front().map_or(state.next, |frame| frame.number);
        match number {
            number if number < first => Some(Read::Lost),
            number if number < state.next => {
                let frame = state.frames.get((number - first) as usize)?;
                Some(Read::Frame(frame.clone()))
            }
            _ if state.ended => Some(Read::End),
            _ => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change keeps it consistent, whoever panics elsewhere.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One reader. Dropping it tells the writer.
#[derive(Debug)]
pub struct Reader {
    log: Arc<Log>,
    next: u64,
}

impl Reader {
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// Goes on after events that were got elsewhere.
    pub fn skip_to(&mut self, number: u64) {
        self.next = number;
    }

    /// The next event, as soon as there is one. May be dropped and called again.
    pub async fn next(&mut self) -> Read {
        loop {
            let written = self.log.written.notified();
            tokio::pin!(written);
            written.as_mut().enable();
            let log = self.log.clone();
            match log.find(self.next) {
                Some(read) => {
                    self.next += u64::from(matches!(read, Read::Frame(_)));
                    return read;
                }
                None => written.await,
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if self.log.readers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.log.left.notify_waiters();
            self.log.left.notify_one();
        }
    }
}
