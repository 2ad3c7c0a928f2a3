//! The caller's end of one generation: its events in order.

use super::Handle;
use crate::message::{Event, SequenceId};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// A running generation. Dropping it cancels; the sequence stays.
pub struct Generation {
    sequence: SequenceId,
    queue: Arc<Queue>,
    handle: Handle,
}

/// An event, and when the worker's word of it was here.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    pub event: Event,
    pub at: Instant,
}

/// Nothing happened in the time given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the engine told nothing about this generation in time")]
pub struct TimedOut;

/// Events that the caller has not taken yet. It never blocks the writer: a generation tells at most a few
/// events more than the tokens it was allowed, and that is its bound.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    events: VecDeque<Told>,
    closed: bool,
    waker: Option<Waker>, // of the task that waits, if the caller is one
    waiting: u32,         // threads
}

impl Generation {
    pub(super) fn new(sequence: SequenceId, queue: Arc<Queue>, handle: Handle) -> Generation {
        Generation { sequence, queue, handle }
    }

    pub fn sequence(&self) -> SequenceId {
        self.sequence
    }

    /// The next event; none after the last one.
    pub fn next_within(&self, limit: Duration) -> Result<Option<Event>, TimedOut> {
        self.queue.pop(Some(Instant::now() + limit))
    }

    /// The same for a task of any executor. One task at a time can wait.
    pub async fn next_event(&self) -> Option<Event> {
        self.next_told().await.map(|told| told.event)
    }

    /// The same, with the time at which this process knew of it.
    pub async fn next_told(&self) -> Option<Told> {
        poll_fn(|context| self.queue.poll(context)).await
    }
}

impl Iterator for Generation {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.queue.pop(None).unwrap_or(None)
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if !self.queue.is_closed() {
            // A generation that has just ended, or lost its engine, needs no cancelling.
            let _ = self.handle.cancel(self.sequence);
        }
    }
}

impl Queue {
    pub(super) fn push(&self, event: Event) {
        let told = Told { event, at: Instant::now() };
        self.change(|state| state.events.push_back(told));
    }

    /// No event follows.
    pub(super) fn close(&self) {
        self.change(|state| state.closed = true);
    }

    fn change<F: FnOnce(&mut QueueState)>(&self, change: F) {
        let mut state = self.lock();
        change(&mut state);
        let (waker, waiting) = (state.waker.take(), state.waiting);
        drop(state);
        // A call of the kernel for nobody would be one at every token.
        if waiting > 0 {
            self.changed.notify_all();
        }
        waker.into_iter().for_each(Waker::wake);
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Option<Told>> {
        let mut state = self.lock();
        match state.events.pop_front() {
            Some(told) => Poll::Ready(Some(told)),
            None if state.closed => Poll::Ready(None),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.lock().closed
    }

    pub(super) fn pop(&self, deadline: Option<Instant>) -> Result<Option<Event>, TimedOut> {
        let mut state = self.lock();
        loop {
            if let Some(told) = state.events.pop_front() {
                return Ok(Some(told.event));
            }
            if state.closed {
                return Ok(None);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Err(TimedOut);
            }
            state.waiting += 1;
            state = match left {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
            state.waiting -= 1;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, QueueState> {
        // Every change is one push or one flag: a panic elsewhere cannot leave it half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
