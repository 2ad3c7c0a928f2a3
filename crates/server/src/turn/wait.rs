//! Between a response's creation and its first work: waiting until its model has a slot.

use super::{Control, Turn};
use crate::limits::{HEARTBEAT_SECONDS, QUEUE_TOLD_SECONDS};
use crate::ticket::Ticket;
use flint_wire::Status;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// The response's metadata that says where in the queue it is.
const POSITION: &str = "flint.queue_position";

impl Turn {
    /// Creates the response, and returns when it may run; or false, when it was given up before.
    pub(super) async fn admitted(&mut self, controls: &mut mpsc::Receiver<Control>) -> bool {
        let Some(mut ticket) = self.ticket.take() else {
            self.writer.created();
            return true;
        };
        let runs = self.wait(&ticket, controls).await;
        if runs {
            ticket.begin();
            self.writer.response.metadata.remove(POSITION);
            self.ticket = Some(ticket);
        }
        runs
    }

    async fn wait(&mut self, ticket: &Ticket, controls: &mut mpsc::Receiver<Control>) -> bool {
        let mut moves = ticket.moves();
        let Some(position) = ticket.position() else {
            self.writer.created();
            return true;
        };
        self.stand_at(position);
        self.writer.created();
        self.tell_queued();
        let (since, mut told, mut steers) = (Instant::now(), (position, Instant::now()), Vec::new());
        let log = self.running.log.clone();
        let abandoned = log.abandoned();
        tokio::pin!(abandoned);
        while let Some(position) = ticket.position() {
            let again_s = if position == told.0 { HEARTBEAT_SECONDS } else { QUEUE_TOLD_SECONDS };
            let again = tokio::time::sleep_until((told.1 + Duration::from_secs(again_s)).into());
            tokio::select! {
                // The sender lives as long as the ticket.
                _ = moves.changed() => {}
                Some(control) = controls.recv() => match control {
                    // What can be steered is a response that runs: soon.
                    Control::Steer { .. } => steers.push(control),
                    Control::Cancel => return self.give_up(),
                    Control::Interrupt => {
                        self.writer.interrupt();
                        self.close();
                        return false;
                    }
                },
                () = &mut abandoned, if !self.request.background => return self.give_up(),
                () = again => {
                    told = (position, Instant::now());
                    self.stand_at(position);
                    self.tell_queued();
                }
            }
        }
        self.timing.queued = since.elapsed();
        for steer in steers {
            // They came out of this channel, so there is room; one that finds none is answered as too late.
            let _ = self.running.controls.try_send(steer);
        }
        true
    }

    fn stand_at(&mut self, position: usize) {
        self.writer.response.status = Status::Queued;
        self.writer.response.metadata.insert(POSITION.to_owned(), position.to_string().into());
    }

    fn tell_queued(&mut self) {
        self.writer.queued();
        self.flush();
    }

    fn give_up(&mut self) -> bool {
        self.end(Status::Cancelled, None);
        false
    }
}
