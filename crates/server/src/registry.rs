//! The responses that are being made, or have ended and are not yet safe in the store.

use crate::turn::Running;
use flint_engine::message::Tenant;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub struct Registry {
    running: Mutex<HashMap<String, Arc<Running>>>,
}

impl Registry {
    pub fn started(&self, running: &Arc<Running>) {
        self.lock().insert(running.id.clone(), running.clone());
    }

    pub fn ended(&self, id: &str) {
        self.lock().remove(id);
    }

    pub fn find(&self, id: &str, tenant: Tenant) -> Option<Arc<Running>> {
        self.lock().get(id).filter(|running| running.tenant == tenant).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Running>>> {
        // Each change is one insertion or removal: whoever panics leaves it whole.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
