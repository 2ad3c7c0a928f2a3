//! One turn, from a valid request to the last event of its response. Follow a token here.
//!
//! `Turn::begin` renders the conversation into tokens and finds the sequence that already knows most of them.
//! `run` then asks the engine, turns its tokens into events, and listens meanwhile to what the client wants: to
//! cancel, to interrupt, or to steer. A steer ends the response at the next token and goes on, on the same
//! sequence, as its successor.

use crate::admit::Class;
use crate::decode::{Decoder, Delta, Sampled};
use crate::enrol::Origin;
use crate::grammar::Held;
use crate::ids::new_id;
use crate::limits::{CONTROLS_WAITING_MAX, HEARTBEAT_SECONDS, OUTPUT_TOKENS_DEFAULT};
use crate::log::Log;
use crate::model::Model;
use crate::prepare::{Owner, Prepared, go_on, prepare};
use crate::prompt::Conversation;
use crate::sampling::{sampling, seed};
use crate::server::{Remembered, Server};
use crate::sessions::{Fingerprints, Session};
use crate::store::tape::Heard;
use crate::store::{Ending, Pen, Store, Tail};
use crate::ticket::Ticket;
use crate::truth::{self, Timing};
use crate::writer::Writer;
use flint_engine::message::{Break, Counts, Event, FinishReason, Generate, Priority, Tenant};
use flint_engine::supervise::{EngineError, Generation, Told};
use flint_wire::{ApiError, Incomplete, Item, Request, Response, Status, Tier, Usage};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot};

pub mod wait;

/// A response that is being made, as others see it.
#[derive(Debug)]
pub struct Running {
    pub id: String,
    pub tenant: Tenant,
    pub log: Arc<Log>,
    controls: mpsc::Sender<Control>,
    successor: OnceLock<Arc<Running>>,
    position: AtomicUsize,         // in the queue; 0: it does not wait
    store: Option<Arc<dyn Store>>, // where it is kept, if it is to be
    timing: OnceLock<Timing>,
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
    fn new(tenant: Tenant, controls: mpsc::Sender<Control>, store: Option<Arc<dyn Store>>) -> Running {
        let (id, log) = (new_id("resp"), Arc::default());
        let (successor, timing, position) = (OnceLock::new(), OnceLock::new(), AtomicUsize::new(0));
        Running { id, tenant, log, controls, successor, position, store, timing }
    }

    /// A response of an earlier process, whose events up to number `next` are in the store.
    pub fn again(
        id: String,
        tenant: Tenant,
        store: Arc<dyn Store>,
        next: u64,
    ) -> (Arc<Running>, mpsc::Receiver<Control>) {
        let (controls, receiver) = mpsc::channel(CONTROLS_WAITING_MAX);
        let running = Running::new(tenant, controls, Some(store));
        (Arc::new(Running { id, log: Arc::new(Log::starting_at(next)), ..running }), receiver)
    }

    /// Its events from number `from` on.
    pub fn read(&self, from: u64) -> Tail {
        Tail::live(self.id.clone(), self.log.read(from), self.store.clone())
    }

    /// The response that follows this one because it was steered; known before this one ends.
    pub fn successor(&self) -> Option<Arc<Running>> {
        self.successor.get().cloned()
    }

    /// Where its time went; known before it ends, if the engine was asked.
    pub fn timing(&self) -> Option<Timing> {
        self.timing.get().copied()
    }

    /// Says what is wanted. A response that has just ended wants nothing any more.
    pub async fn control(&self, control: Control) {
        let _ = self.controls.send(control).await;
    }
}

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
    pub(crate) on_end: Option<Remember>,
    pub(crate) ticket: Option<Ticket>, // none: it was begun by an earlier process
}

