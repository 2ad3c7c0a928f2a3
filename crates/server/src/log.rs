//! The events of one response: written once, read by any number of readers, each at its own pace.
//!
//! The writer never waits. It keeps what fits into `RING_BYTES_MAX` bytes; a reader that is further behind has lost
//! events, and must get them from the store or give up. What was written last does not count while a reader has all that
//! came before it: the end of a response says everything again, several times, at once.

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
    told: u64, // number of the event that the reader who is furthest wants next
    ended: bool,
}

impl State {
    /// Drops the oldest events, given the bytes of those that have just been added.
    fn shrink(&mut self, new_bytes: usize) {
        while self.bytes > RING_BYTES_MAX && self.frames.len() > 1 {
            let wanted = self.frames.front().is_some_and(|first| first.number == self.told);
            if wanted && self.bytes - new_bytes <= RING_BYTES_MAX {
                return;
            }
            let dropped = self.frames.pop_front().map_or(0, |frame| frame.bytes());
            self.bytes -= dropped;
        }
    }
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

    /// Adds events that are written together.
    pub fn push(&self, frames: Vec<Frame>) {
        let new_bytes = frames.iter().map(Frame::bytes).sum();
        let mut state = self.lock();
        for frame in frames {
            state.next = frame.number + 1;
            state.ended |= frame.last;
            state.bytes += frame.bytes();
            state.frames.push_back(frame);
        }
        state.shrink(new_bytes);
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
        let mut state = self.lock();
        let first = state.frames.front().map_or(state.next, |frame| frame.number);
        match number {
            number if number < first => Some(Read::Lost),
            number if number < state.next => {
                let frame = state.frames.get((number - first) as usize)?.clone();
                state.told = state.told.max(number + 1);
                Some(Read::Frame(frame))
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn frame(number: u64, bytes: usize) -> Frame {
        Frame { number, json: Bytes::from(vec![b'x'; bytes]), last: false, token_at: None }
    }

    /// The numbers of what a reader gets without waiting, and whether it has lost something.
    fn read(reader: &mut Reader) -> (Vec<u64>, bool) {
        let mut numbers = Vec::new();
        loop {
            match reader.next().now_or_never() {
                Some(Read::Frame(frame)) => numbers.push(frame.number),
                Some(Read::Lost) => return (numbers, true),
                Some(Read::End) | None => return (numbers, false),
            }
        }
    }

    const MOST: usize = RING_BYTES_MAX;

    #[test]
    fn who_has_read_everything_gets_an_end_that_is_larger_than_the_ring() {
        let log = Arc::new(Log::default());
        let mut reader = log.read(0);
        log.push((0..3).map(|number| frame(number, 100)).collect());
        assert_eq!(read(&mut reader), (vec![0, 1, 2], false));
        // One that it had no time for yet.
        log.push(vec![frame(3, 100)]);
        log.push((4..8).map(|number| frame(number, MOST)).collect());
        assert_eq!(read(&mut reader), ((3..8).collect(), false));
        assert!(log.lock().bytes > MOST);
        log.push(vec![frame(8, 100)]);
        assert!(log.lock().bytes <= MOST, "what was read is not kept");
    }

    #[test]
    fn who_does_not_read_costs_no_more_than_the_ring() {
        let log = Arc::new(Log::default());
        let mut reader = log.read(0);
        assert!(reader.next().now_or_never().is_none());
        let one = frame(0, MOST / 20).bytes();
        for number in 0..100 {
            log.push(vec![frame(number, MOST / 20)]);
            assert!(log.lock().bytes <= MOST + one);
        }
        assert!(log.lock().bytes <= MOST, "it has lost the first, so the last counts too");
        log.push((100..104).map(|number| frame(number, MOST / 2)).collect());
        assert!(log.lock().bytes <= MOST);
        assert_eq!(read(&mut reader), (vec![], true));
        // Nor does one that takes an end for which it was in time, and nothing more.
        reader.skip_to(103);
        assert_eq!(read(&mut reader), (vec![103], false));
        log.push((104..108).map(|number| frame(number, MOST / 2)).collect());
        log.push(vec![frame(108, 1)]);
        assert!(log.lock().bytes <= MOST);
    }
}
