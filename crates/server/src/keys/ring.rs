//! The valid keys at hand, so that a request needs no query.

use super::{Digest, Holder, KeyError, Table, digest};
use crate::limits::KEYS_FRESH_MS;
use flint_engine::message::Tenant;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;

#[derive(Debug)]
pub struct Ring {
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    table: Table,
    version: i64,     // of the database, when the keys were read
    checked: Instant, // that they still are those
    keys: Vec<(Digest, Holder)>,
}

impl Ring {
    pub fn new(table: Table) -> Result<Ring, KeyError> {
        let (version, keys) = (table.version()?, table.valid()?);
        Ok(Ring { held: Mutex::new(Held { table, version, checked: Instant::now(), keys }) })
    }

    /// Whose key this is.
    pub fn find(&self, key: &str) -> Option<Holder> {
        let digest = digest(key);
        self.lock().fresh(|keys| search(keys, &digest))
    }

    /// The holder that a connection was opened by, if the key is still valid.
    pub fn holder(&self, tenant: Tenant) -> Option<Holder> {
        let of_tenant = |keys: &[(Digest, Holder)]| {
            keys.iter().find(|(_, holder)| holder.tenant == tenant).map(|(_, holder)| holder.clone())
        };
        self.lock().fresh(of_tenant)
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        // The list is replaced as a whole, so it is whole whoever panics.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Looks in the list, and again if it may be old. One who is not found may have been added this moment; to
    /// find out takes microseconds.
    fn fresh<T>(&mut self, look: impl Fn(&[(Digest, Holder)]) -> Option<T>) -> Option<T> {
        let found = look(&self.keys);
        if found.is_some() && self.checked.elapsed() < Duration::from_millis(KEYS_FRESH_MS) {
            return found;
        }
        // A database that cannot be read changes nothing: the keys that were valid stay so.
        let _ = self.refresh();
        look(&self.keys)
    }

    fn refresh(&mut self) -> Result<(), KeyError> {
        self.checked = Instant::now();
        let version = self.table.version()?;
        if version != self.version {
            self.keys = self.table.valid()?;
            self.version = version;
        }
        Ok(())
    }
}

/// Looks at every key in full: how long it takes tells nothing about them.
fn search(keys: &[(Digest, Holder)], digest: &Digest) -> Option<Holder> {
    let mut found = None;
    for (known, holder) in keys {
        if bool::from(known.ct_eq(digest)) {
            found = Some(holder.clone());
        }
    }
    found
}
