//! Tails as forms: what a template writes around the words of a message, learnt once, with holes for the words.
//!
//! A template that puts the words as they are into text that is always the same need not run for them. To see
//! whether it does, a conversation with marks in place of words is rendered twice, each time with other words
//! around: what comes out must be the same text around the marks.

use super::{Last, Tail, excerpt};
use crate::limits::{FORM_ITEMS_MAX, FORMS_MAX};
use crate::model::Model;
use crate::prompt::Conversation;
use flint_text::{Segment, push_text};
use flint_wire::{Item, Meaning, Part, Role};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What decides about the text around the words.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Shape {
    last: Last,
    new: Vec<Speaker>,
    tools: bool,
    effort: Option<String>,
    answer: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Speaker {
    User,
    Tool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Form {
    end: u32,
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Control(String),
    Text(String),
    Words(usize), // of the new item with this number
}

/// The forms of one model, as they are found; none where a template has no such form.
#[derive(Debug, Default)]
pub struct Forms {
    found: Mutex<HashMap<Shape, Option<Arc<Form>>>>,
}

impl Forms {
    /// The tail of a conversation whose new items, after the first `known`, fill a form.
    pub fn fill(
        &self,
        model: &Model,
        conversation: &Conversation,
        known: usize,
        answer: bool,
    ) -> Option<Tail> {
        let new = conversation.items.after(known);
        let words: Vec<&str> = new.iter().map(|item| words(item)).collect::<Option<_>>()?;
        let controls = model.text.tokenizer.controls();
        // What looks like part of the format is for the template to see.
        if new.len() > FORM_ITEMS_MAX || words.iter().any(|words| controls.find(words).is_some()) {
            return None;
        }
        let shape = Shape {
            last: Last::of(&conversation.items, known),
            new: new.iter().map(|item| speaker(item)).collect(),
            tools: !conversation.tools.is_empty(),
            effort: conversation.effort.clone(),
            answer,
        };
        Some(self.form(model, shape, conversation)?.filled(&words))
    }

    /// Whether the model's template has any: then it seldom has to run.
    pub fn are_known(&self) -> bool {
        self.lock().values().any(Option::is_some)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Shape, Option<Arc<Form>>>> {
        // Each change is one insertion.
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn form(&self, model: &Model, shape: Shape, conversation: &Conversation) -> Option<Arc<Form>> {
        if let Some(found) = self.lock().get(&shape) {
            return found.clone();
        }
        if self.lock().len() >= FORMS_MAX {
            return None;
        }
        let form = learn(model, &shape, conversation).map(Arc::new);
        self.lock().insert(shape, form.clone());
        form
    }
}

fn speaker(item: &Item) -> Speaker {
    match item.meaning {
        Meaning::CallOutput { .. } => Speaker::Tool,
        _ => Speaker::User,
    }
}

/// What an item says, if it is of a kind that forms know.
fn words(item: &Item) -> Option<&str> {
    match &item.meaning {
        Meaning::Message { role: Role::User, parts } | Meaning::CallOutput { parts, .. } => {
            match &parts[..] {
                [Part::Text(text)] => Some(text),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The form that two different conversations of this shape agree on.
fn learn(model: &Model, shape: &Shape, like: &Conversation) -> Option<Form> {
    let plain = try_out(model, shape, like, ["I look.", "read"], ["", ""])?;
    let padded = try_out(model, shape, like, ["Then this:", "write"], [" \n", "\n\t"])?;
    (plain == padded).then_some(plain)
}

/// The form that one conversation shows: the model says `own` and calls the tool, and what is new are marks in
/// `padding`.
fn try_out(
    model: &Model,
    shape: &Shape,
    like: &Conversation,
    [own, tool]: [&str; 2],
    [before, after]: [&str; 2],
) -> Option<Form> {
    let marks: Vec<String> =
        (0..shape.new.len()).map(|number| format!("{before}\u{E000}{number}\u{E001}{after}")).collect();
    let call = |number: usize| json!({"type": "function_call", "call_id": format!("{tool}{number}"), "name": tool, "arguments": "{}"});
    let calls: Vec<Value> = match shape.last {
        Last::Text => Vec::new(),
        Last::Call => (0..shape.new.len()).map(call).collect(),
    };
    let new = shape.new.iter().zip(&marks).enumerate().map(|(number, (speaker, mark))| match speaker {
        Speaker::User => json!({"role": "user", "content": mark}),
        Speaker::Tool => {
            json!({"type": "function_call_output", "call_id": format!("{tool}{number}"), "output": mark})
        }
    });
    let items = [json!({"role": "assistant", "content": own})].into_iter().chain(calls).chain(new);
    let items: Vec<_> = items.filter_map(|item| Item::parse("input", &item).ok()).map(Arc::new).collect();
    let conversation = Conversation {
        items: items.into(),
        tools: like.tools.clone(),
        effort: like.effort.clone(),
        ..Conversation::default()
    };
    let stops = model.stops_of_excerpt(shape.last)?;
    let tail = excerpt(&conversation, 0).tail_after(model, stops, shape.answer).ok()??;
    Form::cut(tail, &marks)
}

impl Form {
    /// A tail with its marks taken out, if each stands in it once, in order.
    fn cut(tail: Tail, marks: &[String]) -> Option<Form> {
        let (mut pieces, mut next) = (Vec::new(), 0);
        for segment in tail.segments {
            let text = match segment {
                Segment::Control(literal) => {
                    pieces.push(Piece::Control(literal));
                    continue;
                }
                Segment::Text(text) => text,
            };
            let mut rest = text.as_str();
            while let Some((before, after)) = marks.get(next).and_then(|mark| rest.split_once(mark.as_str()))
            {
                pieces.extend([Piece::Text(before.to_owned()), Piece::Words(next)]);
                (rest, next) = (after, next + 1);
            }
            pieces.push(Piece::Text(rest.to_owned()));
        }
        let rest_has_marks =
            pieces.iter().any(|piece| matches!(piece, Piece::Text(text) if text.contains('\u{E000}')));
        (next == marks.len() && !rest_has_marks).then_some(Form { end: tail.end, pieces })
    }

    fn filled(&self, words: &[&str]) -> Tail {
        let mut segments = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Control(literal) => segments.push(Segment::Control(literal.clone())),
                Piece::Text(text) => push_text(&mut segments, text),
                Piece::Words(number) => push_text(&mut segments, words[*number]),
            }
        }
        Tail { end: self.end, segments }
    }
}