/// What an earlier process did for the response.
#[derive(Debug, Default)]
pub struct Past {
    pub resumed: bool,
    pub next: u64, // number of the first event that nobody has been told
    pub heard: Vec<Heard>,
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

/// What has become of the model's tokens so far.
struct Answer {
    decoder: Decoder,
    deltas: Vec<Delta>,
    tokens: Vec<u32>,
    done: usize, // of these, up to the end of the last whole item
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
            writer: writer(&model, &request, &conversation, &running, created_at, &held),
            pen: Pen::unstored(running.clone(), server.registry.clone()),
            seed: seed(&request),
            origin: None,
            past: Past::default(),
            timing: Timing::default(),
            on_end: None,
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
            if !self.admitted(&mut controls).await {
                // A sequence that was never begun has nothing to keep.
                let begun = Some(prepared.session).filter(|session| !session.tokens.is_empty());
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
                    return;
                }
                Leg::Steered(next) => prepared = *next,
            }
            self.enrol_successor(&prepared).await;
        }
    }

    /// Prefills in the background; the answer is there at once.
    async fn warm(&mut self, prepared: Prepared) -> Option<Session> {
        let generation = self.generate(&prepared, &[], 0);
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
    async fn leg(&mut self, mut prepared: Prepared, controls: &mut mpsc::Receiver<Control>) -> Leg {
        if let Some(generation) = prepared.session.warming.take() {
            while generation.next_event().await.is_some() {}
        }
        let max_tokens = self.max_tokens(prepared.tokens.len());
        let answer = self.replay();
        if let Some(how) = self.ended_before(&answer, max_tokens) {
            let (new, generated) = (prepared.tokens.len() as u32, answer.tokens.len() as u32);
            let counts = Counts { new: new + generated, generated, ..Counts::default() };
            let ended = self.conclude(answer, how, counts, None);
            self.finish(prepared, ended);
            // The engine was not asked, so it has no sequence that could rest.
            return Leg::Over(None);
        }
        let ended = match self.generate(&prepared, &answer.tokens, max_tokens) {
            Ok(generation) => self.follow(answer, &generation, controls).await,
            Err(error) => {
                self.fail(&error);
                return Leg::Over(None);
            }
        };
        self.finish(prepared, ended)
    }

    /// The state of the answer after the tokens of an earlier process, whose events have been told.
    fn replay(&mut self) -> Answer {
        let (decoder, next) = (self.decoder(), self.writer.next_number());
        let mut answer = Answer { decoder, deltas: Vec::new(), tokens: Vec::new(), done: 0 };
        for heard in std::mem::take(&mut self.past.heard) {
            self.hear(&mut answer, &heard.sampled());
        }
        self.writer.resume_at(next);
        answer
    }

    /// How the answer had ended already, if its last event is all that is missing.
    fn ended_before(&self, answer: &Answer, max_tokens: u32) -> Option<How> {
        match answer.tokens.last() {
            None => None,
            Some(_) if answer.decoder.stopped() || self.has_called_enough() => Some(How::StopString),
            Some(last) if self.stop_tokens().contains(last) => Some(How::Finished(FinishReason::Stop)),
            Some(_) if answer.tokens.len() >= max_tokens as usize => {
                Some(How::Finished(FinishReason::Length))
            }
            Some(_) => None,
        }
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
            priority: priority(&self.request),
            tenant: self.tenant,
        };
        self.model.generate(request, &prepared.tokens).map_err(|error| engine_error(&error))
    }

    fn stop_tokens(&self) -> Vec<u32> {
        self.model.stop_tokens(self.conversation.raw.as_ref())
    }

    fn max_tokens(&self, prompt: usize) -> u32 {
        let room = self.model.context().saturating_sub(prompt as u32);
        self.request.max_output_tokens.unwrap_or(OUTPUT_TOKENS_DEFAULT).min(room.max(1))
    }

    /// The loop of a response: tokens in, events out, until one side ends it.
    async fn follow(
        &mut self,
        mut answer: Answer,
        generation: &Generation,
        controls: &mut mpsc::Receiver<Control>,
    ) -> Ended {
        let (mut broke, mut stopping) = (None, None);
        // Who comes back to a response that has outlived its process may also leave it again.
        let detached = self.request.background || self.past.resumed;
        let log = self.running.log.clone();
        let abandoned = log.abandoned();
        tokio::pin!(abandoned);
        let (counts, finished) = loop {
            let heartbeat = tokio::time::sleep(Duration::from_secs(HEARTBEAT_SECONDS));
            tokio::select! {
                biased;
                told = next_event(&self.pen, generation) => match told.map(|told| (told.event, told.at)) {
                    Some((Event::Started { broke: at, .. }, _)) => broke = at,
                    Some((Event::Token { token, logprob, top, .. }, at)) => {
                        self.timing.first_token.get_or_insert_with(Instant::now);
                        if stopping.is_some() {
                            answer.tokens.push(token);
                            continue;
                        }
                        let sampled = Sampled { token, logprob, top: &top };
                        self.pen.hear(&sampled);
                        self.writer.token_at(Some(at));
                        self.hear(&mut answer, &sampled);
                        self.flush();
                        self.writer.token_at(None);
                        if answer.decoder.stopped() || self.has_called_enough() {
                            stopping = Some(How::StopString);
                            self.stop(generation);
                        }
                    }
                    Some((Event::Finished { reason, counts, .. }, _)) => break (counts, How::Finished(reason)),
                    Some((Event::Failed { failure, .. } | Event::Refused { failure, .. }, _)) => {
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
                () = &mut abandoned, if stopping.is_none() && !detached => {
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
        self.conclude(answer, how, counts, broke)
    }

    /// Takes one token into the answer.
    fn hear(&mut self, answer: &mut Answer, sampled: &Sampled<'_>) {
        answer.tokens.push(sampled.token);
        answer.decoder.push(sampled, &mut answer.deltas);
        answer.deltas.drain(..).for_each(|delta| self.writer.delta(delta));
        if self.writer.between_items() {
            answer.done = answer.tokens.len();
        }
    }

    /// What was held back comes out, but only together with the last event: it belongs to no token, so it could
    /// not be told from what is yet to come if the process ended in between.
    fn conclude(&mut self, answer: Answer, how: How, counts: Counts, broke: Option<Break>) -> Ended {
        let Answer { mut decoder, mut deltas, tokens, done } = answer;
        if !matches!(how, How::Interrupted) {
            decoder.finish(&mut deltas);
            deltas.drain(..).for_each(|delta| self.writer.delta(delta));
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
                let (controls, store) = (self.running.controls.clone(), self.running.store.clone());
                let successor = Arc::new(Running::new(self.tenant, controls, store));
                let successor = self.running.successor.get_or_init(|| successor).clone();
                // Told with the response's last events, at the next token: a process that dies before has promised
                // nothing that the next one does not know of.
                self.writer.steer_accepted(&new_id("steer"));
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

    /// Ends the response, and leaves its sequence to who comes next.
    fn finish(&mut self, prepared: Prepared, ended: Ended) -> Leg {
        let Ended { how, counts, broke, tokens, done, reasoning } = ended;
        self.account(prepared.tokens.len() as u32, counts, broke, reasoning);
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
        self.origin = self.origin.take().map(|origin| origin.successor(self));
        self.conversation.items.extend(items);
        let prints = Fingerprints::of(&self.conversation);
        self.request.previous = flint_wire::Previous::Response(previous.id.clone());
        self.writer =
            writer(&self.model, &self.request, &self.conversation, &self.running, now(), &self.held);
        self.pen = Pen::unstored(self.running.clone(), self.server.registry.clone());
        self.past = Past::default();
        match go_on(&self.model, &self.conversation, session, prints, true) {
            Ok(prepared) => {
                self.timing =
                    Timing { arrived: Some(arrived), rendered: arrived.elapsed(), ..Timing::default() };
                Leg::Steered(Box::new(prepared))
            }
            Err(error) => {
                self.server.registry.started(&self.running);
                self.writer.created();
                self.fail(&error);
                Leg::Over(None)
            }
        }
    }

    fn account(&mut self, input: u32, counts: Counts, broke: Option<Break>, reasoning: u32) {
        self.running.timing.get_or_init(|| self.timing);
        let response = &mut self.writer.response;
        let usage = Usage {
            input,
            // After a restart the tokens that had been generated are prefilled too.
            cached: counts.cached.min(input),
            output: counts.generated,
            reasoning,
        };
        response.usage = Some(usage);
        if let Some(ticket) = &mut self.ticket {
            ticket.spent(&self.running.id, usage, &self.timing);
        }
        response.metadata.extend(truth::measured(&self.timing, counts, broke));
    }

    fn end(&mut self, status: Status, incomplete: Option<Incomplete>) {
        self.writer.response.completed_at = (status == Status::Completed).then(now);
        self.writer.response.usage.get_or_insert_default();
        self.writer.end(status, incomplete);
        self.close();
    }

    fn fail(&mut self, error: &ApiError) {
        if let Some(ticket) = &self.ticket {
            ticket.failed(error);
        }
        self.writer.fail(error.code, error.message.clone());
        self.close();
    }

    /// The last event goes out after everyone who may ask for more knows the response.
    fn close(&mut self) {
        let mut items = self.conversation.items.clone();
        items.extend(self.writer.items());
        let remembered = Remembered { items, tenant: self.tenant, stored: self.pen.is_stored() };
        if let Some(on_end) = &self.on_end {
            on_end(&self.running.id, remembered);
        }
        self.flush();
    }

    /// Lets go of the events that were written since the last time, as one whole.
    fn flush(&mut self) {
        let frames = self.writer.take();
        let response = &self.writer.response;
        let ending = || Ending { status: response.status, response: response.json() };
        self.pen.write(frames, || response.status.is_final().then(ending));
    }
}

/// Where a turn stands after one response.
enum Leg {
    /// At its end, with a sequence that may rest.
    Over(Option<Session>),
    Steered(Box<Prepared>),
}

/// The next thing the engine tells, once there is room for what it will be made into.
async fn next_event(pen: &Pen, generation: &Generation) -> Option<Told> {
    pen.room().await;
    generation.next_told().await
}

fn writer(
    model: &Model,
    request: &Request,
    conversation: &Conversation,
    running: &Running,
    created_at: u64,
    held: &Held,
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
        metadata: truth::served(model, request, held),
        settings: request.settings(),
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
