//! One agent at work for another: begun as its role says, watched to its end, its questions passed on.

use super::{Board, Ended, Journal, News, Role, Staff};
use crate::agent::{Agent, Setup};
use crate::approve::Approvals;
use crate::client::{Client, ClientError};
use crate::limits::HAND_BEGIN_SECONDS_MAX;
use crate::provider::Provider;
use crate::talk::{Connection, Event, Figures, Item, Order, Outcome, Progress, Question, What};
use crate::turn::blocking;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Events that wait to be looked at.
const EVENTS_MAX: usize = 64;

/// Models that are named to who asked for another.
const NAMED_MAX: usize = 20;

/// A task and all that it takes.
pub(super) struct Job {
    pub role: Role,
    pub staff: Arc<dyn Staff>,
    pub given: Given,
    pub exit: Exit,
    pub begun: oneshot::Sender<Result<(), String>>,
    pub orders: mpsc::Sender<Order>,  // to the agent
    pub taken: mpsc::Receiver<Order>, // by it; the task is the first
}

/// What it has of the session where its role says nothing.
pub(super) struct Given {
    pub model: String,
    pub tier: Option<String>,
    pub approvals: Approvals,
    pub journal: Journal,
}

/// Where an agent's end is told. It is, whatever ends it: whoever waits would wait for ever.
pub(super) struct Exit {
    pub id: String,
    pub name: String,
    pub task: String,
    pub events: mpsc::Sender<Event>,
    pub news: mpsc::Sender<News>,
    pub board: Board,
    pub left: bool, // it was told
}

/// What an agent has come to.
struct Came {
    outcome: Outcome,
    message: String, // the last that it wrote
    figures: Figures,
}

pub(super) async fn run(job: Job) {
    let Job { role, staff, given, exit, begun, orders, taken } = job;
    let limit = Duration::from_secs(HAND_BEGIN_SECONDS_MAX);
    let opened = tokio::time::timeout(limit, open(&role, staff, given)).await;
    let late = || Err(format!("its server did not answer within {} s", limit.as_secs()));
    let setup = match opened.unwrap_or_else(|_| late()) {
        Ok(setup) => setup,
        Err(why) => {
            exit.tell(&why, Figures::default(), Progress::Failed).await;
            // Whoever asked hears it here: the model need not hear it again.
            exit.leave(None, Figures::default(), false);
            let _ = begun.send(Err(why));
            return;
        }
    };
    exit.begin(&setup).await;
    let _ = begun.send(Ok(()));
    let (told, mut events) = mpsc::channel(EVENTS_MAX);
    let agent = Agent::new(setup, taken, told).boxed();
    let watched = async {
        let came = watch(&mut events, &exit).await;
        // One task: nothing comes after it.
        let _ = orders.send(Order::End).await;
        while events.recv().await.is_some() {}
        came
    };
    let (ran, came) = tokio::join!(agent, watched);
    let came = match ran {
        Ok(()) => came,
        Err(error) => Came { outcome: failed(error.to_string()), ..came },
    };
    let (report, progress) = report(&came);
    exit.tell(&report, came.figures.clone(), progress).await;
    exit.leave(Some(report), came.figures, progress == Progress::Done);
}

/// A session for the role. A model that it names is the one that answers, or nobody does.
async fn open(role: &Role, staff: Arc<dyn Staff>, given: Given) -> Result<Setup, String> {
    let (wanted, asked) = (role.clone(), staff.clone());
    if let (provider, Some(pin)) = blocking(move || asked.server(&wanted)).await? {
        honour(&pin, &provider).await?;
    }
    let wanted = role.clone();
    let mut setup = blocking(move || staff.setup(&wanted)).await?;
    if role.model.is_none() {
        setup.settings.model = given.model;
    }
    setup.settings.tier = given.tier;
    let (own, session) = (&setup.approvals, &given.approvals);
    if (own.policy, own.mode) == (session.policy, session.mode) {
        // A yes was given for the session's rights; where there are fewer, it may not have been meant.
        setup.approvals.rules = given.approvals.rules;
    }
    setup.journal = Some(given.journal);
    // It has no hands of its own.
    setup.crew = super::Crew::default();
    Ok(setup)
}

/// Whether a server has a model. One that does not list any says so by its answer, which names who wrote it.
async fn honour(pin: &str, provider: &Provider) -> Result<(), String> {
    let body = match Client::new(provider.clone(), "").get("models").await {
        Ok(body) => body,
        Err(ClientError::Refused(refusal)) if matches!(refusal.status, Some(404 | 405)) => return Ok(()),
        Err(error) => return Err(format!("it is not known whether {pin} is served: {error}")),
    };
    let mut names: Vec<String> = crate::server::models(&body).into_iter().map(|model| model.name).collect();
    if names.iter().any(|name| crate::turn::is_same_model(pin, name)) {
        return Ok(());
    }
    names.truncate(NAMED_MAX);
    Err(format!("{pin} is not served at {}; there is: {}", provider.base_url, names.join(", ")))
}

