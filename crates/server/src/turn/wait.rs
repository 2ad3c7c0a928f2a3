//! Between a response's creation and its first work: waiting until its model has a slot, and its sequence is free.

use super::{Control, Running, Steered, Turn};
use crate::limits::QUEUE_TOLD_SECONDS;
use crate::ticket::Ticket;
use crate::truth;
use flint_engine::supervise::Generation;
use flint_wire::Status;
use serde_json::Value;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// The response's metadata that says where in the queue it is.
const POSITION: &str = "flint.queue_position";

/// Says in a response that it waits.
pub fn stand_at(response: &mut Value, position: usize) {
    response["status"] = Status::Queued.name().into();
    response["metadata"][POSITION] = position.to_string().into();
}

impl Running {
    /// Where it stands in the queue, if it waits.
    pub fn position(&self) -> Option<usize> {
        Some(self.position.load(Ordering::Relaxed)).filter(|position| *position > 0)
    }
}

impl Turn {
    /// Returns when the response runs; or false, when it was given up before. One that must wait is created first.
    pub(super) async fn admitted(&mut self, controls: &mut mpsc::Receiver<Control>) -> bool {
        let mut ticket = self.ticket.take();
        let waits = ticket.as_ref().is_some_and(|ticket| ticket.position().is_some());
        if waits {
            self.describe();
        }
        match self.past.next {
            0 if waits => self.create(ticket.as_ref()),
            0 => {}
            // Whoever was told anything was told that it was created.
            next => self.writer.resume_at(next),
        }
        if let Some(ticket) = &mut ticket {
            if !self.wait(ticket, controls).await {
                return false;
            }
            ticket.begin();
        }
        if waits {
            self.writer.in_progress();
            self.flush();
        }
        self.ticket = ticket;
        true
    }

    /// Lets the response say what it was asked for and who serves it. It must before anyone is shown it.
    pub(crate) fn describe(&mut self) {
        if !std::mem::replace(&mut self.described, true) {
            let Turn { model, request, held, .. } = self;
            let response = &mut self.writer.response;
            response.metadata = truth::served(model, request, held);
            response.settings = request.settings();
        }
    }

    /// Creates the response, once the engine has been asked: nobody waits for these words as for those that it makes.
    pub(super) fn tell_begun(&mut self) {
        self.describe();
        if !self.is_told() {
            self.writer.created();
            self.writer.in_progress();
            self.flush();
        }
    }

    fn create(&mut self, ticket: Option<&Ticket>) {
        if let Some(position) = ticket.and_then(Ticket::position) {
            self.stand_at(position);
        }
        self.writer.created();
    }

    /// Until the ticket has a slot; false if nobody wants that any more.
    async fn wait(&mut self, ticket: &Ticket, controls: &mut mpsc::Receiver<Control>) -> bool {
        let mut moves = ticket.moves();
        let (since, mut told) = (Instant::now(), None);
        self.timing.queued_at = Some(since);
        let detached = self.request.background || self.past.resumed;
        let log = self.running.log.clone();
        let abandoned = log.abandoned(self.grace());
        tokio::pin!(abandoned);
        while let Some(position) = ticket.position() {
            let (said, at) = *told.get_or_insert_with(|| self.tell_position(position));
            let same = position == said;
            let again =
                if same { self.server.pace.heartbeat } else { Duration::from_secs(QUEUE_TOLD_SECONDS) };
            let again = tokio::time::sleep_until((at + again).into());
            tokio::select! {
                // The sender lives as long as the ticket.
                _ = moves.changed() => {}
                Some(control) = controls.recv() => match control {
                    // Only what runs can be steered; what has not begun can as well be asked anew.
                    Control::Steer { answer, .. } => drop(answer.send(Steered::Late)),
                    Control::Cancel => return self.give_up(),
                    Control::Interrupt => return self.interrupted(),
                },
                () = &mut abandoned, if !detached => return self.give_up(),
                () = again => told = None,
            }
        }
        if told.is_some() {
            self.timing.queued = since.elapsed();
        }
        self.running.position.store(0, Ordering::Relaxed);
        self.writer.response.metadata.remove(POSITION);
        true
    }

    /// Until a warm-up of its sequence is over, if one is under way; false if nobody wants the response any more. What it
    /// prefills is of use to the next turn all the same, so it goes on.
    pub(super) async fn warmed(
        &mut self,
        warming: &mut Option<Generation>,
        controls: &mut mpsc::Receiver<Control>,
    ) -> bool {
        let detached = self.request.background || self.past.resumed;
        let log = self.running.log.clone();
        let abandoned = log.abandoned(self.grace());
        tokio::pin!(abandoned);
        while let Some(generation) = &*warming {
            let heartbeat = tokio::time::sleep_until(self.silent_until().into());
            tokio::select! {
                biased;
                event = generation.next_event() => if event.is_none() { *warming = None },
                Some(control) = controls.recv() => match control {
                    Control::Steer { answer, .. } => drop(answer.send(Steered::Late)),
                    Control::Cancel => return self.give_up(),
                    Control::Interrupt => return self.interrupted(),
                },
                () = &mut abandoned, if !detached => return self.give_up(),
                () = heartbeat => self.beat(),
                // A long one is not waited for in silence.
                () = std::future::ready(()), if !self.is_told() => self.tell_begun(),
            }
        }
        true
    }

    fn is_told(&self) -> bool {
        self.writer.next_number() > 0
    }

    fn tell_position(&mut self, position: usize) -> (usize, Instant) {
        self.stand_at(position);
        self.writer.queued();
        self.flush();
        (position, Instant::now())
    }

    fn stand_at(&mut self, position: usize) {
        self.running.position.store(position, Ordering::Relaxed);
        self.writer.response.status = Status::Queued;
        self.writer.response.metadata.insert(POSITION.to_owned(), position.to_string().into());
    }

    fn give_up(&mut self) -> bool {
        self.running.position.store(0, Ordering::Relaxed);
        self.end(Status::Cancelled, None);
        false
    }

    fn interrupted(&mut self) -> bool {
        self.running.position.store(0, Ordering::Relaxed);
        self.writer.interrupt();
        self.close();
        false
    }
}
