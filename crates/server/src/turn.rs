//! One turn, from a valid request to the last event of its response. Follow a token here.
//!
//! `Turn::begin` renders the conversation into tokens and finds the sequence that already knows most of them.
//! `run` then asks the engine, turns its tokens into events (`follow`), and listens meanwhile to what the client
//! wants: to cancel, to interrupt, or to steer. A steer ends the response (`end`) at the next token and goes on, on
//! the same sequence, as its successor.

mod end;
mod follow;
mod running;
pub mod wait;

pub use running::{Control, Running, Steered};

use crate::admit::Class;
use crate::enrol::Origin;
use crate::grammar::{Held, edits};
use crate::limits::{CONTROLS_WAITING_MAX, OUTPUT_TOKENS_DEFAULT};
use crate::model::Model;
use crate::prepare::{Owner, Prepared, prepare};
use crate::prompt::Conversation;
use crate::sampling::{sampling, seed};
use crate::server::{Remembered, Server};
use crate::sessions::Session;
use crate::store::tape::Heard;
use crate::store::{Entry, Pen};
use crate::ticket::Ticket;
use crate::truth::Timing;
use crate::writer::Writer;
use flint_engine::limits::REFERENCE_TOKENS_MAX;
use flint_engine::message::{Counts, Generate, Priority, Tenant};
use flint_engine::supervise::{EngineError, Generation};
use flint_wire::{ApiError, Choice, Request, Response, Settings, Status, Tier};
use serde_json::Map;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;

/// Everything that one turn needs.
pub struct Turn {
    pub(crate) server: Arc<Server>,
    pub(crate) model: Arc<Model>,
    pub(crate) request: Request,
    pub(crate) conversation: Conversation,
    pub(crate) tenant: Tenant,
    pub(crate) running: Arc<Running>,
    pub(crate) writer: Writer,
    pub(crate) pen: Pen,
    pub(crate) seed: u64,
    pub(crate) origin: Option<Origin>, // of a response that is to be stored
    pub(crate) past: Past,
    pub(crate) held: Held,
    pub(crate) timing: Timing,
    pub(crate) told_at: Instant, // its last event
    pub(crate) described: bool,  // the response says what it was asked for and who serves it
    pub(crate) on_end: Option<Remember>,
    pub(crate) forgotten: Option<Remembered>, // for what was remembered
    pub(crate) ticket: Option<Ticket>,        // none: it was begun by an earlier process
}

/// What an earlier process did for the response.
#[derive(Debug, Default)]
pub struct Past {
    pub resumed: bool,
    pub next: u64, // number of the first event that nobody has been told
    pub heard: Vec<Heard>,
}

/// Who keeps the conversation for a turn that may follow.
pub type Remember = Arc<dyn Fn(&str, Remembered) -> Option<Remembered> + Send + Sync>;

impl Turn {
    /// Checks what the model can do, and makes everything ready. What fails here is the request's fault.
    pub fn begin(
        server: Arc<Server>,
        model: Arc<Model>,
        request: Request,
        conversation: Conversation,
        tenant: Tenant,
        on_end: Option<Remember>,
    ) -> Result<(Turn, Prepared, mpsc::Receiver<Control>), ApiError> {
        let arrived = Instant::now();
        let held = model.holds.of(&model, &request, &conversation)?;
        let owner = Owner { tenant, key: request.cache_key.as_deref() };
        let prepared = prepare(&model, &conversation, owner, request.generate)?;
        let (controls, receiver) = mpsc::channel(CONTROLS_WAITING_MAX);
        let store = request.store.then(|| server.archive.store.clone());
        let running = Arc::new(Running::new(tenant, controls, store));
        let turn = Turn::new(server, model, request, conversation, running, now(), held);
        let timing = Timing { arrived: Some(arrived), rendered: arrived.elapsed(), ..Timing::default() };
        Ok((Turn { timing, on_end, ..turn }, prepared, receiver))
    }

