//! What a model calls for, as it says it, and what that means.

use crate::talk::{Step, StepState};
use serde::Deserialize;
use serde_json::Value;

/// A call as it came.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub id: String,
    pub call_id: String,
    pub name: String,
    pub arguments: String,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Task {
    Shell(Shell),
    Edit {
        path: String,
        old: String,
        new: String,
    },
    Patch {
        patch: String,
    },
    Read {
        path: String,
        first_line: Option<usize>,
        lines: Option<usize>,
    },
    Search {
        pattern: String,
        path: Option<String>,
    },
    List {
        path: Option<String>,
    },
    Plan {
        steps: Vec<Step>,
    },
    Delegate(Delegated),
    /// It cannot be done, and the model is told why.
    Nonsense {
        why: String,
    },
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Shell {
    pub command: String,
    pub timeout_s: Option<u64>,
    #[serde(default)]
    pub unconfined: bool,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Delegated {
    pub role: String,
    pub task: String,
    #[serde(default)]
    pub background: bool,
}

#[derive(Deserialize)]
struct Edit {
    path: String,
    old: String,
    new: String,
}

#[derive(Deserialize)]
struct Patch {
    patch: String,
}

#[derive(Deserialize)]
struct Read {
    path: String,
    first_line: Option<usize>,
    lines: Option<usize>,
}

#[derive(Deserialize)]
struct Search {
    pattern: String,
    path: Option<String>,
}

#[derive(Deserialize)]
struct List {
    path: Option<String>,
}

#[derive(Deserialize)]
struct Plan {
    steps: Vec<PlanStep>,
}

#[derive(Deserialize)]
struct PlanStep {
    text: String,
    state: String,
}

impl Call {
    /// If the item is a call.
    pub fn read(item: &Value) -> Option<Call> {
        let arguments = match item["type"].as_str()? {
            "function_call" => "arguments",
            "custom_tool_call" => "input",
            _ => return None,
        };
        let text = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
        Some(Call {
            id: text("id"),
            call_id: text("call_id"),
            name: text("name"),
            arguments: text(arguments),
        })
    }

    pub fn task(&self) -> Task {
        let read = match self.name.as_str() {
            "shell" => self.parse(Task::Shell),
            "edit" => self.parse(|Edit { path, old, new }| Task::Edit { path, old, new }),
            "patch" | "apply_patch" => self.patch(),
            "read" => self.parse(|Read { path, first_line, lines }| Task::Read { path, first_line, lines }),
            "search" => self.parse(|Search { pattern, path }| Task::Search { pattern, path }),
            "list" => self.parse(|List { path }| Task::List { path }),
            "plan" => {
                self.parse(|Plan { steps }| Task::Plan { steps: steps.into_iter().map(step).collect() })
            }
            "agent" => self.parse(Task::Delegate),
            name => Err(format!("there is no tool {name:?}")),
        };
        read.unwrap_or_else(|why| Task::Nonsense { why })
    }

    fn parse<A: for<'a> Deserialize<'a>>(&self, task: impl FnOnce(A) -> Task) -> Result<Task, String> {
        let read = serde_json::from_str(&self.arguments);
        read.map(task).map_err(|error| format!("the arguments of {} cannot be read: {error}", self.name))
    }

    /// Some models send the patch itself.
    fn patch(&self) -> Result<Task, String> {
        match self.arguments.trim_start().starts_with("*** Begin Patch") {
            true => Ok(Task::Patch { patch: self.arguments.clone() }),
            false => self.parse(|Patch { patch }| Task::Patch { patch }),
        }
    }
}

fn step(PlanStep { text, state }: PlanStep) -> Step {
    let state = match state.as_str() {
        "done" => StepState::Done,
        "running" => StepState::Running,
        _ => StepState::Open,
    };
    Step { text, state }
}
