//! A response that is being made, as others see it, and what they can want of it.

use crate::ids::new_id;
use crate::limits::CONTROLS_WAITING_MAX;
use crate::log::Log;
use crate::store::{Store, Tail};
use crate::truth::Timing;
use flint_engine::message::Tenant;
use flint_wire::Item;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use tokio::sync::{mpsc, oneshot};

/// A response that is being made, as others see it.
#[derive(Debug)]
pub struct Running {
    pub id: String,
    pub tenant: Tenant,
    pub log: Arc<Log>,
    pub(super) controls: mpsc::Sender<Control>,
    pub(super) successor: OnceLock<Arc<Running>>,
    pub(super) position: AtomicUsize, // in the queue; 0: it does not wait
    pub(super) store: Option<Arc<dyn Store>>, // where it is kept, if it is to be
    pub(super) timing: OnceLock<Timing>,
}

/// What a client can want of a running response.
pub enum Control {
    /// Stop; what was written stays.
    Cancel,
    /// Stop; what was begun and is not done is forgotten.
    Interrupt,
    Steer {
        items: Vec<Arc<Item>>,
        answer: oneshot::Sender<Steered>,
    },
}

/// What becomes of a steer. The first two are told among the response's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steered {
    /// A successor begins as soon as the response has ended.
    Accepted,
    /// The response has called tools: the steer can only follow their outputs.
    Pending,
    /// There was nothing to steer.
    Late,
}

impl Running {
    pub(super) fn new(
        tenant: Tenant,
        controls: mpsc::Sender<Control>,
        store: Option<Arc<dyn Store>>,
    ) -> Running {
        let (id, log) = (new_id("resp"), Arc::default());
        let (successor, timing, position) = (OnceLock::new(), OnceLock::new(), AtomicUsize::new(0));
        Running { id, tenant, log, controls, successor, position, store, timing }
    }

    /// A response of an earlier process, whose events up to number `next` are in the store.
    pub fn again(
        id: String,
        tenant: Tenant,
        store: Arc<dyn Store>,
        next: u64,
    ) -> (Arc<Running>, mpsc::Receiver<Control>) {
        let (controls, receiver) = mpsc::channel(CONTROLS_WAITING_MAX);
        let running = Running::new(tenant, controls, Some(store));
        (Arc::new(Running { id, log: Arc::new(Log::starting_at(next)), ..running }), receiver)
    }

    /// Its events from number `from` on.
    pub fn read(&self, from: u64) -> Tail {
        Tail::live(self.id.clone(), self.log.read(from), self.store.clone())
    }

    /// The response that follows this one because it was steered; known before this one's last event is told, and only if
    /// it will be made.
    pub fn successor(&self) -> Option<Arc<Running>> {
        self.successor.get().cloned()
    }

    /// Where its time went; known before it ends, if the engine was asked.
    pub fn timing(&self) -> Option<Timing> {
        self.timing.get().copied()
    }

    /// Says what is wanted. A response that has just ended wants nothing any more.
    pub async fn control(&self, control: Control) {
        let _ = self.controls.send(control).await;
    }
}