    /// A turn that is not stored yet, and has no past.
    pub fn new(
        server: Arc<Server>,
        model: Arc<Model>,
        request: Request,
        conversation: Conversation,
        running: Arc<Running>,
        created_at: u64,
        held: Held,
    ) -> Turn {
        Turn {
            tenant: running.tenant,
            writer: writer(&model, &request, &conversation, &running, created_at),
            pen: Pen::unstored(running.clone(), server.registry.clone()),
            seed: seed(&request),
            origin: None,
            past: Past::default(),
            timing: Timing::default(),
            told_at: Instant::now(),
            described: false,
            on_end: None,
            forgotten: None,
            ticket: None,
            held,
            server,
            model,
            request,
            conversation,
            running,
        }
    }

    pub fn running(&self) -> Arc<Running> {
        self.running.clone()
    }

    /// Makes the response, and its successors if it is steered.
    pub async fn run(mut self, mut prepared: Prepared, mut controls: mpsc::Receiver<Control>) {
        loop {
            self.server.registry.started(&self.running);
            let begins = self.admitted(&mut controls).await
                && self.warmed(&mut prepared.session.warming, &mut controls).await;
            if !begins {
                // A sequence that was never begun has nothing to keep.
                let begun = Some(prepared.given_up()).filter(|session| !session.tokens.is_empty());
                begun.into_iter().for_each(|session| self.model.rest(session));
                return;
            }
            let session = match self.request.generate {
                true => self.leg(prepared, &mut controls).await,
                false => Leg::Over(self.warm(prepared).await),
            };
            match session {
                Leg::Over(session) => {
                    session.into_iter().for_each(|session| self.model.rest(session));
                    // Its slot is free before its end is known. All else is taken apart, and noted, after that.
                    let _note = self.ticket.take().map(Ticket::leave);
                    tokio::task::yield_now().await;
                    return;
                }
                Leg::Steered(next) => match self.begin_successor(*next).await {
                    Some(next) => prepared = next,
                    None => return,
                },
            }
        }
    }

    /// Prefills in the background; the answer is there at once.
    async fn warm(&mut self, prepared: Prepared) -> Option<Session> {
        if prepared.tokens.is_empty() {
            self.tell_begun();
            self.account(0, Counts::default(), None, 0);
            self.end(Status::Completed, None);
            return None;
        }
        let generation = self.generate(&prepared, &[], 0);
        self.tell_begun();
        let items = self.conversation.items.len();
        match generation {
            Ok(generation) => {
                let (all, new) = (prepared.tokens.len() as u32, prepared.new_tokens().len() as u32);
                self.account(all, Counts { new, cached: all - new, ..Counts::default() }, None, 0);
                self.end(Status::Completed, None);
                let Prepared { session, tokens, prints, .. } = prepared;
                let history = prints.whole();
                let warming = Some(generation);
                Some(Session { tokens, items, history, answered: false, warming, ..session })
            }
            Err(error) => {
                self.fail(&error);
                None
            }
        }
    }

    /// One response, from its first token to its last.
    async fn leg(&mut self, prepared: Prepared, controls: &mut mpsc::Receiver<Control>) -> Leg {
        let max_tokens = self.max_tokens(prepared.tokens.len());
        let answer = self.replay();
        if let Some(how) = self.ended_before(&answer, max_tokens) {
            self.tell_begun();
            let (new, generated) = (prepared.tokens.len() as u32, answer.tokens.len() as u32);
            let counts = Counts { new: new + generated, generated, ..Counts::default() };
            let ended = self.conclude(answer, how, counts, None);
            self.finish(prepared, ended);
            // The engine was not asked, so it has no sequence that could rest.
            return Leg::Over(None);
        }
        let generation = self.generate(&prepared, &answer.tokens, max_tokens);
        self.tell_begun();
        let ended = match generation {
            Ok(generation) => self.follow(answer, &generation, controls).await,
            Err(error) => {
                self.fail(&error);
                return Leg::Over(None);
            }
        };
        self.finish(prepared, ended)
    }

