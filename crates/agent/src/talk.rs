//! What passes between the agent and whoever shows it: a person's orders in, what happens out.
//!
//! The terminal, `flint exec` and the tests are equal: each sends `Order`s and folds `Event`s. An item is one thing that
//! happened in a turn. It begins, may grow, and ends; its last form says all that the earlier ones did.

use crate::route::To;
use crate::rules::Rule;
use std::time::Duration;

/// What a person wants.
#[derive(Debug, Clone, PartialEq)]
pub enum Order {
    /// Begins a turn; while one runs, the next one.
    Submit {
        text: String,
    },
    /// Goes into the running turn now; without one it begins a turn. Whoever sends it gives it a number of its own.
    Steer {
        number: u64,
        text: String,
    },
    /// Begins the next turn.
    Queue {
        number: u64,
        text: String,
    },
    /// Changes what still waits.
    Edit {
        number: u64,
        text: String,
    },
    /// Takes back what still waits.
    Withdraw {
        number: u64,
    },
    /// Ends the running turn and keeps what is done.
    Interrupt,
    /// Answers `Event::Asked`.
    Decide {
        item: String,
        decision: Decision,
    },
    /// A person began to type: the prompt is made warm.
    Warm,
    /// Makes the conversation short.
    Compact,
    /// What an undo would do, or a redo, is told before it is done.
    Preview {
        undo: bool,
    },
    /// Takes the last turn back, files and conversation. The second time takes the one before.
    Undo,
    /// Takes an undo back.
    Redo,
    /// From the next turn on.
    Model {
        name: String,
    },
    /// The next turn is for this model of the router's two; none: for the one that it would be for anyway.
    Route {
        to: Option<To>,
    },
    /// Turns are served sooner, at a higher price.
    Fast {
        on: bool,
    },
    /// Asks the server what it serves; `Event::Probed` answers.
    Probe,
    /// Another agent does this beside whatever goes on.
    Delegate {
        role: String,
        task: String,
    },
    /// Ends the work of another agent and keeps what is done.
    StopAgent {
        id: String,
    },
    End,
}

/// What a person says to something that needs a yes.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    Yes,
    /// And the same for all that the rule is about.
    Always(Rule),
    No {
        why: Option<String>,
    },
}

