//! The tools of a request under the names that the model sees.
//!
//! A model knows one flat list of functions. Namespaces go into the name only where two tools would share it,
//! and a custom tool is a function whose one argument is its input.

use crate::grammar::edits;
use flint_text::chat;
use flint_wire::output::Callee;
use flint_wire::{Kind, Tool};
use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

#[derive(Debug, Clone)]
pub struct Toolbook {
    entries: Arc<[Entry]>,
    declared: Arc<[chat::Tool]>, // one for each entry
    print: u64,                  // differs where what is declared does
}

#[derive(Debug)]
struct Entry {
    shown: String, // the model's name for it
    tool: Arc<Tool>,
}

impl PartialEq for Toolbook {
    fn eq(&self, other: &Toolbook) -> bool {
        self.print == other.print
            && (Arc::ptr_eq(&self.declared, &other.declared) || self.declared == other.declared)
    }
}

impl Default for Toolbook {
    fn default() -> Toolbook {
        Toolbook::new(&[])
    }
}

impl Toolbook {
    pub fn new(tools: &[Arc<Tool>]) -> Toolbook {
        let twice = |name: &str| tools.iter().filter(|tool| tool.name == name).count() > 1;
        let entry = |tool: &Arc<Tool>| Entry {
            shown: match &tool.namespace {
                Some(namespace) if twice(&tool.name) => format!("{namespace}__{}", tool.name),
                _ => tool.name.clone(),
            },
            tool: tool.clone(),
        };
        let entries: Arc<[Entry]> = tools.iter().map(entry).collect();
        let declared: Arc<[chat::Tool]> = entries.iter().map(declaration).collect();
        let mut hasher = DefaultHasher::new();
        for chat::Tool { name, description, parameters } in &*declared {
            (name, description, parameters).hash(&mut hasher);
        }
        Toolbook { entries, declared, print: hasher.finish() }
    }

    /// As they were declared.
    pub fn tools(&self) -> Vec<Arc<Tool>> {
        self.entries.iter().map(|entry| entry.tool.clone()).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The list as templates take it.
    pub fn declared(&self) -> Arc<[chat::Tool]> {
        self.declared.clone()
    }

    /// The list with what the model is not told, and held to.
    pub fn enforced(&self) -> Vec<chat::Tool> {
        let entry = |entry: &Entry| chat::Tool { parameters: parameters(&entry.tool), ..declaration(entry) };
        self.entries.iter().map(entry).collect()
    }

    /// What the model is not told, for each tool.
    pub fn untold(&self) -> Vec<Option<Value>> {
        let untold = |entry: &Entry| match &entry.tool.kind {
            Kind::Function { parameters, .. } => parameters.get(edits::KEY).cloned(),
            Kind::Custom { .. } => None,
        };
        self.entries.iter().map(untold).collect()
    }

    /// A number that differs where the list does.
    pub fn print(&self) -> u64 {
        self.print
    }

    /// The model's name for a tool that a client names.
    pub fn shown(&self, namespace: Option<&str>, name: &str) -> String {
        let exact = |entry: &&Entry| entry.tool.name == name && entry.tool.namespace.as_deref() == namespace;
        let alike = |entry: &&Entry| entry.tool.name == name;
        let found = self.entries.iter().find(exact).or_else(|| self.entries.iter().find(alike));
        found.map_or_else(|| name.to_owned(), |entry| entry.shown.clone())
    }

    /// Whom a call by the model's name is for.
    pub fn callee(&self, shown: &str, call_id: String) -> Callee {
        match self.entries.iter().find(|entry| entry.shown == shown) {
            Some(Entry { tool, .. }) => Callee {
                call_id,
                namespace: tool.namespace.clone(),
                name: tool.name.clone(),
                custom: matches!(tool.kind, Kind::Custom { .. }),
            },
            None => Callee { call_id, namespace: None, name: shown.to_owned(), custom: false },
        }
    }
}

fn declaration(entry: &Entry) -> chat::Tool {
    chat::Tool {
        name: entry.shown.clone(),
        description: entry.tool.description.clone(),
        parameters: told(parameters(&entry.tool)),
    }
}

fn told(mut parameters: Value) -> Value {
    if let Value::Object(keywords) = &mut parameters {
        keywords.shift_remove(edits::KEY);
    }
    parameters
}

fn parameters(tool: &Tool) -> Value {
    match &tool.kind {
        Kind::Function { parameters, .. } => parameters.clone(),
        Kind::Custom { .. } => {
            json!({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"],
                "additionalProperties": false})
        }
    }
}
