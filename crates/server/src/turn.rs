//! One turn, from a valid request to the last event of its response. Follow a token here.
//!
//! `Turn::begin` renders the conversation into tokens and finds the sequence that already knows most of them.
//! `run` then asks the engine, turns its tokens into events, and listens meanwhile to what the client wants: to
//! cancel, to interrupt, or to steer. A steer ends the response at the next token and goes on, on the same
//! sequence, as its successor.

use crate::decode::{Decoder, Delta, Sampled};
use crate::grammar::{Held, held};
use crate::ids::new_id;
use crate::limits::{CONTROLS_WAITING_MAX, HEARTBEAT_SECONDS, OUTPUT_TOKENS_DEFAULT};
use crate::log::Log;
use crate::model::Model;
use crate::prepare::{Owner, Prepared, go_on, prepare};
use crate::prompt::Conversation;
use crate::sampling::sampling;
use crate::server::{Remembered, Server};
use crate::sessions::{Fingerprints, Session};
use crate::truth::{self, Timing};
use crate::writer::Writer;
use flint_engine::constrain::Constraint;
use flint_engine::message::{Break, Counts, Event, FinishReason, Generate, Priority, Tenant};
use flint_engine::supervise::{EngineError, Generation};
use flint_wire::{ApiError, Incomplete, Item, Request, Response, Status, Tier, Usage};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot};

/// A response that is being made, as others see it.
#[derive(Debug)]
pub struct Running {
    pub id: String,
    pub tenant: Tenant,
    pub log: Arc<Log>,
    controls: mpsc::Sender<Control>,
    successor: OnceLock<Arc<Running>>,
}

/// What a client can want of a running response.
pub enum Control {
    /// Stop; what was written stays.
    Cancel,
    /// Stop; what was begun and is not done is forgotten.
    Interrupt,
    Steer {
        items: Vec<Arc<Item>>,
        answer: oneshot::Sender<Steered>,
    },
}

/// What becomes of a steer. The first two are told among the response's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steered {
    /// A successor begins as soon as the response has ended.
    Accepted,
    /// The response has called tools: the steer can only follow their outputs.
    Pending,
    /// There was nothing to steer.
    Late,
}

impl Running {
    fn new(tenant: Tenant, controls: mpsc::Sender<Control>) -> Running {
        Running { id: new_id("resp"), tenant, log: Arc::default(), controls, successor: OnceLock::new() }
    }

    /// The response that follows this one because it was steered; known before this one ends.
    pub fn successor(&self) -> Option<Arc<Running>> {
        self.successor.get().cloned()
    }

    /// Says what is wanted. A response that has just ended wants nothing any more.
    pub async fn control(&self, control: Control) {
        let _ = self.controls.send(control).await;
    }
}

/// Everything that one turn needs.
pub struct Turn {
    server: Arc<Server>,
    model: Arc<Model>,
    request: Request,
    conversation: Conversation,
    tenant: Tenant,
    running: Arc<Running>,
    writer: Writer,
    timing: Timing,
    constraint: Option<Constraint>,
    on_end: Option<Remember>,
}

/// Who keeps the conversation for a turn that may follow.
pub type Remember = Arc<dyn Fn(&str, Remembered) + Send + Sync>;

/// How the engine's part of a turn came to its end.
struct Ended {
    how: How,
    counts: Counts,
    broke: Option<Break>,
    tokens: Vec<u32>, // generated
    done: usize,      // of these, up to the end of the last whole item
    reasoning: u32,
}

