//! What outlives the process: responses and their events.
//!
//! `Store` is the seam: a transaction of writes, and a few reads. `Archive` is how the server uses one: a thread
//! commits whatever waits in one transaction, and only then lets readers see it. So no client knows of an event
//! that a killed server would have to invent anew.

mod archive;
mod pen;
mod queue;
mod scribe;
#[cfg(test)]
mod scribe_tests;
mod sqlite;
#[cfg(test)]
mod sqlite_tests;
mod tail;
pub mod tape;

pub use archive::{Archive, unreadable};
pub use pen::Pen;
pub use queue::Entry;
pub use scribe::not_stored;
pub use sqlite::Sqlite;
pub use tail::Tail;

use crate::log::Frame;
use flint_engine::message::Tenant;
use flint_wire::{ApiError, Status};
use std::fmt::Debug;

/// A response as it begins: all that is needed to make it again from there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub id: String,
    pub tenant: Tenant,
    pub model: String,
    pub weights: String, // sha256
    pub created_at: u64, // unix seconds
    pub seed: u64,
    pub previous: Option<String>,
    pub history: Option<String>, // JSON items before the input, where `previous` is not stored
    pub input: String,           // JSON items
    pub request: String,         // JSON, without its input
    pub prompt: Vec<u32>,
    pub response: String, // JSON
}

/// What readers, and turns that follow, want of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub status: Status,
    pub previous: Option<String>,
    pub history: Option<String>,
    pub input: String,
    pub response: String, // JSON, as it began or as it ended
}

/// How far a response had come when the process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    pub next: u64,     // number of the first event that is not stored
    pub tape: Vec<u8>, // the tokens behind those that are
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    Begin(Box<Record>),
    /// Events that belong together: all of them become readable, or none.
    Append(Append),
    Delete {
        id: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Append {
    pub id: String,
    pub frames: Vec<Frame>,
    pub tape: Vec<u8>, // the tokens that were consumed for them
    pub ending: Option<Ending>,
}

/// A response as it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    pub status: Status,
    pub response: String, // JSON
}

/// Why nothing could be written or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("there is no room left: {0}")]
    Full(String),
    #[error("the store failed: {0}")]
    Failed(String),
}

impl StoreError {
    /// The answer to a request that cannot be done without the store.
    pub fn refusal(&self) -> ApiError {
        let advice = "Send \"store\": false, or try again when this is mended";
        let message = format!("the response cannot be stored: {self}. {advice}");
        ApiError { code: "store_unavailable", ..ApiError::overloaded(message, 30) }
    }
}

/// Where responses are kept. Blocks: nothing that must not wait calls it directly.
pub trait Store: Debug + Send + Sync {
    /// All of these, in order, or none. They survive the process when this returns.
    fn write(&self, writes: &[&Write]) -> Result<(), StoreError>;
    /// Deletes the oldest finished responses if the store has grown too large.
    fn trim(&self) -> Result<(), StoreError>;
    fn kept(&self, id: &str, tenant: Tenant) -> Result<Option<Kept>, StoreError>;
    /// Some events from number `from` on, in order; none if there are none yet.
    fn events(&self, id: &str, from: u64) -> Result<Vec<Frame>, StoreError>;
    /// The responses that have not ended, the oldest first.
    fn unfinished(&self) -> Result<Vec<String>, StoreError>;
    fn record(&self, id: &str) -> Result<Option<(Record, Progress)>, StoreError>;
}
