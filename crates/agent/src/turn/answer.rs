//! One request, and the answer as it comes: shown while it is written, steered, stopped, and asked for again when a
//! connection breaks.

use super::call::Call;
use super::{Stop, Turn};
use crate::agent::{Agent, Must, Waiting};
use crate::approve::Policy;
use crate::client::{Ask, ClientError, Ended, How, Incoming};
use crate::history::{Record, text_of};
use crate::limits::RETURN_SECONDS;
use crate::prompt;
use crate::talk::{Event, Failure, How as Way, Item, Order, Progress, State, What};
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::time::Duration;

/// A response as far as it has come.
#[derive(Debug, Default)]
struct Answer {
    response: Option<String>,
    done: Vec<Value>,                  // items that are whole
    writing: Option<(String, String)>, // the message that is being written: its id and text
    steers: VecDeque<Waiting>,         // on their way to the server
    first: bool,                       // something was written
    file: Option<String>,              // that it is to be the text of
}

impl Answer {
    fn new(turn: &Turn) -> Answer {
        Answer { file: turn.rewriting.clone(), ..Answer::default() }
    }

    /// How a message of it is shown. The text of a file is not something said.
    fn message(&self, text: String, progress: Progress) -> What {
        match &self.file {
            Some(path) => {
                What::Look { tool: "write".to_owned(), about: path.clone(), output: text, progress }
            }
            None => What::Message { text },
        }
    }
}

/// How waiting for an answer ended.
enum Came {
    Whole(Box<Ended>),
    /// It was given up, with what it had written: it is asked again.
    Again,
}

enum Trouble {
    Stop(Stop),
    Client(ClientError),
}

impl From<ClientError> for Trouble {
    fn from(error: ClientError) -> Trouble {
        Trouble::Client(error)
    }
}

impl<E: Into<Stop>> From<E> for Trouble {
    fn from(error: E) -> Trouble {
        Trouble::Stop(error.into())
    }
}

impl Agent {
    /// Asks, and returns what the model calls for. An answer whose connection broke is taken up where it was, if its
    /// server still has it; else it is asked for again.
    pub(super) async fn respond(&mut self, turn: &mut Turn) -> Result<Vec<Call>, Stop> {
        let (mut tries, mut answer) = (0, Answer::new(turn));
        loop {
            let takes_up = answer.response.clone().is_some_and(|response| self.client.take_up(&response));
            if !takes_up {
                self.hold_steers(&mut answer).await;
                answer = Answer::new(turn);
            }
            let error = match self.listen(takes_up, &mut answer, turn).await {
                Ok(Came::Whole(ended)) => return self.take_ended(*ended, turn).await,
                Ok(Came::Again) => {
                    answer = Answer::new(turn);
                    continue;
                }
                Err(Trouble::Stop(stop)) => return Err(stop),
                Err(Trouble::Client(error)) => error,
            };
            self.log.forget();
            let is_refused = matches!(error, ClientError::Refused(_));
            let lost = matches!(&error, ClientError::Refused(refusal) if refusal.lost_previous());
            let gone = takes_up && is_refused;
            if is_refused {
                answer.response = None;
            }
            if !(lost || gone || error.passes()) || tries >= self.client.provider().stream_retries {
                return Err(Stop::Failed(failure(&error)));
            }
            tries += 1;
            if !lost {
                self.pause(&error, tries).await?;
            }
        }
    }

    /// Asks, unless an answer was taken up, and hears what comes.
    async fn listen(
        &mut self,
        takes_up: bool,
        answer: &mut Answer,
        turn: &mut Turn,
    ) -> Result<Came, Trouble> {
        let before = self.client.connection();
        if !takes_up {
            self.ask().await?;
        }
        let now = self.client.connection();
        if takes_up || now != before {
            self.tell(Event::Connection(now)).await;
        }
        loop {
            tokio::select! {
                order = self.orders.recv() => {
                    if let Some(came) = self.order_meanwhile(order, answer).await? {
                        return Ok(came);
                    }
                }
                incoming = self.client.next() => {
                    if let Some(ended) = self.take(incoming?, answer, turn).await? {
                        return Ok(Came::Whole(ended));
                    }
                }
            }
        }
    }

