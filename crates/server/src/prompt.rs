//! A conversation to tokens.
//!
//! What a model wrote is never written anew: where a turn goes on from an earlier response, the tokens of that
//! response stay as they were generated, and only what follows them is rendered into tokens. So the KV of
//! everything before stays good.

use crate::model::Model;
use crate::toolbook::Toolbook;
use flint_text::chat::{Content, Message, Prompt, Role, ToolCall};
use flint_text::parse::Format;
use flint_text::{Segment, TextError, harmony};
use flint_wire::{ApiError, Item, Meaning, Part, Raw, Role as WireRole};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// A conversation and what it is held with.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    pub instructions: Option<String>,
    pub tools: Toolbook,
    pub items: Vec<Arc<Item>>,
    pub effort: Option<String>,
    pub raw: Option<Raw>, // then there is nothing else
}

impl Conversation {
    /// Whether the answer is to stand in for the conversation.
    pub fn is_compaction(&self) -> bool {
        self.items.last().is_some_and(|item| matches!(item.meaning, Meaning::CompactionTrigger))
    }
}

/// What a model is asked when its client wants the conversation made short.
const COMPACT: &str = "Write a summary of this conversation for someone who will go on with the work and sees \
    only your summary: the task, what was done and found, files and commands that matter, what is left to do. \
    Write the summary only.";

/// An earlier state of the same conversation: its first items, and their tokens with the model's own.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    pub items: usize,
    pub tokens: &'a [u32],
}

/// All tokens of the conversation, ready for an answer (or, to warm up, only what stands before it).
pub fn tokens(
    model: &Model,
    conversation: &Conversation,
    known: Option<Known<'_>>,
    answer: bool,
) -> Result<Vec<u32>, ApiError> {
    if let Some(raw) = &conversation.raw {
        return raw_tokens(model, raw);
    }
    let whole = render(model, conversation, &conversation.items, answer)?;
    if let Some(known) = known
        && let Some(tokens) = continued(model, conversation, known, &whole)?
    {
        return Ok(tokens);
    }
    encode(model, &whole, Vec::new())
}

/// Text as it is, or around a hole in the order that the model was trained on.
fn raw_tokens(model: &Model, raw: &Raw) -> Result<Vec<u32>, ApiError> {
    let Some(suffix) = &raw.suffix else {
        let tokens = model.text.encode_raw(&raw.prompt).map_err(text_error)?;
        return match tokens.is_empty() {
            true => Err(ApiError::invalid("prompt", "`prompt` is empty: there is nothing to continue")),
            false => Ok(tokens),
        };
    };
    if !model.facts.fill_in_the_middle {
        let problem = format!("{} cannot fill in the middle: leave `suffix` out", model.name);
        return Err(ApiError::invalid("suffix", problem));
    }
    let control = |literal: &str| Segment::Control(literal.to_owned());
    let segments = [
        control("<|fim_prefix|>"),
        Segment::Text(raw.prompt.clone()),
        control("<|fim_suffix|>"),
        Segment::Text(suffix.clone()),
        control("<|fim_middle|>"),
    ];
    encode(model, &segments, Vec::new())
}

/// The known tokens, and what follows the end of the model's last words; none if the template has changed what
/// stands before.
fn continued(
    model: &Model,
    conversation: &Conversation,
    known: Known<'_>,
    whole: &[Segment],
) -> Result<Option<Vec<u32>>, ApiError> {
    let Some(items) = conversation.items.get(..known.items) else { return Ok(None) };
    let before = render(model, conversation, items, false)?;
    let stop = |segment: &Segment| match segment {
        Segment::Control(literal) => stop_id(model, literal),
        Segment::Text(_) => None,
    };
    let Some((end, id)) =
        before.iter().enumerate().rev().find_map(|(at, segment)| Some((at, stop(segment)?)))
    else {
        return Ok(None);
    };
    if whole.get(..=end) != before.get(..=end) {
        return Ok(None);
    }
    let mut tokens = known.tokens.to_vec();
    if !tokens.last().is_some_and(|last| model.text.stop_tokens.contains(last)) {
        tokens.push(id);
    }
    encode(model, &whole[end + 1..], tokens).map(Some)
}

fn stop_id(model: &Model, literal: &str) -> Option<u32> {
    model.text.tokenizer.control_id(literal).filter(|id| model.text.stop_tokens.contains(id))
}

fn encode(model: &Model, segments: &[Segment], mut tokens: Vec<u32>) -> Result<Vec<u32>, ApiError> {
    model.text.tokenizer.encode_segments(segments, &mut tokens).map_err(text_error)?;
    Ok(tokens)
}

fn render(
    model: &Model,
    conversation: &Conversation,
    items: &[Arc<Item>],
    answer: bool,
) -> Result<Vec<Segment>, ApiError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() as i64);
    let prompt = Prompt {
        messages: messages(model, conversation, items)?,
        tools: conversation.tools.declared(),
        add_generation_prompt: answer,
        variables: variables(conversation),
        now_unix_s: now - now % 86_400, // templates tell the day; a finer time would break every prefix
    };
    match (&model.facts.format, &model.text.template) {
        (Format::Harmony, _) => harmony::render(&prompt).map_err(text_error),
        (_, Some(template)) => template.render(&prompt, &model.text.tokenizer).map_err(text_error),
        (_, None) => {
            let problem = format!("{} has no chat template; use /v1/completions", model.name);
            Err(ApiError::bad_request("no_chat_template", problem))
        }
    }
}

fn text_error(error: TextError) -> ApiError {
    ApiError::bad_request("invalid_prompt", error.to_string())
}

fn variables(conversation: &Conversation) -> Map<String, Value> {
    let mut variables = Map::new();
    if let Some(effort) = &conversation.effort {
        variables.insert("reasoning_effort".into(), effort.as_str().into());
        variables.insert("enable_thinking".into(), (effort != "none").into());
    }
    variables
}

fn messages(
    model: &Model,
    conversation: &Conversation,
    items: &[Arc<Item>],
) -> Result<Vec<Message>, ApiError> {
    let mut builder = Builder { model, tools: &conversation.tools, messages: Vec::new() };
    if let Some(instructions) = &conversation.instructions {
        builder.messages.push(Message::new(builder.developer(), instructions.clone()));
    }
    items.iter().try_for_each(|item| builder.add(item))?;
    Ok(builder.messages)
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
                self.messages.push(Message::new(self.developer(), text));
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

    fn developer(&self) -> Role {
        match self.model.facts.format {
            Format::Harmony => Role::Developer,
            Format::Tagged | Format::Llama3 => Role::System,
        }
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
