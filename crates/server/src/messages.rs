//! The items of a conversation to the messages that templates know.

use crate::model::Model;
use crate::toolbook::Toolbook;
use flint_text::chat::{Content, Message, Role, ToolCall};
use flint_text::parse::Format;
use flint_wire::{ApiError, Item, Meaning, Part, Role as WireRole};
use serde_json::json;
use std::sync::Arc;

/// What a model is asked when its client wants the conversation made short.
const COMPACT: &str = "Write a summary of this conversation for someone who will go on with the work and sees \
    only your summary: the task, what was done and found, files and commands that matter, what is left to do. \
    Write the summary only.";

/// The messages that say `items`, after those that stand `before` them.
pub fn messages(
    model: &Model,
    tools: &Toolbook,
    before: Vec<Message>,
    items: &[Arc<Item>],
) -> Result<Vec<Message>, ApiError> {
    let mut builder = Builder { model, tools, messages: before };
    items.iter().try_for_each(|item| builder.add(item))?;
    Ok(builder.messages)
}

/// The role in which a model takes instructions.
pub fn developer(model: &Model) -> Role {
    match model.facts.format {
        Format::Harmony => Role::Developer,
        Format::Tagged | Format::Llama3 => Role::System,
    }
}

struct Builder<'a> {
    model: &'a Model,
    tools: &'a Toolbook,
    messages: Vec<Message>,
}

impl Builder<'_> {
    fn add(&mut self, item: &Item) -> Result<(), ApiError> {
        match &item.meaning {
            Meaning::Message { role, parts } => self.message(*role, text(self.model, parts)?),
            Meaning::Reasoning { text } => {
                let thought = self.assistant().reasoning.get_or_insert_default();
                thought.push_str(text);
            }
            Meaning::Call { call_id, namespace, name, arguments, custom } => {
                let arguments = match custom {
                    true => json!({"input": arguments}),
                    false => serde_json::from_str(arguments).unwrap_or_else(|_| arguments.as_str().into()),
                };
                let name = self.tools.shown(namespace.as_deref(), name);
                self.assistant().tool_calls.push(ToolCall { id: call_id.clone(), name, arguments });
            }
            Meaning::CallOutput { call_id, parts } => {
                let name = self.called(call_id);
                let message = Message::new(Role::Tool, text(self.model, parts)?);
                self.messages.push(Message { tool_call_id: Some(call_id.clone()), name, ..message });
            }
            Meaning::Compaction { content } => {
                let summary = format!("The conversation so far, in short:\n{content}");
                self.messages.push(Message::new(Role::User, summary));
            }
            Meaning::CompactionTrigger => self.messages.push(Message::new(Role::User, COMPACT)),
            Meaning::AdditionalTools { .. } | Meaning::Other { .. } => {}
        }
        Ok(())
    }

    fn message(&mut self, role: WireRole, text: String) {
        let first = self.messages.len() <= 1;
        match (role, self.messages.last_mut()) {
            // Templates know one system message, at the start.
            (WireRole::System | WireRole::Developer, Some(last))
                if first && matches!(last.role, Role::System | Role::Developer) =>
            {
                append(&mut last.content, "\n\n", &text);
            }
            (WireRole::System | WireRole::Developer, _) => {
                self.messages.push(Message::new(developer(self.model), text));
            }
            (WireRole::User, _) => self.messages.push(Message::new(Role::User, text)),
            (WireRole::Assistant, _) => append(&mut self.assistant().content, "", &text),
        }
    }

    /// The assistant's message that is being put together: its items come one by one.
    fn assistant(&mut self) -> &mut Message {
        if self.messages.last().is_none_or(|last| last.role != Role::Assistant) {
            self.messages.push(Message::new(Role::Assistant, ""));
        }
        let last = self.messages.len() - 1;
        &mut self.messages[last]
    }

    /// The name of the tool that was called by this id.
    fn called(&self, call_id: &str) -> Option<String> {
        let calls = self.messages.iter().rev().flat_map(|message| &message.tool_calls);
        calls.into_iter().find(|call| call.id == call_id).map(|call| call.name.clone())
    }
}

fn append(content: &mut Content, between: &str, text: &str) {
    if let Content::Text(whole) = content {
        if !whole.is_empty() {
            whole.push_str(between);
        }
        whole.push_str(text);
    }
}

/// The text of some parts, if the model can read them all.
fn text(model: &Model, parts: &[Part]) -> Result<String, ApiError> {
    let mut whole = String::new();
    for part in parts {
        let kind = match part {
            Part::Text(text) => {
                if !whole.is_empty() {
                    whole.push('\n');
                }
                whole.push_str(text);
                continue;
            }
            Part::Image => "images",
            Part::File => "files",
            Part::Audio => "audio",
        };
        let problem = format!(
            "{} reads text only: the input has {kind}. Leave them out, or ask another model",
            model.name
        );
        return Err(ApiError {
            param: Some("input".into()),
            ..ApiError::bad_request("unsupported_modality", problem)
        });
    }
    Ok(whole)
}
