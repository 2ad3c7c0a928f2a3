//! What stands between a request and a turn: keys, limits, the books, and the end of the server.

use crate::admit::{Ask, Class, Floor, Limits};
use crate::drain::Drain;
use crate::keys::Ring;
use crate::limits::BOOKS_WRITTEN_SECONDS;
use crate::metrics::Metrics;
use crate::note::{Journal, Note};
use crate::ticket::Ticket;
use crate::usage::Books;
use flint_engine::message::Tenant;
use flint_models::{Price, catalogue};
use flint_wire::{ApiError, Request};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

pub struct Gate {
    pub keys: Arc<Ring>,
    pub books: Arc<Books>,
    pub metrics: Metrics,
    pub drain: Drain,
    pub journal: Arc<Journal>,
    prices: HashMap<String, Price>,
    floor: Mutex<Floor>,
    moved: watch::Sender<()>, // the queue
    began: Instant,
}

/// What the operator decides.
pub struct Rules {
    pub limits: Limits,
    pub prices: HashMap<String, Price>, // of models, instead of the catalogue's
    pub journal: Journal,
}

impl Gate {
    /// The gate to these models.
    pub fn new<'a>(
        keys: Ring,
        books: Books,
        rules: Rules,
        models: impl IntoIterator<Item = &'a str>,
    ) -> Gate {
        Gate {
            keys: Arc::new(keys),
            books: Arc::new(books),
            metrics: Metrics::new(models),
            drain: Drain::default(),
            journal: Arc::new(rules.journal),
            prices: rules.prices,
            floor: Mutex::new(Floor::new(rules.limits)),
            moved: watch::Sender::new(()),
            began: Instant::now(),
        }
    }

    /// Lets a turn in, gives it a place in the queue, or refuses it. Takes microseconds.
    pub fn admit(
        self: &Arc<Gate>,
        tenant: Tenant,
        model: &str,
        request: &Request,
    ) -> Result<Ticket, ApiError> {
        self.drain.check()?;
        // A connection outlives the check of its key.
        let holder = self.keys.holder(tenant);
        let holder = holder.ok_or_else(|| ApiError::unauthorised("this connection's key was revoked"))?;
        let note = Note::current();
        if let Some(note) = &note {
            note.key(&holder.name);
        }
        let ask = Ask::new(holder, model, request);
        let (entry, standing) = {
            let (mut floor, now_ns) = (self.floor(), self.now_ns());
            (floor.enter(now_ns, &ask), floor.standing(now_ns, &ask))
        };
        if let Some(note) = &note {
            note.standing(standing);
        }
        let entry = entry.map_err(|refusal| refusal.error(&ask))?;
        Ok(Ticket::new(self.clone(), ask, request.tier, entry, note))
    }

    pub fn price(&self, model: &str) -> Price {
        let own = self.prices.get(model).copied();
        own.or_else(|| catalogue::find(model).map(|entry| entry.price)).unwrap_or_default()
    }

    pub fn running(&self, model: &str) -> usize {
        self.floor().running(model)
    }

    pub fn waiting(&self, model: &str, class: Class) -> usize {
        self.floor().waiting(model, class)
    }

    pub(crate) fn floor(&self) -> MutexGuard<'_, Floor> {
        // Each change is small and does not stop halfway.
        self.floor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn moved(&self) -> &watch::Sender<()> {
        &self.moved
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos().try_into().unwrap_or(u64::MAX)
    }
}

/// Writes the books as long as it is let.
pub async fn keep_books(books: Arc<Books>) {
    loop {
        tokio::time::sleep(Duration::from_secs(BOOKS_WRITTEN_SECONDS)).await;
        let books = books.clone();
        match tokio::task::spawn_blocking(move || books.write()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => eprintln!("usage cannot be written, and is kept in memory: {error}"),
            // The runtime ends.
            Err(_) => return,
        }
    }
}