enum How {
    Finished(FinishReason),
    StopString,
    Cancelled,
    Interrupted,
    Steered(Vec<Arc<Item>>, Arc<Running>),
    Failed(ApiError),
}

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
        let Held { constraint, unenforced } = held(&model, &request, &conversation)?;
        let owner = Owner { tenant, key: request.cache_key.as_deref() };
        let prepared = prepare(&model, &conversation, owner, request.generate)?;
        let (controls, receiver) = mpsc::channel(CONTROLS_WAITING_MAX);
        let running = Arc::new(Running::new(tenant, controls));
        let timing = Timing { rendered: arrived.elapsed(), ..Timing::default() };
        let mut writer = writer(&model, &request, &conversation, &running);
        if conversation.is_compaction() {
            writer.compact();
        }
        if !unenforced.is_empty() {
            let names = unenforced.join(", ").into();
            writer.response.metadata.insert("flint.unenforced_tools".to_owned(), names);
        }
        let turn = Turn {
            server,
            model,
            request,
            conversation,
            tenant,
            running,
            writer,
            timing,
            constraint,
            on_end,
        };
        Ok((turn, prepared, receiver))
    }

    pub fn running(&self) -> Arc<Running> {
        self.running.clone()
    }

    /// Makes the response, and its successors if it is steered.
    pub async fn run(mut self, mut prepared: Prepared, mut controls: mpsc::Receiver<Control>) {
        loop {
            self.server.started(&self.running);
            self.writer.created();
            self.writer.in_progress();
            self.flush();
            let session = match self.request.generate {
                true => self.leg(prepared, &mut controls).await,
                false => Leg::Over(self.warm(prepared).await),
            };
            match session {
                Leg::Over(session) => {
                    session.into_iter().for_each(|session| self.model.rest(session));
                    return;
                }
                Leg::Steered(next) => prepared = *next,
            }
        }
    }

    /// Prefills in the background; the answer is there at once.
    async fn warm(&mut self, prepared: Prepared) -> Option<Session> {
        let generation = self.generate(&prepared, 0);
        let items = self.conversation.items.len();
        match generation {
            Ok(generation) => {
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
    async fn leg(&mut self, mut prepared: Prepared, controls: &mut mpsc::Receiver<Control>) -> Leg {
        if let Some(generation) = prepared.session.warming.take() {
            while generation.next_event().await.is_some() {}
        }
        let max_tokens = self.max_tokens(prepared.tokens.len());
        let ended = match self.generate(&prepared, max_tokens) {
            Ok(generation) => self.follow(&generation, controls).await,
            Err(error) => {
                self.fail(&error);
                return Leg::Over(None);
            }
        };
        self.finish(prepared, ended)
    }

    fn generate(&mut self, prepared: &Prepared, max_tokens: u32) -> Result<Generation, ApiError> {
        self.timing.sent = Some(Instant::now());
        let generation = self.model.engine.generate(Generate {
            sequence: prepared.session.sequence,
            base: prepared.base,
            tokens: prepared.new_tokens().to_vec(),
            resumed: 0,
            max_tokens,
            stop_tokens: self.model.stop_tokens(self.conversation.raw.as_ref()),
            sampling: sampling(&self.request),
            constraint: self.constraint.clone(),
            priority: priority(&self.request),
            tenant: self.tenant,
        });
        generation.map_err(|error| engine_error(&error))
    }

    fn max_tokens(&self, prompt: usize) -> u32 {
        let room = self.model.context().saturating_sub(prompt as u32);
        self.request.max_output_tokens.unwrap_or(OUTPUT_TOKENS_DEFAULT).min(room.max(1))
    }

    /// The loop of a response: tokens in, events out, until one side ends it.
    async fn follow(&mut self, generation: &Generation, controls: &mut mpsc::Receiver<Control>) -> Ended {
        let mut decoder = self.decoder();
        let (mut tokens, mut done, mut broke) = (Vec::new(), 0, None);
        let (mut deltas, mut stopping) = (Vec::new(), None);
        let log = self.running.log.clone();
        let abandoned = log.abandoned();
        tokio::pin!(abandoned);
        let (counts, finished) = loop {
            let heartbeat = tokio::time::sleep(Duration::from_secs(HEARTBEAT_SECONDS));
            tokio::select! {
                biased;
                event = generation.next_event() => match event {
                    Some(Event::Started { broke: at, .. }) => broke = at,
                    Some(Event::Token { token, logprob, top, .. }) => {
                        self.timing.first_token.get_or_insert_with(Instant::now);
                        tokens.push(token);
                        if stopping.is_none() {
                            decoder.push(&Sampled { token, logprob, top: &top }, &mut deltas);
                            self.tell(&mut deltas);
                            done = if self.writer.between_items() { tokens.len() } else { done };
                        }
                        if (decoder.stopped() || self.has_called_enough()) && stopping.is_none() {
                            stopping = Some(How::StopString);
                            self.stop(generation);
                        }
                    }
                    Some(Event::Finished { reason, counts, .. }) => break (counts, How::Finished(reason)),
                    Some(Event::Failed { failure, .. } | Event::Refused { failure, .. }) => {
                        break (Counts::default(), How::Failed(engine_error(&failure.into())));
                    }
                    Some(_) => {}
                    None => break (Counts::default(), How::Failed(ApiError::internal("the engine was stopped"))),
                },
                Some(control) = controls.recv() => {
                    if let Some(how) = self.control(control, &mut stopping) {
                        stopping = Some(how);
                        self.stop(generation);
                    }
                }
                () = &mut abandoned, if stopping.is_none() && !self.request.background => {
                    stopping = Some(How::Cancelled);
                    self.stop(generation);
                }
                () = heartbeat => {
                    self.writer.in_progress();
                    self.flush();
                }
            }
        };
        self.timing.ended = Some(Instant::now());
        let how = match (stopping, finished) {
            (Some(how), How::Finished(_)) => how,
            (_, finished) => finished,
        };
        if !matches!(how, How::Interrupted) {
            decoder.finish(&mut deltas);
            self.tell(&mut deltas);
        }
        Ended { how, counts, broke, tokens, done, reasoning: decoder.reasoning_tokens() }
    }

    fn decoder(&self) -> Decoder {
        match self.conversation.raw {
            Some(_) => Decoder::plain(self.model.clone(), &self.request.stop),
            None => {
                let tools = self.conversation.tools.declared();
                Decoder::chat(self.model.clone(), tools, &self.request.stop, false)
            }
        }
    }

    /// What a control makes of the response: nothing, or its end.
    fn control(&mut self, control: Control, stopping: &mut Option<How>) -> Option<How> {
        match (control, stopping) {
            (Control::Steer { items, answer }, Some(How::Steered(waiting, _))) => {
                waiting.extend(items);
                self.writer.steer_accepted(&new_id("steer"));
                self.flush();
                let _ = answer.send(Steered::Accepted);
                None
            }
            (Control::Steer { answer, .. }, None) if !self.writer.required_input().is_empty() => {
                self.writer.steer_pending(&new_id("steer"));
                self.flush();
                let _ = answer.send(Steered::Pending);
                None
            }
            (Control::Steer { items, answer }, None) => {
                let successor = Arc::new(Running::new(self.tenant, self.running.controls.clone()));
                let successor = self.running.successor.get_or_init(|| successor).clone();
                self.writer.steer_accepted(&new_id("steer"));
                self.flush();
                let _ = answer.send(Steered::Accepted);
                Some(How::Steered(items, successor))
            }
            (Control::Steer { answer, .. }, Some(_)) => {
                let _ = answer.send(Steered::Late);
                None
            }
            (Control::Cancel, _) => Some(How::Cancelled),
            (Control::Interrupt, _) => Some(How::Interrupted),
        }
    }

    /// Whether the one call that was allowed is there.
    fn has_called_enough(&self) -> bool {
        !self.request.parallel_tool_calls
            && self.writer.between_items()
            && !self.writer.required_input().is_empty()
    }

    fn stop(&self, generation: &Generation) {
        // An engine that is down has stopped by itself, and the generation tells so.
        let _ = self.model.engine.cancel(generation.sequence());
    }

    fn tell(&mut self, deltas: &mut Vec<Delta>) {
        if !deltas.is_empty() {
            deltas.drain(..).for_each(|delta| self.writer.delta(delta));
            self.flush();
        }
    }

    /// Ends the response, and leaves its sequence to who comes next.
    fn finish(&mut self, prepared: Prepared, ended: Ended) -> Leg {
        let Ended { how, counts, broke, tokens, done, reasoning } = ended;
        self.account(counts, broke, reasoning);
        let mut steered = None;
        match how {
            How::Finished(FinishReason::Length | FinishReason::Context) => {
                self.end(Status::Incomplete, Some(Incomplete::MaxOutputTokens));
            }
            How::Finished(FinishReason::Stop) | How::StopString => self.end(Status::Completed, None),
            How::Finished(FinishReason::Cancelled) | How::Cancelled => self.end(Status::Cancelled, None),
            How::Interrupted => {
                self.writer.interrupt();
                self.close();
            }
            How::Steered(items, successor) => {
                self.end(Status::Incomplete, Some(Incomplete::Steered));
                steered = Some((items, successor));
            }
            How::Failed(error) => {
                self.fail(&error);
                return Leg::Over(None);
            }
        }
        let session = self.settle(prepared, tokens, done);
        match steered {
            None => Leg::Over(Some(session)),
            Some((items, successor)) => self.succeed(session, items, successor),
        }
    }

    /// The session after the response: its tokens say exactly what the response's items say.
    fn settle(&mut self, prepared: Prepared, generated: Vec<u32>, done: usize) -> Session {
        let Prepared { session, mut tokens, .. } = prepared;
        let kept = match self.writer.dropped_an_item() {
            true => &generated[..done],
            false => &generated[..],
        };
        tokens.extend_from_slice(kept);
        if kept.len() < generated.len() {
            // If the engine is down it forgets the sequence, and a longer one does no harm.
            let _ = self.model.engine.truncate(session.sequence, tokens.len() as u32);
        }
        self.conversation.items.extend(self.writer.items());
        let prints = Fingerprints::of(&self.conversation);
        Session {
            tokens,
            items: self.conversation.items.len(),
            history: prints.whole(),
            answered: !kept.is_empty(),
            key: self.request.cache_key.clone().or(session.key),
            warming: None,
            ..session
        }
    }

    /// Goes on as the successor of a response that was steered.
    fn succeed(&mut self, session: Session, items: Vec<Arc<Item>>, successor: Arc<Running>) -> Leg {
        let arrived = Instant::now();
        let previous = std::mem::replace(&mut self.running, successor);
        self.conversation.items.extend(items);
        let prints = Fingerprints::of(&self.conversation);
        self.request.previous = flint_wire::Previous::Response(previous.id.clone());
        self.writer = writer(&self.model, &self.request, &self.conversation, &self.running);
        match go_on(&self.model, &self.conversation, session, prints, true) {
            Ok(prepared) => {
                self.timing = Timing { rendered: arrived.elapsed(), ..Timing::default() };
                Leg::Steered(Box::new(prepared))
            }
            Err(error) => {
                self.server.started(&self.running);
                self.writer.created();
                self.fail(&error);
                Leg::Over(None)
            }
        }
    }

    fn account(&mut self, counts: Counts, broke: Option<Break>, reasoning: u32) {
        let response = &mut self.writer.response;
        response.usage = Some(Usage {
            input: counts.cached + counts.new,
            cached: counts.cached,
            output: counts.generated,
            reasoning,
        });
        response.metadata.extend(truth::measured(&self.timing, counts, broke));
    }

    fn end(&mut self, status: Status, incomplete: Option<Incomplete>) {
        self.writer.response.completed_at = (status == Status::Completed).then(now);
        self.writer.response.usage.get_or_insert_default();
        self.writer.end(status, incomplete);
        self.close();
    }

    fn fail(&mut self, error: &ApiError) {
        self.writer.fail(error.code, error.message.clone());
        self.close();
    }

    /// The last event goes out after everyone who may ask for more knows the response.
    fn close(&mut self) {
        let mut items = self.conversation.items.clone();
        items.extend(self.writer.items());
        let remembered = Remembered { items, tenant: self.tenant };
        if let Some(on_end) = &self.on_end {
            on_end(&self.running.id, remembered);
        }
        self.server.ended(&self.running.id, &self.writer.response);
        self.flush();
        self.running.log.close();
    }

    fn flush(&mut self) {
        for frame in self.writer.take() {
            self.running.log.push(frame);
        }
    }
}

/// Where a turn stands after one response.
enum Leg {
    /// At its end, with a sequence that may rest.
    Over(Option<Session>),
    Steered(Box<Prepared>),
}

fn writer(model: &Model, request: &Request, conversation: &Conversation, running: &Running) -> Writer {
    let previous = match &request.previous {
        flint_wire::Previous::Nothing => None,
        flint_wire::Previous::Response(id) => Some(id.clone()),
    };
    let response = Response {
        id: running.id.clone(),
        created_at: now(),
        completed_at: None,
        status: Status::InProgress,
        model: model.name.clone(),
        previous,
        output: Vec::new(),
        incomplete: None,
        failure: None,
        usage: None,
        metadata: truth::served(model, request),
        settings: request.settings(),
    };
    Writer::new(response, conversation.tools.clone())
}

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

fn priority(request: &Request) -> Priority {
    match (request.background, request.tier) {
        (_, Tier::Priority) => Priority::Keystroke,
        (true, _) | (_, Tier::Flex) => Priority::Background,
        (false, Tier::Default) => Priority::Interactive,
    }
}

pub fn engine_error(error: &EngineError) -> ApiError {
    match error {
        EngineError::Overloaded => ApiError::overloaded(error.to_string(), 1),
        EngineError::Down(_) | EngineError::TimedOut => ApiError::overloaded(error.to_string(), 5),
        EngineError::Refused(failure) => ApiError::internal(failure.to_string()),
    }
}
