//! A conversation to tokens.
//!
//! What a model wrote is never written anew: where a turn goes on from an earlier response, the tokens of that
//! response stay as they were generated, and only what follows them (`tail`) is rendered into tokens. So the KV of
//! everything before stays good, and a turn costs the same however long the conversation is.

use crate::items::Items;
use crate::messages::{developer, messages};
use crate::model::Model;
use crate::tail::tail;
use crate::toolbook::Toolbook;
use flint_text::chat::{Message, Prompt, Tool};
use flint_text::parse::Format;
use flint_text::{Segment, TextError, harmony};
use flint_wire::{ApiError, Item, Meaning, Raw};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// A conversation and what it is held with.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    pub instructions: Option<String>,
    pub tools: Toolbook,
    pub items: Items,
    pub effort: Option<String>,
    pub raw: Option<Raw>, // then there is nothing else
}

impl Conversation {
    /// Whether the answer is to stand in for the conversation.
    pub fn is_compaction(&self) -> bool {
        self.items.last().is_some_and(|item| matches!(item.meaning, Meaning::CompactionTrigger))
    }
}

/// All tokens of the conversation, ready for an answer (or, to warm up, only what stands before it).
pub fn tokens(model: &Model, conversation: &Conversation, answer: bool) -> Result<Vec<u32>, ApiError> {
    if let Some(raw) = &conversation.raw {
        return raw_tokens(model, raw);
    }
    let scene = Scene::whole(model, conversation);
    let mut tokens = Vec::new();
    encode(model, &scene.render(model, scene.items.len(), answer)?, &mut tokens)?;
    Ok(tokens)
}

/// The same, given the tokens of the first `known` items with the model's own: appends what follows them. False if
/// they cannot be gone on from.
pub fn append(
    model: &Model,
    conversation: &Conversation,
    known: usize,
    answer: bool,
    tokens: &mut Vec<u32>,
) -> Result<bool, ApiError> {
    if conversation.raw.is_some() {
        return Ok(false);
    }
    let Some(tail) = tail(model, conversation, known, answer)? else { return Ok(false) };
    if !tokens.last().is_some_and(|last| model.text.stop_tokens.contains(last)) {
        tokens.push(tail.end);
    }
    encode(model, &tail.segments, tokens)?;
    Ok(true)
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
    let mut tokens = Vec::new();
    encode(model, &segments, &mut tokens)?;
    Ok(tokens)
}

fn encode(model: &Model, segments: &[Segment], tokens: &mut Vec<u32>) -> Result<(), ApiError> {
    model.text.tokenizer.encode_segments(segments, tokens).map_err(text_error)
}

/// What stands before the items of a conversation.
fn instructions(model: &Model, conversation: &Conversation) -> Vec<Message> {
    let instructions = conversation.instructions.as_ref();
    instructions.map(|text| Message::new(developer(model), text.clone())).into_iter().collect()
}

/// What is rendered: a whole conversation, or the end of one.
pub struct Scene<'a> {
    pub conversation: &'a Conversation,
    pub before: Vec<Message>,
    pub items: Vec<Arc<Item>>,
    pub tools: Arc<[Tool]>,
}

impl<'a> Scene<'a> {
    pub fn whole(model: &Model, conversation: &'a Conversation) -> Scene<'a> {
        let (before, tools) = (instructions(model, conversation), conversation.tools.declared());
        Scene { conversation, before, items: conversation.items.after(0), tools }
    }

    /// Everything up to the first `items` items; with `answer` also what stands before the model's words.
    pub fn render(&self, model: &Model, items: usize, answer: bool) -> Result<Vec<Segment>, ApiError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() as i64);
        let prompt = Prompt {
            messages: messages(model, &self.conversation.tools, self.before.clone(), &self.items[..items])?,
            tools: self.tools.to_vec(),
            add_generation_prompt: answer,
            variables: variables(self.conversation),
            now_unix_s: now - now % 86_400, // templates tell the day; a finer time would break every prefix
        };
        match (&model.facts.format, &model.text.template) {
            (Format::Harmony, _) => harmony::render(&prompt).map_err(text_error),
            // Templates look at the first message. What there is to make warm comes with it.
            (_, Some(_)) if prompt.messages.is_empty() => match answer {
                false => Ok(Vec::new()),
                true => Err(ApiError::invalid("input", "`input` is empty: there is nothing to answer")),
            },
            (_, Some(template)) => template.render(&prompt, &model.text.tokenizer).map_err(text_error),
            (_, None) => {
                let problem = format!("{} has no chat template; use /v1/completions", model.name);
                Err(ApiError::bad_request("no_chat_template", problem))
            }
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
