//! What all connections share: the models, the responses that run, and those that can be gone on from.

use crate::data::{Data, DataError};
use crate::enrol::Origin;
use crate::gate::Gate;
use crate::history::{History, conversation};
use crate::items::Items;
use crate::limits::{CONNECTION_RESPONSES_MAX, SHORT_INPUT_BYTES_MAX};
use crate::model::Model;
use crate::note::Note;
use crate::pace::Pace;
use crate::registry::Registry;
use crate::store::Archive;
use crate::turn::{Remember, Running, Turn};
use flint_engine::message::Tenant;
use flint_wire::{ApiError, Previous, Request};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a server is made with.
pub struct Settings {
    pub models: Vec<Arc<Model>>,
    pub gate: Gate,
    pub data: Data,
    pub store_bytes_max: u64, // above it the oldest finished responses are deleted
    pub pace: Pace,
}

pub struct Server {
    pub models: Vec<Arc<Model>>,
    pub gate: Arc<Gate>,
    pub registry: Arc<Registry>,
    pub archive: Archive,
    pub pace: Pace,
    _data: Data,
}

/// The conversation up to and with a response.
#[derive(Debug, Clone)]
pub struct Remembered {
    pub items: Items,
    pub tenant: Tenant,
    pub stored: bool, // the store has it too
}

/// The latest responses of one connection, for turns that go on from them.
#[derive(Debug, Default)]
pub struct Memory {
    responses: Mutex<VecDeque<(String, Remembered)>>,
}

impl Memory {
    /// Returns what is forgotten for it, to be taken apart when there is time.
    pub fn keep(&self, id: &str, remembered: Remembered) -> Option<Remembered> {
        let mut responses = lock(&self.responses);
        responses.push_back((id.to_owned(), remembered));
        let surplus = responses.len() > CONNECTION_RESPONSES_MAX;
        surplus.then(|| responses.pop_front()).flatten().map(|(_, forgotten)| forgotten)
    }

    pub fn find(&self, id: &str) -> Option<Remembered> {
        lock(&self.responses).iter().rev().find(|(known, _)| known == id).map(|(_, found)| found.clone())
    }

    /// Whether a request goes on from here with so little that another thread's wake-up would take longer.
    fn makes_short(&self, request: &Request) -> bool {
        let known = |id| lock(&self.responses).iter().any(|(known, _)| known == id);
        let bytes = || request.input.iter().map(|item| text_bytes(&item.json)).sum::<usize>();
        matches!(&request.previous, Previous::Response(id) if known(id)) && bytes() <= SHORT_INPUT_BYTES_MAX
    }

    pub fn keeper(self: &Arc<Memory>) -> Remember {
        let memory = self.clone();
        Arc::new(move |id, remembered| memory.keep(id, remembered))
    }
}

impl Server {
    /// Opens the data; responses that it has unfinished go on when the server runs.
    pub fn new(settings: Settings) -> Result<Server, DataError> {
        let Settings { models, gate, data, store_bytes_max, pace } = settings;
        let store = Arc::new(data.store(store_bytes_max)?);
        let registry = Arc::new(Registry::default());
        let archive = Archive::start(store, registry.clone())
            .map_err(|source| DataError::Io { path: data.path.clone(), source })?;
        Ok(Server { models, gate: Arc::new(gate), registry, archive, pace, _data: data })
    }

    /// The model that a request means.
    pub fn model(&self, asked: Option<&str>) -> Result<Arc<Model>, ApiError> {
        let found = match asked {
            None => self.models.first(),
            Some(name) => self.models.iter().find(|model| model.name == name),
        };
        found.cloned().ok_or_else(|| {
            let here: Vec<&str> = self.models.iter().map(|model| model.name.as_str()).collect();
            let asked = asked.unwrap_or_default();
            let message = format!("the model `{asked}` is not served here. Served: {}", here.join(", "));
            ApiError { param: Some("model".into()), ..ApiError::not_found("model_not_found", message) }
        })
    }

    /// Begins the turn that a request asks for, and lets it run. The body is the request as it came, if it can
    /// be stored; the memory is that of the connection, if it has one.
    pub async fn turn(
        self: &Arc<Server>,
        request: Request,
        body: Option<&Value>,
        tenant: Tenant,
        memory: Option<&Arc<Memory>>,
    ) -> Result<Arc<Running>, ApiError> {
        let model = self.model(request.model.as_deref())?;
        if let Some(note) = Note::current() {
            note.models(request.model.as_deref().unwrap_or(&model.name), &model.name);
        }
        let ticket = self.gate.admit(tenant, &model.name, &request)?;
        let body = body.filter(|_| request.store);
        let is_short = model.forms.are_known() && memory.is_some_and(|memory| memory.makes_short(&request));
        let (server, memory) = (self.clone(), memory.cloned());
        let begin = move || {
            let mut request = request;
            let History { items, linked } = server.history(&request, tenant, memory.as_deref())?;
            let before = items.len();
            let conversation = conversation(&model, &mut request, items)?;
            let keeper = memory.as_ref().map(Memory::keeper);
            let begun = Turn::begin(server, model, request, conversation, tenant, keeper)?;
            Ok::<_, ApiError>((before, linked, begun))
        };
        let (before, linked, (mut turn, prepared, controls)) = match is_short {
            true => begin()?,
            false => blocking(begin).await??,
        };
        turn.ticket = Some(ticket);
        turn.origin = body.map(|body| Origin::new(body, before, linked));
        if let Err(error) = turn.enrol(&prepared.tokens, None).await {
            turn.model.rest(prepared.given_up());
            return Err(error.refusal());
        }
        let running = turn.running();
        // The caller reads from the first event on, so it has to know the response before it runs.
        self.registry.started(&running);
        tokio::spawn(turn.run(prepared, controls));
        Ok(running)
    }
}

/// Runs what may take milliseconds apart from the tasks that must not wait.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    let failed = |_| ApiError::internal("the server failed while reading this request");
    tokio::task::spawn_blocking(work).await.map_err(failed)
}

/// Bytes of all texts in it.
fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(text_bytes).sum(),
        Value::Object(fields) => fields.values().map(text_bytes).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is kept under these locks is whole after every change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
