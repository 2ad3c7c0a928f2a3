//! Where the events of one response go.

use super::queue::{Entry, Queue, Then};
use super::{Append, Archive, Ending, Write, tape};
use crate::decode::Sampled;
use crate::log::Frame;
use crate::registry::Registry;
use crate::turn::Running;
use std::sync::Arc;

pub struct Pen {
    running: Arc<Running>,
    place: Place,
}

enum Place {
    /// To the readers at once.
    Log(Arc<Registry>),
    /// To the store, and from there to the readers.
    Store { queue: Arc<Queue>, tape: Vec<u8> },
}

impl Pen {
    pub fn unstored(running: Arc<Running>, registry: Arc<Registry>) -> Pen {
        Pen { running, place: Place::Log(registry) }
    }

    /// For a response that the store knows.
    pub fn stored(running: Arc<Running>, archive: &Archive) -> Pen {
        Pen { running, place: Place::Store { queue: archive.queue.clone(), tape: Vec::new() } }
    }

    pub fn is_stored(&self) -> bool {
        matches!(self.place, Place::Store { .. })
    }

    /// Notes a token that the next events will be made of.
    pub fn hear(&mut self, sampled: &Sampled<'_>) {
        if let Place::Store { tape, .. } = &mut self.place {
            tape::record(sampled, tape);
        }
    }

    /// Events that belong together, and how the response ended if these are its last.
    pub fn write(&mut self, frames: Vec<Frame>, ending: impl FnOnce() -> Option<Ending>) {
        let entry = self.entry(frames, ending);
        if let (Some(entry), Place::Store { queue, .. }) = (entry, &self.place) {
            queue.put(entry);
        }
    }

    /// The same, but what goes to the store is left to the caller, who has more to be stored with it.
    pub fn entry(&mut self, frames: Vec<Frame>, ending: impl FnOnce() -> Option<Ending>) -> Option<Entry> {
        if frames.is_empty() {
            return None;
        }
        match &mut self.place {
            Place::Log(registry) => {
                // Who reads the last event may ask for it again, and must not find it running.
                if frames.iter().any(|frame| frame.last) {
                    registry.ended(&self.running.id);
                }
                self.running.log.push(frames);
                None
            }
            Place::Store { tape, .. } => {
                let (id, tape) = (self.running.id.clone(), std::mem::take(tape));
                let write = Write::Append(Append { id, frames, tape, ending: ending() });
                Some(Entry { write, then: Then::Publish(self.running.clone()) })
            }
        }
    }

    /// Resolves when there is room for more.
    pub async fn room(&self) {
        match &self.place {
            Place::Log(_) => {}
            Place::Store { queue, .. } => queue.room().await,
        }
    }
}
