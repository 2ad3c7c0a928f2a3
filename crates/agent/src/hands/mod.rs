//! Other agents that work for this one, beside its turn: who there is, who is at work, and what came of it.
//!
//! Each is an agent like any other, with a session, a connection and a turn of its own (`lane`). It has no hands itself. What
//! it does is shown as it happens; what it asks goes to the person; its report goes to the model.

mod board;
mod find;
mod lane;
mod role;

pub use board::{Board, Seat};
pub use find::{Found, find};
pub use role::Role;

use crate::agent::Setup;
use crate::approve::Approvals;
use crate::history::Saved;
use crate::limits::HANDS_MAX;
use crate::provider::Provider;
use crate::settings::Settings;
use crate::talk::{Decision, Event, Figures, Order};
use lane::{Exit, Given, Job};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};

/// Whoever can make a session for a role: only they know of keys, folders and servers. It may block.
pub trait Staff: fmt::Debug + Send + Sync {
    /// Who would answer, and what the model that the role names is called there.
    fn server(&self, role: &Role) -> Result<(Provider, Option<String>), String>;

    fn setup(&self, role: &Role) -> Result<Setup, String>;
}

/// The agents that a session can give tasks to.
#[derive(Debug, Clone, Default)]
pub struct Crew {
    pub roles: Vec<Role>,
    pub staff: Option<Arc<dyn Staff>>,
    pub stays: bool, // somebody is there after the turn, for whom work can go on
    pub board: Board,
}

/// Files that agents have changed, for the one that gave them their tasks.
#[derive(Debug, Clone, Default)]
pub struct Journal(Arc<Mutex<Vec<Saved>>>);

impl Journal {
    pub(crate) fn add(&self, changes: &[Saved]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(changes);
    }

    pub(crate) fn take(&self) -> Vec<Saved> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What is heard of an agent besides what is shown.
#[derive(Debug)]
pub(crate) enum News {
    Begun { id: String, name: String, task: String, session: String },
    Ended(Ended),
}

#[derive(Debug)]
pub(crate) struct Ended {
    pub id: String,
    pub name: String,
    pub task: String,
    pub report: Option<String>, // for the model
    pub done: bool,
    pub figures: Box<Figures>,
}

/// News that wait: each agent has two at most, and counts as at work until the last is heard.
const NEWS_MAX: usize = 2 * HANDS_MAX;

/// Orders that wait for an agent.
const ORDERS_MAX: usize = 16;

/// The agents at work for a session.
#[derive(Debug)]
pub(crate) struct Hands {
    crew: Crew,
    lanes: Vec<Lane>,
    tasks: JoinSet<()>,
    journal: Journal,
    sender: mpsc::Sender<News>,
    news: mpsc::Receiver<News>,
    count: usize, // that there were
}

#[derive(Debug)]
struct Lane {
    id: String,
    background: bool,
    orders: mpsc::Sender<Order>,
    task: AbortHandle,
}

impl Hands {
    /// `count` is how many the session has had before.
    pub fn new(crew: Crew, count: usize) -> Hands {
        let (sender, news) = mpsc::channel(NEWS_MAX);
        let (lanes, tasks, journal) = (Vec::new(), JoinSet::new(), Journal::default());
        Hands { crew, lanes, tasks, journal, sender, news, count }
    }

    pub fn crew(&self) -> &Crew {
        &self.crew
    }

    /// Whether the turn has to wait for one.
    pub fn in_foreground(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.background)
    }

    pub fn at_work(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// Gives a task to a new agent, and returns its name here and whether it could begin. Or says why there is none.
    pub fn start(
        &mut self,
        role: &str,
        task: &str,
        background: bool,
        session: (&Settings, &Approvals),
        events: mpsc::Sender<Event>,
    ) -> Result<(String, oneshot::Receiver<Result<(), String>>), String> {
        let (role, staff) = self.find(role)?;
        if self.lanes.len() >= HANDS_MAX {
            return Err(format!("{HANDS_MAX} agents are at work already: wait for a report, or stop one"));
        }
        // Those that have ended are not kept.
        while self.tasks.try_join_next().is_some() {}
        self.count += 1;
        let id = format!("agent_{}", self.count);
        self.crew.board.begin(&id, &role.name, task, background);
        let (orders, taken) = mpsc::channel(ORDERS_MAX);
        // The first of its orders: whatever comes later is about it. There is room.
        let _ = orders.try_send(Order::Submit { text: task.to_owned() });
        let (begun, begins) = oneshot::channel();
        let (settings, approvals) = session;
        let given = Given {
            model: settings.model.clone(),
            tier: settings.tier.clone(),
            approvals: approvals.clone(),
            journal: self.journal.clone(),
        };
        let exit = Exit {
            id: id.clone(),
            name: role.name.clone(),
            task: task.to_owned(),
            events,
            news: self.sender.clone(),
            board: self.crew.board.clone(),
            left: false,
        };
        let job = Job { role, staff, given, exit, begun, orders: orders.clone(), taken };
        let task = self.tasks.spawn(lane::run(job));
        self.lanes.push(Lane { id: id.clone(), background, orders, task });
        Ok((id, begins))
    }

    fn find(&self, name: &str) -> Result<(Role, Arc<dyn Staff>), String> {
        let role = self.crew.roles.iter().find(|role| role.name == name);
        match (role, &self.crew.staff) {
            (Some(role), Some(staff)) => Ok((role.clone(), staff.clone())),
            _ => {
                let names: Vec<&str> = self.crew.roles.iter().map(|role| role.name.as_str()).collect();
                let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                Err(format!("there is no agent {name:?}; there is: {there}"))
            }
        }
    }

    /// The next that is heard of any of them.
    pub async fn next(&mut self) -> News {
        match self.news.recv().await {
            Some(news) => news,
            // This end holds a sender too.
            None => std::future::pending().await,
        }
    }

    pub fn try_next(&mut self) -> Option<News> {
        self.news.try_recv().ok()
    }

    /// It has said its last.
    pub fn forget(&mut self, id: &str) {
        self.lanes.retain(|lane| lane.id != id);
    }

    /// What they have changed since this was asked last.
    pub fn changes(&self) -> Vec<Saved> {
        self.journal.take()
    }

    /// A decision about what one of them asked.
    pub fn decide(&self, item: &str, decision: Decision) {
        let Some((id, item)) = item.split_once('/') else { return };
        if let Some(lane) = self.lanes.iter().find(|lane| lane.id == id) {
            // One that does not take its orders is at its end.
            let _ = lane.orders.try_send(Order::Decide { item: item.to_owned(), decision });
        }
    }

    /// Stops one, by its name here or its number, and keeps what it has done. False: it is not at work.
    pub fn stop(&self, id: &str) -> bool {
        let is_it = |lane: &&Lane| lane.id == id || lane.id.strip_prefix("agent_") == Some(id);
        let lane = self.lanes.iter().find(is_it);
        lane.is_some_and(|lane| lane.orders.try_send(Order::Interrupt).is_ok())
    }

    /// Stops those that the turn would wait for, or all.
    pub fn stop_all(&self, background_too: bool) {
        for lane in self.lanes.iter().filter(|lane| background_too || !lane.background) {
            let _ = lane.orders.try_send(Order::Interrupt);
        }
    }

    /// Those that did not stop end now.
    pub fn abort_all(&self, background_too: bool) {
        for lane in self.lanes.iter().filter(|lane| background_too || !lane.background) {
            lane.task.abort();
        }
    }
}