/// Until its turn ends: what it does is shown, what it asks is asked.
async fn watch(events: &mut mpsc::Receiver<Event>, exit: &Exit) -> Came {
    let (mut message, mut so_far) = (String::new(), Figures::default());
    while let Some(event) = events.recv().await {
        if let Some(step) = step(&event) {
            exit.send(Event::ItemGrew { id: exit.id.clone(), text: format!("{step}\n") }).await;
        }
        match event {
            Event::ItemEnded(Item { what: What::Message { text }, .. }) => message = text,
            Event::Asked(question) => exit.ask(question).await,
            Event::Counted(figures) => {
                exit.board.counted(&exit.id, &figures);
                so_far = *figures;
            }
            Event::Notice { text } => {
                let text = format!("agent {}: {text}", exit.name);
                exit.send(Event::Notice { text }).await;
            }
            Event::TurnEnded { outcome, figures } => return Came { outcome, message, figures: *figures },
            _ => {}
        }
    }
    Came { outcome: failed("it ended before its task".to_owned()), message, figures: so_far }
}

fn failed(why: String) -> Outcome {
    Outcome::Failed { error: crate::talk::Failure::Turn(why) }
}

/// A line for who watches.
fn step(event: &Event) -> Option<String> {
    match event {
        Event::ItemBegan(Item { what: What::Command { command, .. }, .. }) => Some(format!("$ {command}")),
        Event::Connection(Connection::Lost { why }) => Some(why.clone()),
        Event::ItemEnded(Item { what, .. }) => match what {
            What::Look { tool, about, .. } => Some(format!("{tool} {about}")),
            What::Command { code: Some(code), .. } if *code != 0 => Some(format!("exit code {code}")),
            What::Files { changes, progress } => {
                let paths: Vec<&str> = changes.iter().map(|change| change.path.as_str()).collect();
                let verb = if *progress == Progress::Done { "changed" } else { "not changed:" };
                Some(format!("{verb} {}", paths.join(", ")))
            }
            What::Trouble { message } => Some(message.clone()),
            _ => None,
        },
        _ => None,
    }
}

fn report(came: &Came) -> (String, Progress) {
    let last = |text: String| match came.message.trim() {
        "" => text,
        message => format!("{text} The last that it wrote:\n{message}"),
    };
    match &came.outcome {
        Outcome::Done if came.message.trim().is_empty() => {
            ("It ended without a word.".to_owned(), Progress::Done)
        }
        Outcome::Done => (came.message.trim().to_owned(), Progress::Done),
        Outcome::Interrupted => (last("It was stopped before it was done.".to_owned()), Progress::Failed),
        Outcome::Failed { error } => (last(format!("It failed: {error}.")), Progress::Failed),
    }
}

impl Exit {
    async fn send(&self, event: Event) {
        // Who does not listen any more will not miss it.
        let _ = self.events.send(event).await;
    }

    fn item(&self, report: &str, figures: Figures, progress: Progress) -> Item {
        let (name, task, report) = (self.name.clone(), self.task.clone(), report.to_owned());
        let what = What::Agent { name, task, report, figures: figures.into(), progress };
        Item { id: self.id.clone(), what }
    }

    async fn begin(&self, setup: &Setup) {
        let session = setup.session.id.clone();
        let (id, name, task) = (self.id.clone(), self.name.clone(), self.task.clone());
        let _ = self.news.try_send(News::Begun { id, name, task, session });
        self.send(Event::ItemBegan(self.item("", Figures::default(), Progress::Running))).await;
    }

    /// Its questions are the person's to answer, by a name that leads back to it.
    async fn ask(&self, question: Question) {
        let (item, who) = (format!("{}/{}", self.id, question.item), Some(self.name.clone()));
        self.send(Event::Asked(Question { item, who, ..question })).await;
    }

    async fn tell(&self, report: &str, figures: Figures, progress: Progress) {
        self.board.end(&self.id, &figures, progress);
        self.send(Event::ItemEnded(self.item(report, figures, progress))).await;
    }

    /// The last word to whoever gave the task; without a report there is nothing that the model should read.
    fn leave(mut self, report: Option<String>, figures: Figures, done: bool) {
        self.left = true;
        self.send_ended(report, figures, done);
    }

    fn send_ended(&self, report: Option<String>, figures: Figures, done: bool) {
        let (id, name, task) = (self.id.clone(), self.name.clone(), self.task.clone());
        let ended = Ended { id, name, task, report, done, figures: figures.into() };
        // There is room for all that the agents of a session can say.
        let _ = self.news.try_send(News::Ended(ended));
    }
}

impl Drop for Exit {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        let why = "It was ended before it was done.";
        self.board.end(&self.id, &Figures::default(), Progress::Failed);
        let item = self.item(why, Figures::default(), Progress::Failed);
        let _ = self.events.try_send(Event::ItemEnded(item));
        self.send_ended(Some(why.to_owned()), Figures::default(), false);
    }
}
