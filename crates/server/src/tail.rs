//! The tail of a prompt: what follows the tokens that the engine has already.
//!
//! Templates write message after message, and what they write for the last ones hardly ever depends on those
//! long before. So it is enough to render the model's last words and what is new, after a stand-in for all the
//! rest. Whether a template is like that is tried once (`local`); with one that is not, the whole conversation is
//! rendered. And for the usual ends of a conversation even that is not needed (`form`).

pub mod form;
pub mod local;

use crate::items::Items;
use crate::model::Model;
use crate::prompt::{Conversation, Scene};
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

/// How the model's last words ended: formats close a call in another way than a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Last {
    Text,
    Call,
}

impl Last {
    fn of(items: &Items, known: usize) -> Last {
        let last = items.backwards(known).next().map(|item| &item.meaning);
        if matches!(last, Some(Meaning::Call { .. })) { Last::Call } else { Last::Text }
    }
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
    let from = last_words(&conversation.items, known);
    if from.is_some()
        && let Some(tail) = model.forms.fill(model, conversation, known, answer)
    {
        return Ok(Some(tail));
    }
    if let Some(from) = from
        && let Some(stops) = model.stops_of_excerpt(Last::of(&conversation.items, known))
        && let Ok(Some(tail)) = excerpt(conversation, from).tail_after(model, stops, answer)
    {
        return Ok(Some(tail));
    }
    Scene::whole(model, conversation).tail(model, known, answer)
}

/// Where the model's last words begin, if what follows can be rendered without anything before them.
fn last_words(items: &Items, known: usize) -> Option<usize> {
    let own = items.backwards(known).take_while(|item| is_models_own(item)).count();
    let end = items.after(known - own);
    let new = &end[own..];
    let only_outputs = new.iter().all(|item| matches!(item.meaning, Meaning::CallOutput { .. }));
    let answers_them = new.iter().all(|item| !is_output_of_other(item, &end));
    // Templates leave out old thoughts as soon as the user speaks again.
    (own > 0 && answers_them && (only_outputs || !items.has_thought_before(known))).then_some(known - own)
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
        items: conversation.items.after(from),
        tools: if conversation.tools.is_empty() { [].into() } else { [stand_in].into() },
    }
}

impl Scene<'_> {
    /// What is written after the first `known` items.
    fn tail(&self, model: &Model, known: usize, answer: bool) -> Result<Option<Tail>, ApiError> {
        let before = self.render(model, known, false)?;
        let whole = self.render(model, self.items.len(), answer)?;
        Ok(match stops(model, &before).last() {
            Some((at, end)) if whole.get(..=at) == before.get(..=at) => Some(Tail::cut(whole, at, end)),
            Some(_) | None => None,
        })
    }

    /// What is written after so many tokens that end someone's words.
    fn tail_after(&self, model: &Model, count: usize, answer: bool) -> Result<Option<Tail>, ApiError> {
        let whole = self.render(model, self.items.len(), answer)?;
        let last = stops(model, &whole).nth(count - 1);
        Ok(last.map(|(at, end)| Tail::cut(whole, at, end)))
    }
}

impl Tail {
    /// What comes after the segment `at`, which is the token `end`.
    fn cut(mut whole: Vec<Segment>, at: usize, end: u32) -> Tail {
        Tail { end, segments: whole.split_off(at + 1) }
    }
}

/// The tokens that end someone's words, and where they stand.
fn stops(model: &Model, segments: &[Segment]) -> impl Iterator<Item = (usize, u32)> {
    segments.iter().enumerate().filter_map(|(at, segment)| Some((at, stop_id(model, segment)?)))
}

fn stop_id(model: &Model, segment: &Segment) -> Option<u32> {
    match segment {
        Segment::Control(literal) => {
            model.text.tokenizer.control_id(literal).filter(|id| model.text.stop_tokens.contains(id))
        }
        Segment::Text(_) => None,
    }
}