/// What happens.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Began {
        session: String,
    },
    Connection(Connection),
    TurnBegan,
    ItemBegan(Item),
    /// More of a message, of thoughts or of a command's output. What a model or a command wrote: not safe for a terminal.
    ItemGrew {
        id: String,
        text: String,
    },
    ItemEnded(Item),
    /// What comes waits for a decision.
    Asked(Question),
    /// What was steered or queued, and how far it is.
    Sent {
        number: u64,
        text: String,
        how: How,
        state: State,
    },
    TurnEnded {
        outcome: Outcome,
        figures: Box<Figures>,
    },
    /// What taking a turn back would change, or making it again.
    Previewed {
        undo: bool,
        turn: String,
        changes: Vec<FileChange>,
    },
    /// What the agent undid or made again: files, and the first words of the turn.
    Rewound {
        undone: bool,
        turn: String,
        files: Vec<String>,
    },
    Compacted {
        tokens_before: u64,
        tokens_after: u64,
    },
    Probed(Box<Probe>),
    /// Which profile's model a turn is for, and why.
    Routed {
        profile: String, // empty: the session's own settings
        model: String,
        why: String,
        how: Routed,
    },
    /// What the running turn has taken so far.
    Counted(Box<Figures>),
    /// Something a person should know: a setting that is ignored, a cache that broke.
    Notice {
        text: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routed {
    /// It would be better there; nothing was changed.
    Suggested,
    Chosen,
    /// The check failed: when this turn has ended, another one follows there.
    Escalated,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connection {
    Connecting,
    /// One warm WebSocket.
    Open,
    /// A request for each turn, and why.
    Requests {
        why: String,
    },
    Lost {
        why: String,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    pub id: String,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// What the person said.
    Said {
        text: String,
    },
    Message {
        text: String,
    },
    Reasoning {
        text: String,
    },
    Command {
        command: String,
        output: String,
        code: Option<i32>,
        took: Duration,
        progress: Progress,
    },
    /// Files that were changed together.
    Files {
        changes: Vec<FileChange>,
        progress: Progress,
    },
    /// A tool that only looks: read, search, list.
    Look {
        tool: String,
        about: String,
        output: String,
        progress: Progress,
    },
    /// Work of another agent.
    Agent {
        name: String,
        task: String,
        report: String,
        figures: Box<Figures>,
        progress: Progress,
    },
    Plan {
        steps: Vec<Step>,
    },
    Trouble {
        message: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    Running,
    Done,
    Failed,
    /// A person or the policy said no.
    Declined,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    pub path: String,
    pub kind: FileKind,
    pub diff: String, // unified, without a head
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileKind {
    Added,
    Deleted,
    Updated,
    Moved { from: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub text: String,
    pub state: StepState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepState {
    Open,
    Running,
    Done,
}

/// A command or an edit that needs a yes.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    pub item: String,
    pub who: Option<String>, // another agent; none is the one that is talked to
    pub what: Asked,
    pub why: String,
    pub rules: Vec<Rule>, // what `Always` could be about, the narrowest first
}

#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    Command { argv: Vec<String>, shown: String, unconfined: bool },
    Files { changes: Vec<FileChange> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Steered,
    Queued,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It is written down, and waits for its turn.
    Waiting,
    /// On the wire.
    Sent,
    /// The server has taken it.
    Accepted,
    /// The model reads it.
    Applied,
    Withdrawn,
    Failed {
        why: String,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Done,
    Interrupted,
    Failed { error: Failure },
}

/// Why a turn came to nothing: what a caller can decide by.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Failure {
    /// The server, the network or the model.
    #[error("{0}")]
    Turn(String),
    /// There is no such model, or another one answered.
    #[error("{0}")]
    Model(String),
    #[error("{what} needs a yes, and there is nobody to ask: {how}")]
    NeedsApproval { what: String, how: String },
    #[error("the check failed: {0}")]
    Verify(String),
}

/// What a turn took. Nothing is here that was not measured or said by the server.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    pub served: Option<Served>,
    pub requests: u64,
    pub tokens_in: u64,
    pub tokens_cached: u64,
    pub tokens_out: u64,
    pub tokens_reasoning: u64,
    pub took: Duration,
    pub first_token: Option<Duration>, // from Enter
    pub tokens_a_second: Option<f64>, // of the last response, as its server measured it, else as seen from here
    pub queued: Option<Duration>,
    pub context: Context,
    pub agents: Vec<Share>, // that it had work for it, besides
    pub limits: Vec<Limit>, // of whoever asks, as the server told them last
}

/// What another agent took.
#[derive(Debug, Clone, PartialEq)]
pub struct Share {
    pub id: String,
    pub name: String,
    pub figures: Figures,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Context {
    pub tokens: u64,
    pub window: Option<u64>,
}

/// Who answered, as they say themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Served {
    pub asked: String,
    pub model: String,
    pub digest: Option<String>,
    pub quantisation: Option<String>,
    pub device: Option<String>,
    pub engine: Option<String>,
    pub tier: Option<String>, // that was granted
    pub ignored: Vec<String>, // fields of the request that had no effect
}

/// What a look at the server found.
#[derive(Debug, Clone, PartialEq)]
pub struct Probe {
    pub provider: String,
    pub address: String,
    pub connection: Connection,
    pub served: Option<Served>, // by the last response
    pub models: Vec<ModelState>,
    pub limits: Vec<Limit>,
    pub sandbox: String,
    pub approvals: String,
    pub ignored: Vec<String>, // settings that mean nothing here, and why
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelState {
    pub name: String,
    pub window: Option<u64>,
    pub refused: Option<String>, // why it cannot be used
}

#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    pub name: String,
    pub used_percent: f64,
    pub resets: Option<Duration>,
}
