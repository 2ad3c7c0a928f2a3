//! What all connections share: the models, the responses that run, and those that can be gone on from.

use crate::gate::Gate;
use crate::limits::CONNECTION_RESPONSES_MAX;
use crate::model::Model;
use crate::prompt::Conversation;
use crate::toolbook::Toolbook;
use crate::turn::{Remember, Running, Turn};
use flint_engine::message::Tenant;
use flint_wire::{ApiError, Item, Meaning, Previous, Request, Response, Tools};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub struct Server {
    pub models: Vec<Arc<Model>>,
    pub gate: Arc<Gate>,
    running: Mutex<HashMap<String, Arc<Running>>>,
}

/// The conversation up to and with a response.
#[derive(Debug, Clone)]
pub struct Remembered {
    pub items: Vec<Arc<Item>>,
    pub tenant: Tenant,
}

/// The latest responses of one connection, for turns that go on from them.
#[derive(Debug, Default)]
pub struct Memory {
    responses: Mutex<VecDeque<(String, Remembered)>>,
}

impl Memory {
    pub fn keep(&self, id: &str, remembered: Remembered) {
        let mut responses = lock(&self.responses);
        responses.push_back((id.to_owned(), remembered));
        let surplus = responses.len().saturating_sub(CONNECTION_RESPONSES_MAX);
        responses.drain(..surplus);
    }

    pub fn find(&self, id: &str) -> Option<Remembered> {
        lock(&self.responses).iter().rev().find(|(known, _)| known == id).map(|(_, found)| found.clone())
    }

    pub fn keeper(self: &Arc<Memory>) -> Remember {
        let memory = self.clone();
        Arc::new(move |id, remembered| memory.keep(id, remembered))
    }
}

impl Server {
    pub fn new(models: Vec<Arc<Model>>, gate: Gate) -> Server {
        Server { models, gate: Arc::new(gate), running: Mutex::default() }
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

    /// Begins the turn that a request asks for, and lets it run.
    pub async fn turn(
        self: &Arc<Server>,
        request: Request,
        tenant: Tenant,
        memory: &Arc<Memory>,
    ) -> Result<Arc<Running>, ApiError> {
        let model = self.model(request.model.as_deref())?;
        let ticket = self.gate.admit(tenant, &model.name, &request)?;
        let conversation = self.conversation(&request, tenant, memory)?;
        let (server, keeper) = (self.clone(), memory.keeper());
        let begin = move || Turn::begin(server, model, request, conversation, tenant, Some(keeper));
        let (mut turn, prepared, controls) = blocking(begin).await??;
        turn.ticket = Some(ticket);
        let running = turn.running();
        // The caller reads from the first event on, so it has to know the response before it runs.
        self.started(&running);
        tokio::spawn(turn.run(prepared, controls));
        Ok(running)
    }

    fn conversation(
        &self,
        request: &Request,
        tenant: Tenant,
        memory: &Memory,
    ) -> Result<Conversation, ApiError> {
        let mut items = match &request.previous {
            Previous::Nothing => Vec::new(),
            Previous::Response(id) => self.remembered(id, tenant, memory)?.items,
        };
        let mut tools = Tools::default();
        for item in &items {
            if let Meaning::AdditionalTools { tools: more } = &item.meaning {
                tools.extend("input.tools", more)?;
            }
        }
        tools.known.extend(request.tools.known.iter().cloned());
        items.extend(request.input.iter().cloned().map(Arc::new));
        Ok(Conversation {
            instructions: request.instructions.clone(),
            tools: Toolbook::new(&tools.known),
            items,
            effort: request.effort.clone(),
            raw: request.raw.clone(),
        })
    }

    fn remembered(&self, id: &str, tenant: Tenant, memory: &Memory) -> Result<Remembered, ApiError> {
        memory.find(id).filter(|found| found.tenant == tenant).ok_or_else(|| {
            let message = format!("the response `{id}` is not known: send the whole input instead");
            ApiError {
                param: Some("previous_response_id".into()),
                status: 400,
                ..ApiError::not_found("previous_response_not_found", message)
            }
        })
    }

    pub fn started(&self, running: &Arc<Running>) {
        lock(&self.running).insert(running.id.clone(), running.clone());
    }

    pub fn ended(&self, id: &str, _response: &Response) {
        lock(&self.running).remove(id);
    }

    pub fn running(&self, id: &str, tenant: Tenant) -> Option<Arc<Running>> {
        lock(&self.running).get(id).filter(|running| running.tenant == tenant).cloned()
    }
}

/// Runs what may take milliseconds apart from the tasks that must not wait.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    let failed = |_| ApiError::internal("the server failed while reading this request");
    tokio::task::spawn_blocking(work).await.map_err(failed)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is kept under these locks is whole after every change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
