//! The agent between turns: it takes orders, keeps what waits, and begins one turn after the other.

use crate::approve::{Approvals, Book};
use crate::client::Client;
use crate::facts::Fact;
use crate::hands::{Crew, Hands, Journal};
use crate::history::{Log, Record, Saved, user};
use crate::limits::WAITING_MAX;
use crate::provider::Provider;
use crate::rewind::Rewind;
use crate::router::{Choices, Router};
use crate::sessions::{Session, SessionError};
use crate::settings::Settings;
use crate::talk::{Event, How, Item, Limit, Order, Outcome, Served, State};
use crate::tools::Workshop;
use crate::turn::{Diagnosis, Stop};
use serde_json::Value;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::mpsc;

/// What a session is made of.
#[derive(Debug)]
pub struct Setup {
    pub settings: Settings,
    pub provider: Provider,
    pub session: Session,
    pub records: Vec<Value>, // of a session that is taken up again
    pub tells_past: bool,    // what they say is told again
    pub workshop: Arc<Workshop>,
    pub approvals: Approvals,
    pub book: Book,               // where rules for projects are kept
    pub project: PathBuf,         // that they are about
    pub notices: Vec<String>,     // what a person should know from the beginning
    pub choices: Option<Choices>, // models for the router
    pub crew: Crew,               // other agents that it can give tasks to
    pub journal: Option<Journal>, // where it tells another agent what it changes
}

#[derive(Debug)]
pub struct Agent {
    pub(crate) settings: Settings,
    pub(crate) client: Client,
    pub(crate) log: Log,
    pub(crate) workshop: Arc<Workshop>,
    pub(crate) approvals: Approvals,
    pub(crate) book: Book,
    pub(crate) project: PathBuf,
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) orders: mpsc::Receiver<Order>,
    pub(crate) waiting: VecDeque<Waiting>, // for turns of their own
    pub(crate) held: VecDeque<Waiting>,    // for the next request of this turn
    pub(crate) pending: VecDeque<Waiting>, // that the server holds
    pub(crate) facts: Vec<Fact>,
    pub(crate) rewind: Rewind,
    pub(crate) limits: Vec<Limit>,
    pub(crate) served: Option<Served>,
    pub(crate) flint: bool,        // the server is one of ours
    pub(crate) shown: Vec<String>, // files whose text the model has seen
    pub(crate) notices: Vec<String>,
    past: Vec<Item>, // of a session that is taken up again
    pub(crate) must: Option<Must>,
    pub(crate) router: Option<Router>,
    chosen: Option<String>, // a model, from the next turn on
    pub(crate) diagnosis: Diagnosis,
    pub(crate) ignored_told: Vec<String>, // settings without effect, in words
    pub(crate) boldness: u32,             // checks that failed in this turn
    pub(crate) asked_window: bool,
    pub(crate) shortened_at: Option<usize>, // items that were left
    pub(crate) hands: Hands,
    pub(crate) journal: Option<Journal>,
    open_change: Option<Vec<Saved>>, // that may have been cut off
    pub(crate) lost: Vec<(String, String, String)>, // agents of an earlier time that did not report
}

/// What the next answer has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Must {
    /// A call of this tool.
    Call(&'static str),
    /// No call.
    Write,
}

/// A text that will be said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub number: u64,
    pub text: String,
    pub how: How,
}

impl Agent {
    pub fn new(setup: Setup, orders: mpsc::Receiver<Order>, events: mpsc::Sender<Event>) -> Agent {
        let Setup {
            settings,
            provider,
            session,
            records,
            tells_past,
            workshop,
            approvals,
            book,
            project,
            notices,
            choices,
            crew,
            journal,
        } = setup;
        let records = crate::history::records(&records);
        let waiting = crate::history::waiting(&records).into_iter();
        // Others are asked who they are by their first answer.
        let flint = provider.id == crate::settings::OWN;
        let router = choices.map(|choices| Router::new(choices, &settings, &provider));
        let client = Client::new(provider, &session.id);
        let open_change = crate::mend::open_change(&records, workshop.folder());
        Agent {
            client,
            log: Log::resumed(session, &records),
            workshop,
            approvals,
            book,
            project,
            events,
            orders,
            waiting: waiting.map(|(number, text)| Waiting { number, text, how: How::Queued }).collect(),
            held: VecDeque::new(),
            pending: VecDeque::new(),
            facts: records.iter().filter_map(fact).collect(),
            rewind: Rewind::resumed(&records),
            limits: Vec::new(),
            served: None,
            flint,
            shown: Vec::new(),
            notices,
            past: if tells_past { crate::replay::items(&records) } else { Vec::new() },
            must: None,
            router,
            chosen: None,
            diagnosis: Diagnosis::default(),
            ignored_told: Vec::new(),
            boldness: 0,
            asked_window: false,
            shortened_at: None,
            hands: Hands::new(crew, records.iter().filter(|record| is_hand(record)).count()),
            journal,
            lost: crate::history::unreported(&records),
            open_change,
            settings,
        }
    }