    async fn ask(&mut self) -> Result<(), Trouble> {
        self.say_held().await?;
        let mut fields = self.fields();
        if self.flint {
            // An answer whose connection breaks goes on for a moment, and can be taken up.
            fields.insert("store".to_owned(), true.into());
            let returns = json!({"flint.return_seconds": RETURN_SECONDS.to_string()});
            fields.insert("metadata".to_owned(), returns);
        } else {
            // What is not stored there can only be thought on from if it comes back, sealed or not.
            fields.insert("include".to_owned(), json!(["reasoning.encrypted_content"]));
        }
        self.client.connect().await?;
        let known = self.known();
        if known.is_none() {
            self.say_pending().await?;
        }
        let asked = self.client.create(&Ask { fields, items: self.log.items(), known }).await;
        self.log.sync()?;
        asked?;
        self.say_pending().await?;
        Ok(())
    }

    /// All of a request but its input.
    pub(crate) fn fields(&self) -> Map<String, Value> {
        let mut fields = self.settings.fields();
        let mut set = |key: &str, value: Value| fields.insert(key.to_owned(), value);
        let instructions = match &self.settings.instructions {
            Some(more) => format!("{}\n{more}\n", prompt::INSTRUCTIONS),
            None => prompt::INSTRUCTIONS.to_owned(),
        };
        set("instructions", instructions.into());
        set("tools", self.tools());
        if self.boldness > 1 {
            // The likeliest answer was wrong, and would be the same again.
            set("temperature", json!(0.3 * f64::from(self.boldness)));
        }
        match self.must {
            Some(Must::Call(tool)) => drop(set("tool_choice", json!({"type": "function", "name": tool}))),
            Some(Must::Write) => drop(set("tool_choice", "none".into())),
            None => {}
        }
        set("parallel_tool_calls", false.into());
        set("store", false.into());
        set("prompt_cache_key", self.log.id().into());
        fields
    }

    /// The tools. A server of ours is told what the files are that the model has seen: an edit can then only name lines
    /// that they have.
    fn tools(&self) -> Value {
        let mut tools = prompt::tools(self.settings.approvals != Policy::Never);
        let crew = self.hands.crew();
        if let (Some(tools), false) = (tools.as_array_mut(), crew.roles.is_empty()) {
            tools.push(prompt::agent(&crew.roles, crew.stays));
        }
        if self.flint {
            let texts = prompt::texts(&self.shown, self.workshop.root());
            tools[prompt::EDIT]["parameters"]["x-flint-edits"] = texts.into();
        }
        tools
    }

    /// What came. An answer that is whole is returned.
    async fn take(
        &mut self,
        incoming: Incoming,
        answer: &mut Answer,
        turn: &mut Turn,
    ) -> Result<Option<Box<Ended>>, Trouble> {
        match incoming {
            Incoming::Created { response } => answer.response = Some(response),
            Incoming::ItemAdded { id, item } => self.begin_item(id, &item, answer).await,
            Incoming::TextDelta { id, text } => {
                self.grow(&id, &text, answer, turn).await;
                if let Some((_, so_far)) = answer.writing.as_mut().filter(|(writing, _)| *writing == id) {
                    *so_far += &text;
                }
            }
            Incoming::ReasoningDelta { id, text } => self.grow(&id, &text, answer, turn).await,
            Incoming::CallDelta { .. } => note_first(answer, turn),
            Incoming::ItemDone { item } => self.end_item(item, answer).await,
            Incoming::ItemDropped { .. } => answer.writing = None,
            Incoming::SteerAccepted => self.first_steer(answer, State::Accepted).await,
            Incoming::SteerPending => self.steer_pends(answer).await,
            Incoming::SteerFailed { why } => self.steer_failed(answer, why).await?,
            Incoming::Ended(ended) if ended.how == How::Steered => self.steered(*ended, answer, turn).await?,
            Incoming::Ended(ended) => {
                self.hold_steers(answer).await;
                return Ok(Some(ended));
            }
            Incoming::Refused(refusal) => return Err(ClientError::Refused(refusal).into()),
            Incoming::Limits(limits) => self.limits = limits,
            Incoming::Queued { position: Some(position) } => {
                let text = format!("{position} turns are before this one");
                self.tell(Event::Notice { text }).await;
            }
            Incoming::Queued { position: None } | Incoming::Other => {}
        }
        Ok(None)
    }

