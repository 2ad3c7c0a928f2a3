//! The tools of a request under the names that the model sees.
//!
//! A model knows one flat list of functions. Namespaces go into the name only where two tools would share it,
//! and a custom tool is a function whose one argument is its input.

use flint_text::chat;
use flint_wire::output::Callee;
use flint_wire::{Kind, Tool};
use serde_json::{Value, json};

#[derive(Debug, Clone, Default)]
pub struct Toolbook {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    shown: String, // the model's name for it
    tool: Tool,
}

impl Toolbook {
    pub fn new(tools: &[Tool]) -> Toolbook {
        let twice = |name: &str| tools.iter().filter(|tool| tool.name == name).count() > 1;
        let entry = |tool: &Tool| Entry {
            shown: match &tool.namespace {
                Some(namespace) if twice(&tool.name) => format!("{namespace}__{}", tool.name),
                _ => tool.name.clone(),
            },
            tool: tool.clone(),
        };
        Toolbook { entries: tools.iter().map(entry).collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The list as templates take it.
    pub fn declared(&self) -> Vec<chat::Tool> {
        let declared = |entry: &Entry| chat::Tool {
            name: entry.shown.clone(),
            description: entry.tool.description.clone(),
            parameters: parameters(&entry.tool),
        };
        self.entries.iter().map(declared).collect()
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

fn parameters(tool: &Tool) -> Value {
    match &tool.kind {
        Kind::Function { parameters, .. } => parameters.clone(),
        Kind::Custom { .. } => {
            json!({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"],
                "additionalProperties": false})
        }
    }
}
