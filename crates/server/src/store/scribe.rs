//! The store's thread: commits what waits, then tells who waits for it.
//!
//! When the store fails, a response that begins is refused. One that runs goes on to its readers without the
//! store: it is *lost* from then on, so that its stored events never have a hole, and its last event says so.

use super::queue::{Entry, Queue, Then};
use super::{Append, Store, StoreError, Write};
use crate::limits::STORE_ORPHANS_MAX;
use crate::log::Frame;
use crate::registry::Registry;
use bytes::Bytes;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

pub struct Scribe {
    store: Arc<dyn Store>,
    queue: Arc<Queue>,
    registry: Arc<Registry>,
    lost: HashMap<String, StoreError>, // responses that run on without the store
    orphans: Vec<String>,              // what is left of lost ones, to be deleted once the store works again
}

impl Scribe {
    pub fn new(store: Arc<dyn Store>, queue: Arc<Queue>, registry: Arc<Registry>) -> Scribe {
        Scribe { store, queue, registry, lost: HashMap::new(), orphans: Vec::new() }
    }

    pub fn run(mut self) {
        while let Some(entries) = self.queue.take() {
            self.round(entries);
        }
    }

    /// One transaction, and what follows from it.
    pub fn round(&mut self, entries: Vec<Entry>) {
        let grown = entries.iter().any(|entry| changes_size(&entry.write));
        let results = self.commit(&entries);
        let (committed, orphans) = (results.iter().any(Result::is_ok), self.orphans.len());
        for (entry, result) in entries.into_iter().zip(results) {
            self.conclude(entry, result);
        }
        // A new one may be all that the store has no room for.
        if committed || self.orphans.len() > orphans {
            self.bury_orphans();
        }
        if grown {
            // A store that cannot be made smaller fails at the next write, which has someone to tell.
            let _ = self.store.trim();
        }
    }

    /// All together; if that fails each alone, so that one that does not fit harms no other.
    fn commit(&mut self, entries: &[Entry]) -> Vec<Result<(), StoreError>> {
        let together: Vec<&Write> =
            entries.iter().map(|entry| &entry.write).filter(|write| self.loss(write).is_none()).collect();
        match together.is_empty() || self.store.write(&together).is_ok() {
            true => entries.iter().map(|entry| self.loss(&entry.write).map_or(Ok(()), Err)).collect(),
            false => entries.iter().map(|entry| self.commit_alone(&entry.write)).collect(),
        }
    }

    fn commit_alone(&mut self, write: &Write) -> Result<(), StoreError> {
        if let Some(error) = self.loss(write) {
            return Err(error);
        }
        let result = self.store.write(&[write]);
        if let (Err(error), Write::Append(append)) = (&result, write) {
            self.lost.insert(append.id.clone(), error.clone());
        }
        result
    }

    /// Why the store has no further place for this write's response, if so.
    fn loss(&self, write: &Write) -> Option<StoreError> {
        match write {
            Write::Append(append) => self.lost.get(&append.id).cloned(),
            Write::Begin(_) | Write::Delete { .. } => None,
        }
    }

    fn conclude(&mut self, entry: Entry, result: Result<(), StoreError>) {
        match (entry.then, entry.write) {
            // Whoever waited may have gone.
            (Then::Answer(answer), _) => drop(answer.send(result)),
            (Then::Publish(running), Write::Append(Append { id, frames, .. })) => {
                let (lost, last) = (result.err(), frames.iter().any(|frame| frame.last));
                let told = |frame: Frame| match &lost {
                    Some(error) if frame.last => with_loss(frame, error),
                    _ => frame,
                };
                running.log.push(frames.into_iter().map(told).collect());
                if last {
                    self.ended(&id);
                }
            }
            (Then::Publish(_), Write::Begin(_) | Write::Delete { .. }) => {}
        }
    }

    /// From now on the store knows the response better than its ring does.
    fn ended(&mut self, id: &str) {
        self.registry.ended(id);
        if self.lost.remove(id).is_some() && self.orphans.len() < STORE_ORPHANS_MAX {
            self.orphans.push(id.to_owned());
        }
    }

    fn bury_orphans(&mut self) {
        let store = &self.store;
        self.orphans.retain(|id| store.write(&[&Write::Delete { id: id.clone() }]).is_err());
    }
}

fn changes_size(write: &Write) -> bool {
    match write {
        Write::Begin(_) | Write::Delete { .. } => true,
        Write::Append(append) => append.ending.is_some(),
    }
}

/// The last event of a response that is not stored after all.
fn with_loss(frame: Frame, error: &StoreError) -> Frame {
    let Ok(mut event) = serde_json::from_slice::<Value>(&frame.json) else { return frame };
    if let Some(Value::Object(metadata)) = event.pointer_mut("/response/metadata") {
        metadata.insert("flint.stored".into(), not_stored(error).into());
    }
    Frame { json: Bytes::from(event.to_string()), ..frame }
}

/// What a response's metadata says when it was to be stored and is not.
pub fn not_stored(error: &StoreError) -> String {
    format!("no: {error}")
}
