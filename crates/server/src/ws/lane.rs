//! One conversation on a connection: turns in the order in which they came.

use super::watch::Watch;
use super::{Connection, limits};
use crate::limits::LANE_TURNS_WAITING_MAX;
use crate::note::Note;
use crate::turn::{Control, Running, Steered, now};
use flint_wire::{ApiError, Create, Frame, Item, Request};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::{mpsc, oneshot};

/// Where the Codex CLI names the trace of one turn; others have that of the upgrade.
const TRACEPARENT: &str = "ws_request_header_traceparent";

/// The reading side's end of a lane. Dropping it lets the lane finish what it has.
pub struct Lane {
    connection: Arc<Connection>,
    name: Option<String>,
    state: Arc<Mutex<State>>,
    turns: mpsc::Sender<Create>,
}

/// What runs, and what must wait for the next turn.
#[derive(Default)]
struct State {
    current: Option<Arc<Running>>,
    waiting: Vec<Arc<Item>>, // steers that follow the outputs of calls
    queued: usize,           // turns
}

/// The lane that a frame names.
pub fn name(frame: &Frame) -> Option<String> {
    match frame {
        Frame::Create(create) => create.stream.clone(),
        Frame::Interrupt { stream, .. } | Frame::Cancel { stream, .. } | Frame::Steer { stream, .. } => {
            stream.clone()
        }
    }
}

/// The response that a frame is about.
pub fn response(frame: &Frame) -> Option<&str> {
    match frame {
        Frame::Create(_) => None,
        Frame::Interrupt { response, .. } => Some(response),
        Frame::Cancel { response, .. } => response.as_deref(),
        Frame::Steer { previous, .. } => Some(previous),
    }
}

impl Lane {
    pub fn open(connection: Arc<Connection>, name: Option<String>) -> Lane {
        let (turns, receiver) = mpsc::channel(LANE_TURNS_WAITING_MAX);
        let state = Arc::new(Mutex::new(State::default()));
        tokio::spawn(run(connection.clone(), name.clone(), state.clone(), receiver));
        Lane { connection, name, state, turns }
    }

    pub fn makes(&self, response: &str) -> bool {
        lock(&self.state).current.as_ref().is_some_and(|running| running.id == response)
    }

    pub fn is_idle(&self) -> bool {
        let state = lock(&self.state);
        state.current.is_none() && state.queued == 0 && state.waiting.is_empty()
    }

    pub async fn frame(&self, frame: Frame) {
        match frame {
            Frame::Create(create) => self.create(*create).await,
            Frame::Interrupt { response, .. } => self.control(Some(&response), Control::Interrupt).await,
            Frame::Cancel { response, .. } => self.control(response.as_deref(), Control::Cancel).await,
            Frame::Steer { previous, input, .. } => self.steer(&previous, input).await,
        }
    }

    async fn create(&self, create: Create) {
        if let Err(error) = self.connection.check_age() {
            return self.error(&error).await;
        }
        lock(&self.state).queued += 1;
        self.connection.turns.send_modify(|turns| *turns += 1);
        if self.turns.try_send(create).is_err() {
            lock(&self.state).queued -= 1;
            self.connection.turns.send_modify(|turns| *turns -= 1);
            let message = format!("{LANE_TURNS_WAITING_MAX} turns wait in this lane already");
            self.error(&ApiError::limited(message, 1)).await;
        }
    }

    /// To the running response if it is the one that is meant. One that has ended needs nothing.
    async fn control(&self, response: Option<&str>, control: Control) {
        let current = lock(&self.state).current.clone();
        let meant = current.filter(|running| response.is_none_or(|id| id == running.id));
        if let Some(running) = meant {
            running.control(control).await;
        }
    }

    async fn steer(&self, previous: &str, input: Vec<Item>) {
        let raw: Vec<Value> = input.iter().map(|item| item.json.clone()).collect();
        let items: Vec<Arc<Item>> = input.into_iter().map(Arc::new).collect();
        let outcome = match self.meant(previous) {
            None => Steered::Late,
            Some(running) => {
                let (answer, steered) = oneshot::channel();
                running.control(Control::Steer { items: items.clone(), answer }).await;
                steered.await.unwrap_or(Steered::Late)
            }
        };
        match outcome {
            Steered::Accepted => {}
            Steered::Pending => lock(&self.state).waiting.extend(items),
            Steered::Late => self.steer_failed(previous, raw).await,
        }
    }

