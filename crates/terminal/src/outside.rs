//! What the terminal cannot do itself, and asks whoever runs it for.

use flint_agent::talk::Order;
use tokio::sync::oneshot;

/// A wish that is no `Order` to the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Without a name: which are there?
    Profile {
        name: Option<String>,
    },
    /// Without a session: which are there?
    Resume {
        session: Option<String>,
    },
    Fork,
    Agents,
    Permissions,
    Init,
    /// Without a file: one with a name that says what it is.
    Export {
        file: Option<String>,
    },
    Clear,
}

/// An action that waits for its reply. One that is dropped unanswered is told to the person.
#[derive(Debug)]
pub struct Request {
    pub action: Action,
    pub reply: oneshot::Sender<Reply>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A line in the transcript.
    Notice(String),
    /// Something longer, to be read and closed.
    Page { title: String, text: String },
    /// A list from which the person takes one; that one's action is asked for next.
    Choose { title: String, choices: Vec<Choice> },
    /// `run` returns `Ended::For` this action, and is called again with what comes of it.
    Leave(Action),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    pub label: String,
    pub about: String,
    pub action: Action,
}

/// Why `run` has returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The person wants to end. `Order::End` has been sent.
    Quit,
    /// The process was told to end, and `Order::End` has been sent.
    Signal,
    /// Something has to be started anew: see `Reply::Leave`. The agent has not been told to end.
    For(Action),
}

/// What comes of a key.
#[derive(Debug, Clone, PartialEq)]
pub enum Wish {
    Order(Order),
    Action(Action),
    Quit,
    Suspend,
}