    /// Until it is told to end, or nobody is there to tell it anything.
    pub async fn run(mut self) -> Result<(), SessionError> {
        self.begin().await?;
        let outcome = self.work_on().await;
        // Whatever it was: nobody is left to work for.
        self.stop_hands(true, None).await.and(outcome)
    }

    /// The same, as a thing that another agent can hold.
    pub(crate) fn boxed(self) -> Pin<Box<dyn Future<Output = Result<(), SessionError>> + Send>> {
        Box::pin(self.run())
    }

    /// One turn after the other.
    async fn work_on(&mut self) -> Result<(), SessionError> {
        loop {
            self.take_chosen().await;
            let text = match self.waiting.pop_front() {
                Some(next) => self.take_waiting(next).await?,
                None => match self.next_order().await? {
                    None | Some(Order::End) => return Ok(()),
                    Some(order) => match self.between_turns(order).await? {
                        Some(text) => text,
                        None => continue,
                    },
                },
            };
            let mut text = self.routed(text).await;
            loop {
                match self.turn(&text).await? {
                    Next::End => return Ok(()),
                    Next::Turn => break,
                    Next::Again { words } => text = words,
                }
            }
        }
    }

    async fn begin(&mut self) -> Result<(), SessionError> {
        self.tell(Event::Began { session: self.log.id().to_owned() }).await;
        for item in std::mem::take(&mut self.past) {
            self.tell(Event::ItemEnded(item)).await;
        }
        for text in std::mem::take(&mut self.notices) {
            self.tell(Event::Notice { text }).await;
        }
        if self.log.items().is_empty() {
            let (folder, model) = (self.workshop.folder().display().to_string(), self.settings.model.clone());
            self.log.record(&Record::Session { folder, model })?;
            let folder = self.settings.shown_folder.as_deref().unwrap_or(self.workshop.folder());
            let place = crate::prompt::place(folder, &self.settings);
            self.log.push(user(&place))?;
        }
        if let Some(changes) = self.open_change.take() {
            self.mend(&changes).await?;
        }
        self.hear_lost()?;
        for waiting in &self.waiting {
            self.sent(waiting, State::Waiting).await;
        }
        Ok(())
    }

    /// What other agents report meanwhile joins the conversation, for the next turn to read.
    async fn next_order(&mut self) -> Result<Option<Order>, SessionError> {
        loop {
            tokio::select! {
                order = self.orders.recv() => return Ok(order),
                news = self.hands.next() => self.hear(news, None)?,
            }
        }
    }

    /// What is to be said next, if this order says so.
    async fn between_turns(&mut self, order: Order) -> Result<Option<String>, SessionError> {
        match order {
            Order::Submit { text } => return Ok(Some(text)),
            Order::Steer { number, text } | Order::Queue { number, text } => {
                let state = State::Applied;
                self.tell(Event::Sent { number, text: text.clone(), how: How::Queued, state }).await;
                return Ok(Some(text));
            }
            Order::Warm => self.warm().await,
            Order::Compact => self.compact().await?,
            Order::Preview { undo } => self.preview(undo).await,
            Order::Undo => self.undo().await?,
            Order::Redo => self.redo().await?,
            Order::Edit { .. }
            | Order::Withdraw { .. }
            | Order::Model { .. }
            | Order::Fast { .. }
            | Order::Route { .. }
            | Order::Probe
            | Order::Decide { .. }
            | Order::Delegate { .. }
            | Order::StopAgent { .. } => self.at_any_time(order).await?,
            // Nothing runs that these could be about.
            Order::Interrupt | Order::End => {}
        }
        Ok(None)
    }

    /// Orders that mean the same whether a turn runs or not.
    pub(crate) async fn at_any_time(&mut self, order: Order) -> Result<(), SessionError> {
        match order {
            Order::Submit { text } => self.wait(0, text).await?,
            Order::Queue { number, text } | Order::Steer { number, text } | Order::Edit { number, text } => {
                self.wait(number, text).await?;
            }
            Order::Withdraw { number } => self.withdraw(number).await?,
            Order::Model { name } => self.chosen = Some(name),
            Order::Fast { on } => {
                self.settings.tier = Some(if on { "priority" } else { "default" }.to_owned());
                self.router.iter_mut().for_each(|router| router.set_tier(&self.settings.tier));
            }
            Order::Route { to } => self.router.iter_mut().for_each(|router| router.order(to)),
            Order::Probe => self.probe().await,
            Order::Compact | Order::Preview { .. } | Order::Undo | Order::Redo => {
                let text = "a turn is running: interrupt it, or wait until it has ended".to_owned();
                self.tell(Event::Notice { text }).await;
            }
            // What this agent asks itself is decided where it waits for it.
            Order::Decide { item, decision } => self.hands.decide(&item, decision),
            Order::Delegate { role, task } => self.delegate_beside(&role, &task).await,
            Order::StopAgent { id } => self.stop_hand(&id).await,
            Order::Warm | Order::Interrupt | Order::End => {}
        }
        Ok(())
    }