    /// The input goes back to the client, who may send it as a turn.
    async fn steer_failed(&self, previous: &str, input: Vec<Value>) {
        let message = format!("the response `{previous}` is not running: send the input as a new turn");
        let frame = json!({
            "type": "response.steer.failed",
            "sequence_number": 0,
            "steer": {"id": null, "previous_response_id": previous, "input": input},
            "error": {"type": "invalid_request_error", "code": "response_not_running", "message": message},
        });
        send(&self.connection, &self.name, Some(frame)).await;
    }

    fn meant(&self, previous: &str) -> Option<Arc<Running>> {
        lock(&self.state).current.clone().filter(|running| running.id == previous)
    }

    async fn error(&self, error: &ApiError) {
        self.connection.outlet.frame(error.frame(self.name.as_deref())).await;
    }
}

/// One frame of a lane, if there is one.
async fn send(connection: &Connection, name: &Option<String>, frame: Option<Value>) {
    let Some(mut frame) = frame else { return };
    if let Some(name) = name {
        frame["stream_id"] = name.as_str().into();
    }
    connection.outlet.frame(frame).await;
}

/// Makes the turns of a lane, one after the other.
async fn run(
    connection: Arc<Connection>,
    name: Option<String>,
    state: Arc<Mutex<State>>,
    mut turns: mpsc::Receiver<Create>,
) {
    while let Some(create) = turns.recv().await {
        // What waited for a client that is gone by now is not begun.
        if !connection.outlet.is_closed() {
            turn(&connection, &name, &state, create.body).await;
        }
        lock(&state).queued -= 1;
        connection.turns.send_modify(|turns| *turns -= 1);
    }
}

async fn turn(connection: &Connection, name: &Option<String>, state: &Mutex<State>, mut body: Value) {
    let mut arrived = Instant::now();
    let waiting = std::mem::take(&mut lock(state).waiting);
    append(&waiting, &mut body);
    let Connection { outlet, timed, .. } = connection;
    let mut running = match begin(connection, name, &body).await {
        Ok(running) => running,
        Err(error) => {
            // They go with the next turn, as they were to: the client may mend this one.
            lock(state).waiting.splice(0..0, waiting);
            return outlet.frame(error.frame(name.as_deref())).await;
        }
    };
    loop {
        lock(state).current = Some(running.clone());
        // The turn first asks the engine.
        tokio::task::yield_now().await;
        let watch = timed.then(|| Watch::new(running.clone(), arrived));
        let done = outlet.response(running.read(0), name.clone(), watch).await;
        // An error means that the client is gone: its response has no reader left and stops.
        if done.await.is_err() {
            break;
        }
        match running.successor() {
            Some(successor) => (running, arrived) = (successor, Instant::now()),
            None => break,
        }
    }
    lock(state).current = None;
}

/// Begins the turn, with a note of its own: a connection has many.
async fn begin(
    connection: &Connection,
    name: &Option<String>,
    body: &Value,
) -> Result<Arc<Running>, ApiError> {
    let Connection { server, memory, tenant, traceparent, is_codex, .. } = connection;
    let own = body["client_metadata"][TRACEPARENT].as_str();
    let journal = &server.gate.journal;
    let trace = journal.trace(own.or(traceparent.as_deref()));
    let note = Note::new(journal.clone(), "WS", "/v1/responses", trace);
    let turn = async {
        let request = Request::parse(body)?;
        server.turn(request, Some(body), *tenant, Some(memory)).await
    };
    let begun = note.clone().during(turn).await;
    note.status(begun.as_ref().map_or_else(|error| error.status, |_| 200));
    if let Some(standing) = note.stands().filter(|_| *is_codex) {
        send(connection, name, limits::event(&standing, now())).await;
    }
    begun
}

/// Steers that had to wait for the outputs of calls come after them. Input that is none is refused by whoever reads it.
fn append(waiting: &[Arc<Item>], body: &mut Value) {
    let Some(fields) = body.as_object_mut().filter(|_| !waiting.is_empty()) else { return };
    let input = fields.entry("input").or_insert(Value::Null);
    match input {
        Value::Null => *input = json!([]),
        Value::String(text) => *input = json!([{"type": "message", "role": "user", "content": text}]),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {}
    }
    if let Value::Array(items) = input {
        items.extend(waiting.iter().map(|item| item.json.clone()));
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Each change is of one field: whoever panics leaves it whole.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