    async fn begin_item(&mut self, id: String, item: &Value, answer: &mut Answer) {
        let what = match item["type"].as_str() {
            Some("message") => {
                answer.writing = Some((id.clone(), String::new()));
                answer.message(String::new(), Progress::Running)
            }
            Some("reasoning") => What::Reasoning { text: String::new() },
            // Calls are shown when they are made.
            _ => return,
        };
        self.tell(Event::ItemBegan(Item { id, what })).await;
    }

    async fn grow(&mut self, id: &str, text: &str, answer: &mut Answer, turn: &mut Turn) {
        note_first(answer, turn);
        self.tell(Event::ItemGrew { id: id.to_owned(), text: text.to_owned() }).await;
    }

    async fn end_item(&mut self, item: Value, answer: &mut Answer) {
        let id = item["id"].as_str().unwrap_or_default().to_owned();
        let what = match item["type"].as_str() {
            Some("message") => {
                answer.writing = None;
                Some(answer.message(text_of(&item), Progress::Done))
            }
            Some("reasoning") => Some(What::Reasoning { text: text_of(&item) }),
            _ => None,
        };
        answer.done.push(item);
        if let Some(what) = what {
            self.tell(Event::ItemEnded(Item { id, what })).await;
        }
    }

    /// A response that ended: its items join the conversation.
    async fn take_ended(&mut self, ended: Ended, turn: &mut Turn) -> Result<Vec<Call>, Stop> {
        self.log.push_all(ended.output.clone())?;
        self.log.is_known_as(&ended.response);
        self.must = None;
        self.account(&ended, turn).await?;
        match ended.how {
            How::Completed | How::Steered => Ok(ended.output.iter().filter_map(Call::read).collect()),
            How::Interrupted => Err(Stop::Interrupted),
            How::Incomplete { why } => {
                Err(Stop::Failed(Failure::Turn(format!("the answer was cut short: {why}"))))
            }
            How::Failed { why } => Err(Stop::Failed(Failure::Turn(why))),
        }
    }

    /// A response that was steered: what it has written stays, then comes what was said, and its successor goes on.
    async fn steered(&mut self, ended: Ended, answer: &mut Answer, turn: &mut Turn) -> Result<(), Trouble> {
        self.log.push_all(ended.output.clone())?;
        self.account(&ended, turn).await?;
        *answer = Answer { steers: std::mem::take(&mut answer.steers), ..Answer::new(turn) };
        if let Some(steer) = answer.steers.pop_front() {
            self.say(&steer).await?;
        }
        Ok(())
    }

    /// An order while an answer comes.
    async fn order_meanwhile(
        &mut self,
        order: Option<Order>,
        answer: &mut Answer,
    ) -> Result<Option<Came>, Trouble> {
        match order {
            None | Some(Order::End) => {
                self.give_up(answer).await?;
                Err(Stop::Ended.into())
            }
            Some(Order::Interrupt) => {
                let Some(response) = answer.response.clone() else {
                    self.client.hang_up();
                    return Err(Stop::Interrupted.into());
                };
                // The server ends the response, and says what it has.
                if !self.client.cancel(&response).await? {
                    self.keep_written(answer)?;
                    return Err(Stop::Interrupted.into());
                }
                Ok(None)
            }
            Some(Order::Steer { number, text }) => self.steer(number, text, answer).await,
            Some(order) => {
                self.at_any_time(order).await?;
                Ok(None)
            }
        }
    }

