//! How a turn's response comes into the store, before its first event.

use crate::store::{Entry, Pen, Record, StoreError, not_stored};
use crate::turn::Turn;
use flint_wire::{Item, Previous};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Where a stored response comes from.
#[derive(Debug, Clone)]
pub struct Origin {
    pub request: Arc<str>, // JSON, without its input
    pub before: usize,     // items of the conversation before the response's own input
    pub linked: bool,      // these can be found again in the store
}

impl Origin {
    pub fn new(body: &Value, before: usize, linked: bool) -> Origin {
        let fields = body.as_object().into_iter().flatten().filter(|(key, _)| *key != "input");
        let request: Map<String, Value> = fields.map(|(key, value)| (key.clone(), value.clone())).collect();
        Origin { request: Value::Object(request).to_string().into(), before, linked }
    }

    /// Of the response that follows a turn's: what was said so far is before it.
    pub fn successor(self, turn: &Turn) -> Origin {
        Origin { before: turn.conversation.items.len(), linked: turn.pen.is_stored(), ..self }
    }
}

impl Turn {
    /// Resolves when the response is in the store. From then on it is the store that tells its events.
    pub async fn enrol(&mut self, prompt: &[u32], before: Option<Entry>) -> Result<(), StoreError> {
        // What is not to be stored follows nothing that is.
        let Some(origin) = self.origin.clone() else { return Ok(()) };
        self.describe();
        let record = self.record(&origin, prompt);
        self.server.archive.begin(record, before).await?;
        self.pen = Pen::stored(self.running.clone(), &self.server.archive);
        Ok(())
    }

    /// The same for a response that cannot be refused any more: it was promised to who steered the one before. So
    /// that one's end, which says so, is stored together with its beginning.
    pub async fn enrol_successor(&mut self, prompt: &[u32], before: Option<Entry>) {
        if let Err(error) = self.enrol(prompt, before).await {
            let metadata = &mut self.writer.response.metadata;
            metadata.insert("flint.stored".into(), not_stored(&error).into());
        }
    }

    fn record(&self, origin: &Origin, prompt: &[u32]) -> Record {
        let items = &self.conversation.items;
        let before = origin.before.min(items.len());
        Record {
            id: self.running.id.clone(),
            tenant: self.tenant,
            model: self.model.name.clone(),
            weights: self.model.truth.sha256.clone(),
            created_at: self.writer.response.created_at,
            seed: self.seed,
            previous: match &self.request.previous {
                Previous::Nothing => None,
                Previous::Response(id) => Some(id.clone()),
            },
            history: (!origin.linked).then(|| json(&items.after(0)[..before])),
            input: json(&items.after(before)),
            request: origin.request.to_string(),
            prompt: prompt.to_vec(),
            response: self.writer.response.json(),
        }
    }
}

fn json(items: &[Arc<Item>]) -> String {
    let items: Vec<String> = items.iter().map(|item| item.json.to_string()).collect();
    format!("[{}]", items.join(","))
}
