//! What a turn holds from the moment it is admitted until it ends: a slot of its model or a place in the queue,
//! and the tokens that it was charged. Dropping it gives back what is left of these.

use crate::admit::{Ask, Entry};
use crate::drain::Guest;
use crate::gate::Gate;
use crate::note::{Answered, Note};
use crate::truth::Timing;
use crate::turn::now;
use crate::usage::Sum;
use flint_wire::{ApiError, Tier, Usage};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;

pub struct Ticket {
    gate: Arc<Gate>,
    ask: Ask,
    tier: Tier,
    entry: Entry,
    charged: u64,           // tokens that are not settled yet
    began: Option<Instant>, // to run
    note: Option<Arc<Note>>,
    _guest: Guest,
}

impl Ticket {
    pub(crate) fn new(
        gate: Arc<Gate>,
        ask: Ask,
        tier: Tier,
        entry: Entry,
        note: Option<Arc<Note>>,
    ) -> Ticket {
        let (charged, guest) = (ask.tokens, gate.drain.guest());
        Ticket { gate, ask, tier, entry, charged, began: None, note, _guest: guest }
    }

    /// How many turns are let in before this one, itself counted; nothing if it may run.
    pub fn position(&self) -> Option<usize> {
        self.gate.floor().position(&self.ask, self.entry)
    }

    /// Changes whenever the queue moves.
    pub fn moves(&self) -> watch::Receiver<()> {
        self.gate.moved().subscribe()
    }

    /// The turn runs now.
    pub fn begin(&mut self) {
        self.began.get_or_insert_with(Instant::now);
    }

    /// A response of the turn has ended and used this.
    pub fn spent(&mut self, response: &str, usage: Usage, timing: &Timing) {
        let Ticket { gate, ask, .. } = &*self;
        let used = u64::from(usage.input) + u64::from(usage.output);
        gate.floor().settle(gate.now_ns(), ask, self.charged, used);
        gate.metrics.turn(&ask.model, timing, usage);
        let sum = Sum::new(usage, &gate.price(&ask.model), self.tier);
        gate.books.add(ask.holder.tenant, &ask.model, now(), sum);
        if let Some(note) = &self.note {
            note.answered(Answered { response: response.to_owned(), usage, timing: *timing });
        }
        // A successor of a steered response owes all that it uses.
        self.charged = 0;
    }

    /// Gives up what it holds, but not what is noted of the request.
    pub fn leave(mut self) -> Option<Arc<Note>> {
        self.note.take()
    }

    /// A response of the turn came to nothing, which its status does not say once its head is out.
    pub fn failed(&self, error: &ApiError) {
        if let Some(note) = &self.note {
            note.failed(error.code);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Ticket { gate, ask, entry, charged, began, .. } = &*self;
        let mut floor = gate.floor();
        match began {
            // What never ran used nothing. What ran without telling keeps its charge.
            None => floor.settle(gate.now_ns(), ask, *charged, 0),
            Some(began) => floor.took(&ask.model, began.elapsed().as_millis() as u64),
        }
        floor.leave(ask, *entry);
        drop(floor);
        gate.moved().send_replace(());
    }
}