    /// Asks for what follows the prompt and the tokens that were generated `before`.
    fn generate(
        &mut self,
        prepared: &Prepared,
        before: &[u32],
        max_tokens: u32,
    ) -> Result<Generation, ApiError> {
        self.timing.sent = Some(Instant::now());
        let request = Generate {
            sequence: prepared.session.sequence,
            base: prepared.base,
            tokens: [prepared.new_tokens(), before].concat(),
            resumed: before.len() as u32,
            max_tokens,
            stop_tokens: self.stop_tokens(),
            sampling: sampling(&self.request, self.seed),
            constraint: self.held.constraint.clone(),
            references: self.references(),
            speculate: self.model.truth.speculation,
            priority: priority(&self.request),
            tenant: self.tenant,
        };
        self.model.generate(request, &prepared.tokens).map_err(|error| engine_error(&error))
    }

    /// What the answer may resemble, as far as it may be long: what the client expects to read, and the files that it has
    /// told. Without it nothing but time is lost.
    fn references(&self) -> Vec<Vec<u32>> {
        if !self.model.truth.speculation {
            return Vec::new();
        }
        let files = edits::files(&self.conversation.tools.tools(), self.request.tool_choice != Choice::None);
        let mut references: Vec<Vec<u32>> = files.into_iter().map(|file| self.model.file(file)).collect();
        // The engine expects the answer to begin as the first, so that is no file.
        if self.request.prediction.is_some() || !references.is_empty() {
            let (text, mut expected) = (self.request.prediction.as_deref().unwrap_or_default(), Vec::new());
            let known = self.model.text.tokenizer.encode_text(text, &mut expected);
            references.insert(0, known.map_or_else(|_| Vec::new(), |()| expected));
        }
        let mut room = REFERENCE_TOKENS_MAX;
        for reference in &mut references {
            reference.truncate(room);
            room -= reference.len();
        }
        references
    }

    /// How long it goes on when nobody reads it any more. What is not stored cannot be come back to.
    fn grace(&self) -> Duration {
        Duration::from_secs(self.request.return_seconds().unwrap_or(0))
    }

    fn stop_tokens(&self) -> Vec<u32> {
        self.model.stop_tokens(self.conversation.raw.as_ref())
    }

    fn max_tokens(&self, prompt: usize) -> u32 {
        let room = self.model.context().saturating_sub(prompt as u32);
        self.request.max_output_tokens.unwrap_or(OUTPUT_TOKENS_DEFAULT).min(room.max(1))
    }
}

/// Where a turn stands after one response.
enum Leg {
    /// At its end, with a sequence that may rest.
    Over(Option<Session>),
    Steered(Box<Succession>),
}

/// From a response that was steered to the one that follows.
struct Succession {
    last: Option<Entry>, // the end of the first, to be stored with the beginning of the second
    next: Result<Prepared, ApiError>,
}

/// Of a response that says nothing of its request yet (`Turn::describe`).
fn writer(
    model: &Model,
    request: &Request,
    conversation: &Conversation,
    running: &Running,
    created_at: u64,
) -> Writer {
    let previous = match &request.previous {
        flint_wire::Previous::Nothing => None,
        flint_wire::Previous::Response(id) => Some(id.clone()),
    };
    let response = Response {
        id: running.id.clone(),
        created_at,
        completed_at: None,
        status: Status::InProgress,
        model: model.name.clone(),
        previous,
        output: Vec::new(),
        incomplete: None,
        failure: None,
        usage: None,
        metadata: Map::new(),
        settings: Settings::default(),
    };
    let mut writer = Writer::new(response, conversation.tools.clone());
    if conversation.is_compaction() {
        writer.compact();
    }
    writer
}

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

fn priority(request: &Request) -> Priority {
    match (Class::of(request), request.tier) {
        (_, Tier::Priority) | (Class::Keystroke, _) => Priority::Keystroke,
        (Class::Interactive, Tier::Default | Tier::Flex) => Priority::Interactive,
        (Class::Background, Tier::Default | Tier::Flex) => Priority::Background,
    }
}

pub fn engine_error(error: &EngineError) -> ApiError {
    match error {
        EngineError::Overloaded => ApiError::overloaded(error.to_string(), 1),
        EngineError::Down(_) | EngineError::TimedOut => ApiError::overloaded(error.to_string(), 5),
        EngineError::Refused(failure) => ApiError::internal(failure.to_string()),
    }
}
