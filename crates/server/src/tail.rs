//! The tail of a prompt: what follows the tokens that the engine has already.
//!
//! Templates write message after message, and what they write for the last ones hardly ever depends on those
//! long before. So it is enough to render the model's last words and what is new, after a stand-in for all the
//! rest. Whether a template is like that is tried once (`local`); with one that is not, the whole conversation is
//! rendered.

pub mod local;

use crate::model::Model;
use crate::prompt::{Conversation, Scene, instructions};
use flint_text::Segment;
use flint_text::chat::{Message, Role, Tool};
use flint_wire::{ApiError, Item, Meaning, Role as WireRole};
use serde_json::json;
use std::sync::Arc;

#[derive(Debug, PartialEq)]
pub struct Tail {
    pub end: u32, // the token that ends the model's last words
    pub segments: Vec<Segment>,
}

/// What follows the first `known` items; none if the template now writes differently what stands before.
pub fn tail(
    model: &Model,
    conversation: &Conversation,
    known: usize,
    answer: bool,
) -> Result<Option<Tail>, ApiError> {
    if known > conversation.items.len() {
        return Ok(None);
    }
    if let Some(from) = last_words(&conversation.items, known)
        && model.has_local_tails()
        && let Ok(Some(tail)) = excerpt(conversation, from).tail(model, known - from, answer)
    {
        return Ok(Some(tail));
    }
    whole(model, conversation).tail(model, known, answer)
}

/// Where the model's last words begin, if what follows can be rendered without anything before them.
fn last_words(items: &[Arc<Item>], known: usize) -> Option<usize> {
    let (said, new) = items.split_at_checked(known)?;
    let from = said.iter().rposition(|item| !is_models_own(item)).map_or(0, |at| at + 1);
    // Templates leave out old thoughts as soon as the user speaks again.
    let has_thoughts = said.iter().any(|item| matches!(item.meaning, Meaning::Reasoning { .. }));
    let only_outputs = new.iter().all(|item| matches!(item.meaning, Meaning::CallOutput { .. }));
    let answers_them = new.iter().all(|item| !is_output_of_other(item, &items[from..]));
    (from < known && answers_them && (only_outputs || !has_thoughts)).then_some(from)
}

fn is_models_own(item: &Item) -> bool {
    match &item.meaning {
        Meaning::Message { role, .. } => *role == WireRole::Assistant,
        Meaning::Reasoning { .. } | Meaning::Call { .. } => true,
        _ => false,
    }
}

/// Whether an item is the output of a call that is not among these.
fn is_output_of_other(item: &Item, among: &[Arc<Item>]) -> bool {
    let Meaning::CallOutput { call_id: wanted, .. } = &item.meaning else { return false };
    !among.iter().any(|item| matches!(&item.meaning, Meaning::Call { call_id, .. } if call_id == wanted))
}

fn whole<'a>(model: &Model, conversation: &'a Conversation) -> Scene<'a> {
    Scene {
        conversation,
        before: instructions(model, conversation),
        items: &conversation.items,
        tools: conversation.tools.declared(),
    }
}

/// The conversation from item `from` on, after a stand-in for what was before.
fn excerpt(conversation: &Conversation, from: usize) -> Scene<'_> {
    let stand_in = Tool {
        name: "t".into(),
        description: "A tool.".into(),
        parameters: json!({"type": "object", "properties": {}}),
    };
    Scene {
        conversation,
        before: vec![Message::new(Role::User, ".")],
        items: &conversation.items[from..],
        tools: if conversation.tools.is_empty() { [].into() } else { [stand_in].into() },
    }
}

impl Scene<'_> {
    fn tail(&self, model: &Model, known: usize, answer: bool) -> Result<Option<Tail>, ApiError> {
        let before = self.render(model, known, false)?;
        let mut whole = self.render(model, self.items.len(), answer)?;
        let stop = |(at, segment): (usize, &Segment)| Some((at, stop_id(model, segment)?));
        let Some((at, end)) = before.iter().enumerate().rev().find_map(stop) else { return Ok(None) };
        Ok(match whole.get(..=at) == before.get(..=at) {
            true => Some(Tail { end, segments: whole.split_off(at + 1) }),
            false => None,
        })
    }
}

fn stop_id(model: &Model, segment: &Segment) -> Option<u32> {
    match segment {
        Segment::Control(literal) => {
            model.text.tokenizer.control_id(literal).filter(|id| model.text.stop_tokens.contains(id))
        }
        Segment::Text(_) => None,
    }
}