    /// The model that a person has chosen is asked from now on. It reads the whole conversation.
    async fn take_chosen(&mut self) {
        let Some(name) = self.chosen.take() else { return };
        self.settings.model = name;
        self.log.forget();
        // What was found out about the other one does not hold for it.
        if std::mem::take(&mut self.asked_window) {
            self.settings.window_tokens = None;
        }
        // Nobody else chooses any more.
        if self.router.take().is_some_and(|router| router.chooses()) {
            let text = "the router is off: you have chosen a model".to_owned();
            self.tell(Event::Notice { text }).await;
        }
    }

    /// Keeps a text for a turn of its own, in the place that it had if it waits already.
    async fn wait(&mut self, number: u64, text: String) -> Result<(), SessionError> {
        let number = if number == 0 { self.fresh_number() } else { number };
        let how = How::Queued;
        if self.waiting.len() >= WAITING_MAX {
            let state = State::Failed { why: format!("{WAITING_MAX} texts wait already") };
            self.tell(Event::Sent { number, text, how, state }).await;
            return Ok(());
        }
        self.log.record(&Record::Waiting { number, text: text.clone() })?;
        match self.waiting.iter_mut().find(|waiting| waiting.number == number) {
            Some(waiting) => waiting.text.clone_from(&text),
            None => self.waiting.push_back(Waiting { number, text: text.clone(), how }),
        }
        self.tell(Event::Sent { number, text, how, state: State::Waiting }).await;
        Ok(())
    }

    async fn withdraw(&mut self, number: u64) -> Result<(), SessionError> {
        let found = [&mut self.waiting, &mut self.held].into_iter().find_map(|list| {
            let index = list.iter().position(|waiting| waiting.number == number)?;
            list.remove(index)
        });
        if let Some(waiting) = found {
            self.log.record(&Record::Settled { number })?;
            self.sent(&waiting, State::Withdrawn).await;
        }
        Ok(())
    }

    async fn take_waiting(&mut self, next: Waiting) -> Result<String, SessionError> {
        self.log.record(&Record::Settled { number: next.number })?;
        self.sent(&next, State::Applied).await;
        Ok(next.text)
    }

    /// A number that nobody has given.
    fn fresh_number(&self) -> u64 {
        let last = self.waiting.iter().chain(&self.held).map(|waiting| waiting.number).max();
        last.unwrap_or(1 << 32) + 1
    }

    /// Tells how far a text is.
    pub(crate) async fn sent(&self, waiting: &Waiting, state: State) {
        let Waiting { number, text, how } = waiting.clone();
        self.tell(Event::Sent { number, text, how, state }).await;
    }

    /// A text joins the conversation, and waits no more.
    pub(crate) async fn say(&mut self, waiting: &Waiting) -> Result<(), SessionError> {
        self.log.push(user(&waiting.text))?;
        self.log.record(&Record::Settled { number: waiting.number })?;
        self.sent(waiting, State::Applied).await;
        Ok(())
    }

    /// A steer that no response can take now goes with the next request.
    pub(crate) async fn hold(&mut self, waiting: Waiting) {
        self.sent(&waiting, State::Accepted).await;
        self.held.push_back(waiting);
    }

    pub(crate) async fn tell(&self, event: Event) {
        // Who does not listen any more will not miss it; the next order, which never comes, ends the session.
        let _ = self.events.send(event).await;
    }
}

/// What comes after a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    Turn,
    /// At once, with these words, by another model.
    Again {
        words: String,
    },
    End,
}

fn is_hand(record: &Record) -> bool {
    matches!(record, Record::Agent { .. })
}

fn fact(record: &Record) -> Option<Fact> {
    match record {
        Record::Fact { fact } => Some(fact.clone()),
        _ => None,
    }
}

impl From<Stop> for Outcome {
    fn from(stop: Stop) -> Outcome {
        match stop {
            Stop::Interrupted | Stop::Ended => Outcome::Interrupted,
            Stop::Failed(error) => Outcome::Failed { error },
        }
    }
}
