//! The store as the server uses it, from tasks that must not block.

use super::queue::{Entry, Queue, Then};
use super::scribe::Scribe;
use super::{Record, Store, StoreError, Write};
use crate::registry::Registry;
use crate::server::blocking;
use flint_wire::ApiError;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// The store and its thread. Dropping it writes what waits.
pub struct Archive {
    pub store: Arc<dyn Store>,
    pub(super) queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

impl Archive {
    pub fn start(store: Arc<dyn Store>, registry: Arc<Registry>) -> std::io::Result<Archive> {
        let queue = Arc::new(Queue::default());
        let scribe = Scribe::new(store.clone(), queue.clone(), registry);
        let thread = std::thread::Builder::new().name("store".into()).spawn(move || scribe.run())?;
        Ok(Archive { store, queue, thread: Some(thread) })
    }

    /// Resolves when the response is in the store, and the end of the one that it follows with it.
    pub async fn begin(&self, record: Record, before: Option<Entry>) -> Result<(), StoreError> {
        self.ask(Write::Begin(Box::new(record)), before).await
    }

    pub async fn delete(&self, id: &str) -> Result<(), StoreError> {
        self.ask(Write::Delete { id: id.to_owned() }, None).await
    }

    async fn ask(&self, write: Write, before: Option<Entry>) -> Result<(), StoreError> {
        let (answer, result) = oneshot::channel();
        let asked = Entry { write, then: Then::Answer(answer) };
        self.queue.put_together(before.into_iter().chain([asked]));
        result.await.unwrap_or_else(|_| Err(StoreError::Failed("its thread has ended".into())))
    }

    /// Reads on a thread that may wait.
    pub async fn read<T, F>(&self, read: F) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    {
        let store = self.store.clone();
        blocking(move || read(&*store)).await?.map_err(unreadable)
    }
}

/// The answer to who asks for what cannot be read.
pub fn unreadable(error: StoreError) -> ApiError {
    ApiError { code: "store_unavailable", ..ApiError::overloaded(format!("{error}: try again later"), 30) }
}

impl Drop for Archive {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take() {
            // It has nothing to return, and a panic in it has been reported by itself.
            let _ = thread.join();
        }
    }
}
