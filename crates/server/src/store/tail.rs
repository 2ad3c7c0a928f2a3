//! A reader of a response that may be running, stored, or both: what its ring has lost comes from the store.

use super::{Store, StoreError};
use crate::log::{Frame, Read, Reader};
use crate::server::blocking;
use std::collections::VecDeque;
use std::sync::Arc;

pub struct Tail {
    id: String,
    next: u64,
    page: VecDeque<Frame>,         // read from the store and not yet given out
    store: Option<Arc<dyn Store>>, // where the response is, if it is stored
    live: Option<Reader>,          // while it runs
}

impl Tail {
    /// Of a response that runs.
    pub fn live(id: String, reader: Reader, store: Option<Arc<dyn Store>>) -> Tail {
        Tail { id, next: reader.next_number(), page: VecDeque::new(), store, live: Some(reader) }
    }

    /// Of a response that has ended.
    pub fn stored(id: String, from: u64, store: Arc<dyn Store>) -> Tail {
        Tail { id, next: from, page: VecDeque::new(), store: Some(store), live: None }
    }

    /// The next event, as soon as there is one.
    pub async fn next(&mut self) -> Read {
        if self.page.is_empty() {
            let lost = match &mut self.live {
                Some(reader) => {
                    reader.skip_to(self.next);
                    match reader.next().await {
                        Read::Lost => Read::Lost,
                        read => return self.passed(read),
                    }
                }
                None => Read::End,
            };
            self.page = match self.load().await {
                Ok(page) => page,
                Err(_) => return Read::Lost,
            };
            if self.page.is_empty() {
                return lost;
            }
        }
        let read = self.page.pop_front().map_or(Read::Lost, Read::Frame);
        self.passed(read)
    }

    fn passed(&mut self, read: Read) -> Read {
        if let Read::Frame(frame) = &read {
            self.next = frame.number + 1;
        }
        read
    }

    async fn load(&self) -> Result<VecDeque<Frame>, StoreError> {
        let Some(store) = self.store.clone() else { return Ok(VecDeque::new()) };
        let (id, next) = (self.id.clone(), self.next);
        let page = blocking(move || store.events(&id, next)).await;
        page.unwrap_or_else(|error| Err(StoreError::Failed(error.message))).map(VecDeque::from)
    }
}