    /// Into the running response, if it can be; else with the next request.
    async fn steer(
        &mut self,
        number: u64,
        text: String,
        answer: &mut Answer,
    ) -> Result<Option<Came>, Trouble> {
        self.log.record(&Record::Waiting { number, text: text.clone() })?;
        let steer = Waiting { number, text, how: Way::Steered };
        let calls = answer.done.iter().any(|item| Call::read(item).is_some());
        let Some(response) = answer.response.clone().filter(|_| !calls) else {
            self.hold(steer).await;
            return Ok(None);
        };
        if self.client.steer(&response, &steer.text).await? {
            self.sent(&steer, State::Sent).await;
            answer.steers.push_back(steer);
            return Ok(None);
        }
        // Without a WebSocket: the answer is given up, and what it has written is part of what is asked next.
        self.client.cancel(&response).await?;
        self.keep_written(answer)?;
        self.say(&steer).await?;
        Ok(Some(Came::Again))
    }

    async fn first_steer(&mut self, answer: &Answer, state: State) {
        if let Some(steer) = answer.steers.front() {
            self.sent(steer, state).await;
        }
    }

    /// The server will put it after the outputs of calls, with the next request on this connection.
    async fn steer_pends(&mut self, answer: &mut Answer) {
        if let Some(steer) = answer.steers.pop_front() {
            self.sent(&steer, State::Accepted).await;
            self.pending.push_back(steer);
        }
    }

    /// What the server has put after the input of a request, or would have on a connection that is gone.
    async fn say_pending(&mut self) -> Result<(), Stop> {
        while let Some(steer) = self.pending.pop_front() {
            self.say(&steer).await?;
        }
        Ok(())
    }

    /// It came too late for its response. If another runs, it is for that one.
    async fn steer_failed(&mut self, answer: &mut Answer, why: String) -> Result<(), Trouble> {
        let Some(steer) = answer.steers.pop_front() else { return Ok(()) };
        match &answer.response {
            Some(response) if !why.contains(response.as_str()) => {
                let response = response.clone();
                self.client.steer(&response, &steer.text).await?;
                answer.steers.push_back(steer);
            }
            _ => {
                self.hold(steer).await;
            }
        }
        Ok(())
    }

    /// The response has ended without them.
    async fn hold_steers(&mut self, answer: &mut Answer) {
        for steer in std::mem::take(&mut answer.steers) {
            self.hold(steer).await;
        }
    }

    async fn give_up(&mut self, answer: &mut Answer) -> Result<(), Stop> {
        if let Some(response) = answer.response.clone() {
            // It ends with the connection too.
            let _ = self.client.cancel(&response).await;
        }
        self.client.hang_up();
        self.keep_written(answer)
    }

    /// What a response had written when it was given up.
    fn keep_written(&mut self, answer: &mut Answer) -> Result<(), Stop> {
        let mut items = std::mem::take(&mut answer.done);
        items.retain(|item| Call::read(item).is_none());
        if let Some((_, text)) = answer.writing.take().filter(|(_, text)| !text.is_empty()) {
            let content = json!([{"type": "output_text", "text": text}]);
            items.push(json!({"type": "message", "role": "assistant", "content": content}));
        }
        self.log.push_all(items)?;
        self.log.forget();
        Ok(())
    }

    /// Before the next try: longer each time, and not at all if a person does not want it.
    async fn pause(&mut self, error: &ClientError, tries: u32) -> Result<(), Stop> {
        let said = match error {
            ClientError::Refused(refusal) => refusal.retry_after,
            _ => None,
        };
        let pause = said.unwrap_or(Duration::from_millis(100 << tries.min(6)));
        let why = format!("{error}; trying again in {:.1} s", pause.as_secs_f32());
        self.tell(Event::Connection(crate::talk::Connection::Lost { why })).await;
        let until = tokio::time::Instant::now() + pause;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(until) => return Ok(()),
                order = self.orders.recv() => match order {
                    None | Some(Order::End) => return Err(Stop::Ended),
                    Some(Order::Interrupt) => return Err(Stop::Interrupted),
                    Some(order) => self.at_any_time(order).await?,
                }
            }
        }
    }
}

fn note_first(answer: &mut Answer, turn: &mut Turn) {
    if !answer.first {
        answer.first = true;
        turn.figures.first_token.get_or_insert(turn.began.elapsed());
    }
}

fn failure(error: &ClientError) -> Failure {
    match error {
        ClientError::Refused(refusal) if refusal.is_about_model() => Failure::Model(refusal.message.clone()),
        error => Failure::Turn(error.to_string()),
    }
}
