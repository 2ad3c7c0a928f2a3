//! Going on after a restart.
//!
//! A response that was running is made again from its prompt and the tokens behind its stored events. The tokens
//! are heard once more in silence, so that everything stands as it did after the last stored event; the engine
//! then goes on from there. A token depends on the seed and the position alone, so what follows is what would
//! have followed.

use crate::enrol::Origin;
use crate::history::{History, chain, conversation, items};
use crate::prepare::Prepared;
use crate::server::{Server, blocking};
use crate::sessions::{Fingerprints, Session};
use crate::store::{Ending, Pen, Progress, Record, Store, StoreError, tape};
use crate::toolbook::Toolbook;
use crate::turn::{Control, Past, Running, Turn};
use crate::writer::Writer;
use flint_engine::message::Base;
use flint_wire::{ApiError, Previous, Request, Response, Settings, Status};
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::mpsc;

/// A turn that can run.
type Revived = (Turn, Prepared, mpsc::Receiver<Control>);

impl Server {
    /// Goes on with all responses that an earlier process left unfinished. Those that cannot go on fail, and
    /// say why.
    pub async fn resume(self: &Arc<Server>) {
        let server = self.clone();
        // If the store cannot be read now they stay as they are until the next start.
        let revived =
            blocking(move || server.revive_all()).await.and_then(|all| all.map_err(crate::store::unreadable));
        for (mut turn, prepared, controls) in revived.unwrap_or_default() {
            // It was admitted before. If it could not be now, it goes on all the same.
            turn.ticket = self.gate.admit(turn.tenant, &turn.model.name, &turn.request).ok();
            self.registry.started(&turn.running());
            tokio::spawn(turn.run(prepared, controls));
        }
    }

    fn revive_all(self: &Arc<Server>) -> Result<Vec<Revived>, StoreError> {
        let mut revived = Vec::new();
        for id in self.archive.store.unfinished()? {
            let Some((record, progress)) = self.archive.store.record(&id)? else { continue };
            match self.revive(&record, &progress) {
                Ok(turn) => revived.push(turn),
                Err(error) => self.give_up(&record, &progress, &error),
            }
        }
        Ok(revived)
    }

    fn revive(self: &Arc<Server>, record: &Record, progress: &Progress) -> Result<Revived, ApiError> {
        let model = self.model(Some(&record.model))?;
        if model.truth.sha256 != record.weights {
            let message = format!("the weights of {} have changed since this response began", model.name);
            return Err(ApiError::internal(message));
        }
        let heard =
            tape::play(&progress.tape).ok_or_else(|| ApiError::internal("its tokens cannot be read"))?;
        let mut request = request(record)?;
        let History { items, linked } = history(&*self.archive.store, record)?;
        let before = items.len();
        let conversation = conversation(&model, &mut request, items)?;
        let held = model.holds.of(&model, &request, &conversation)?;
        let (id, tenant, store) = (record.id.clone(), record.tenant, self.archive.store.clone());
        let (running, controls) = Running::again(id, tenant, store, progress.next);
        let session = Session::new(model.engine.new_sequence(), tenant, request.cache_key.as_deref());
        let prints = Fingerprints::of(&conversation);
        let prepared = Prepared::new(session, Base::New, record.prompt.clone(), prints);
        let turn =
            Turn::new(self.clone(), model, request, conversation, running.clone(), record.created_at, held);
        let origin = Origin { request: record.request.as_str().into(), before, linked };
        let turn = Turn {
            seed: record.seed,
            pen: Pen::stored(running, &self.archive),
            origin: Some(origin),
            past: Past { resumed: true, next: progress.next, heard },
            ..turn
        };
        Ok((turn, prepared, controls))
    }

    /// Ends a response that cannot go on, with what it has told so far.
    fn give_up(&self, record: &Record, progress: &Progress, error: &ApiError) {
        let (id, tenant, store) = (record.id.clone(), record.tenant, self.archive.store.clone());
        let (running, _) = Running::again(id, tenant, store, progress.next);
        // Whoever asks before its end is stored waits for that, instead of finding a stream that just stops.
        self.registry.started(&running);
        let mut writer = Writer::new(told(&*self.archive.store, record), Toolbook::default());
        writer.resume_at(progress.next);
        let message = format!("the server was restarted and cannot go on with this response: {error}");
        writer.fail(error.code, message);
        let ending = Ending { status: Status::Failed, response: writer.response.json() };
        Pen::stored(running, &self.archive).write(writer.take(), || Some(ending));
    }
}

/// The request as it was, with the input of this response.
fn request(record: &Record) -> Result<Request, ApiError> {
    let unreadable = |_| ApiError::internal("its request cannot be read");
    let mut body: Value = serde_json::from_str(&record.request).map_err(unreadable)?;
    let input: Value = serde_json::from_str(&record.input).map_err(unreadable)?;
    if let Value::Object(fields) = &mut body {
        fields.insert("input".into(), input);
    }
    let request = Request::parse(&body)?;
    let previous = record.previous.clone().map_or(Previous::Nothing, Previous::Response);
    Ok(Request { previous, ..request })
}

fn history(store: &dyn Store, record: &Record) -> Result<History, ApiError> {
    let linked = record.history.is_none();
    let items = match (&record.history, &record.previous) {
        (Some(history), _) => items(history),
        (None, Some(previous)) => chain(store, previous, record.tenant)?,
        (None, None) => Vec::new(),
    };
    Ok(History { items: items.into(), linked })
}

/// The response with the items that its stored events have told whole.
fn told(store: &dyn Store, record: &Record) -> Response {
    let began: Value = serde_json::from_str(&record.response).unwrap_or_default();
    let map = |key: &str| began.get(key).and_then(Value::as_object).cloned().unwrap_or_default();
    Response {
        id: record.id.clone(),
        created_at: record.created_at,
        completed_at: None,
        status: Status::InProgress,
        model: record.model.clone(),
        previous: record.previous.clone(),
        output: output(store, &record.id),
        incomplete: None,
        failure: None,
        usage: None,
        metadata: map("metadata"),
        settings: began.as_object().map(Settings::of_response).unwrap_or_default(),
    }
}

fn output(store: &dyn Store, id: &str) -> Vec<Value> {
    let (mut items, mut next) = (Vec::new(), 0);
    // What cannot be read any more cannot be repeated.
    while let Ok(page) = store.events(id, next)
        && let Some(last) = page.last()
    {
        next = last.number + 1;
        let events = page.iter().filter_map(|frame| serde_json::from_slice::<Value>(&frame.json).ok());
        let done = events.filter(|event| event["type"] == "response.output_item.done");
        items.extend(done.map(|event| event["item"].clone()));
    }
    items
}
