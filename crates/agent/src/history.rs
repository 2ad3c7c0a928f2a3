//! The conversation: what the model has been told and has said, in order, each on disk before anything follows from it. A
//! person's words alone are synced while the request is on its way: they are written before, and a disk can take long.
//!
//! Items are only ever added, so what a server has computed for them stays of use. `Log::make_short` is the one exception,
//! and says so in the log.

use crate::client::Known;
use crate::sessions::{Session, SessionError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One line of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Record {
    /// The first.
    Session {
        folder: String,
        model: String,
    },
    /// A person's turn begins.
    Turn {
        text: String,
    },
    Item {
        item: Value,
    },
    /// Files that were changed together, for who wants them back.
    Files {
        changes: Vec<Saved>,
    },
    /// The last of these were not changed after all.
    NotMade {
        files: usize,
    },
    /// The items so far, except for these last ones, are told by these from now on.
    Short {
        items: Vec<Value>,
    },
    /// What a person wants to be said when its turn comes.
    Waiting {
        number: u64,
        text: String,
    },
    /// It was said, or taken back.
    Settled {
        number: u64,
    },
    /// Turns that were taken back, counted from the last, and the items that are left.
    Undone {
        turns: usize,
        items: usize,
    },
    /// The last undo was taken back.
    Redone {
        items: Vec<Value>,
    },
    /// Another agent was given a task; its own session has the rest.
    Agent {
        id: String,
        name: String,
        task: String,
        session: String,
    },
    /// What came of it, as the model is told it.
    Report {
        id: String,
        name: String,
        task: String,
        report: String,
        done: bool,
    },
    /// A fact: what was run and what came of it.
    Fact {
        fact: crate::facts::Fact,
    },
}

/// A file before and after a change; none: it was not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    pub path: String,
    pub before: Option<String>,
    pub after: Option<String>,
    pub mode: u32,
}

/// A conversation and the file that it is written to.
#[derive(Debug)]
pub struct Log {
    session: Session,
    items: Vec<Value>,
    known: Option<Known>,
}

impl Log {
    pub fn new(session: Session) -> Log {
        Log { session, items: Vec::new(), known: None }
    }

    /// A session taken up again: its items are those that its records leave.
    pub fn resumed(session: Session, records: &[Record]) -> Log {
        let mut items = Vec::new();
        for record in records {
            match record {
                Record::Item { item } => items.push(item.clone()),
                Record::Short { items: short } => items.clone_from(short),
                Record::Undone { items: left, .. } => items.truncate(*left),
                Record::Redone { items: again } => items.extend(again.iter().cloned()),
                Record::Session { .. }
                | Record::Turn { .. }
                | Record::Files { .. }
                | Record::NotMade { .. }
                | Record::Waiting { .. }
                | Record::Settled { .. }
                | Record::Agent { .. }
                | Record::Report { .. }
                | Record::Fact { .. } => {}
            }
        }
        Log { session, items, known: None }
    }

    pub fn id(&self) -> &str {
        &self.session.id
    }

    pub fn items(&self) -> &[Value] {
        &self.items
    }

    pub fn record(&mut self, record: &Record) -> Result<(), SessionError> {
        // Every field can be written as JSON.
        self.session.append(&serde_json::to_value(record).unwrap_or_default())
    }

    pub fn push(&mut self, item: Value) -> Result<(), SessionError> {
        self.push_all(vec![item])
    }

    /// A person's turn begins with their words. The request waits for the writing, not for the disk: `sync` follows it.
    pub fn begin_turn(&mut self, text: &str, item: Value) -> Result<(), SessionError> {
        let turn = json!({"kind": "turn", "text": text});
        self.session.write(&[turn, json!({"kind": "item", "item": item})])?;
        self.items.push(item);
        Ok(())
    }

    pub fn sync(&mut self) -> Result<(), SessionError> {
        self.session.sync()
    }

    /// Several with one write.
    pub fn push_all(&mut self, items: Vec<Value>) -> Result<(), SessionError> {
        let records = items.iter().map(|item| json!({"kind": "item", "item": item}));
        self.session.append_all(&records.collect::<Vec<_>>())?;
        self.items.extend(items);
        Ok(())
    }

    /// Other items stand for all of these from now on.
    pub fn make_short(&mut self, items: Vec<Value>) -> Result<(), SessionError> {
        self.record(&Record::Short { items: items.clone() })?;
        (self.items, self.known) = (items, None);
        Ok(())
    }

    /// Only the first ones are left.
    pub fn truncate(&mut self, turns: usize, items: usize) -> Result<(), SessionError> {
        self.record(&Record::Undone { turns, items })?;
        self.items.truncate(items);
        self.known = self.known.take().filter(|known| known.items <= items);
        Ok(())
    }

    /// What was cut off comes again.
    pub fn put_back(&mut self, items: Vec<Value>) -> Result<(), SessionError> {
        self.record(&Record::Redone { items: items.clone() })?;
        self.items.extend(items);
        Ok(())
    }

    /// The server has the conversation as far as it goes now, under this name.
    pub fn is_known_as(&mut self, response: &str) {
        self.known = Some(Known { response: response.to_owned(), items: self.items.len() });
    }

    pub fn forget(&mut self) {
        self.known = None;
    }

    pub fn known(&self) -> Option<Known> {
        self.known.clone()
    }
}

/// The records of a session, as they were read. What is of no known kind was written by a later version, and is left out.
pub fn records(values: &[Value]) -> Vec<Record> {
    values.iter().filter_map(|value| serde_json::from_value(value.clone()).ok()).collect()
}

/// What still waits to be said.
pub fn waiting(records: &[Record]) -> Vec<(u64, String)> {
    let mut waiting: Vec<(u64, String)> = Vec::new();
    for record in records {
        match record {
            Record::Waiting { number, text } => {
                waiting.retain(|(other, _)| other != number);
                waiting.push((*number, text.clone()));
            }
            Record::Settled { number } => waiting.retain(|(other, _)| other != number),
            Record::Session { .. }
            | Record::Turn { .. }
            | Record::Item { .. }
            | Record::Files { .. }
            | Record::NotMade { .. }
            | Record::Short { .. }
            | Record::Undone { .. }
            | Record::Redone { .. }
            | Record::Agent { .. }
            | Record::Report { .. }
            | Record::Fact { .. } => {}
        }
    }
    waiting
}

/// Agents that were at work when the session ended, each with its name and task: nobody will report.
pub fn unreported(records: &[Record]) -> Vec<(String, String, String)> {
    let reported =
        |begun: &str| records.iter().any(|record| matches!(record, Record::Report { id, .. } if id == begun));
    let begun = records.iter().filter_map(|record| match record {
        Record::Agent { id, name, task, .. } => Some((id.clone(), name.clone(), task.clone())),
        _ => None,
    });
    begun.filter(|(id, ..)| !reported(id)).collect()
}

/// A message of the person.
pub fn user(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

/// What came of a call.
pub fn output(call_id: &str, text: &str) -> Value {
    json!({"type": "function_call_output", "call_id": call_id, "output": text})
}

/// The text of a message or of thoughts.
pub fn text_of(item: &Value) -> String {
    let parts = ["content", "summary"].iter().filter_map(|key| item[*key].as_array()).flatten();
    parts.filter_map(|part| part["text"].as_str().or_else(|| part["refusal"].as_str())).collect()
}
