//! Tries out whether a template's tails depend on what stands long before them.

use super::{Last, excerpt, last_words, stops};
use crate::model::Model;
use crate::prompt::{Conversation, Scene};
use crate::toolbook::Toolbook;
use flint_wire::{Item, Kind, Tool};
use serde_json::json;
use std::sync::Arc;

/// If the template writes the same tail after the stand-in as after a whole conversation, in all that can follow
/// the model's words: how many tokens end someone's words in an excerpt before its tail.
pub fn stops_of_excerpt(model: &Model, last: Last) -> Option<usize> {
    let mut specimens = specimens();
    specimens.retain(|(conversation, known)| Last::of(&conversation.items, *known) == last);
    let (first, known) = specimens.first()?;
    let own = excerpt(first, last_words(&first.items, *known)?);
    let stops =
        stops(model, &own.render(model, own.items.len() - (first.items.len() - known), false).ok()?).count();
    let agree = |(conversation, known): &(Conversation, usize)| {
        let Some(from) = last_words(&conversation.items, *known) else { return true };
        [true, false].iter().all(|answer| {
            let long = Scene::whole(model, conversation).tail(model, *known, *answer);
            let short = excerpt(conversation, from).tail_after(model, stops, *answer);
            match (long, short) {
                (Ok(long), Ok(short)) => long == short,
                (Err(_), Err(_)) => true, // such a conversation cannot be held with this model
                (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
            }
        })
    };
    (stops > 0 && specimens.iter().all(agree)).then_some(stops)
}

/// Conversations, and how many of their items are known.
fn specimens() -> Vec<(Conversation, usize)> {
    let says = |role: &str, text: &str| json!({"role": role, "content": text});
    let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "read", "arguments": "{\"path\": \"a\"}"});
    let output = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": " 1\n2 "});
    let thought =
        json!({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "So."}]});
    let said = [says("user", "Hello."), says("assistant", "Hi."), says("user", "What is in a?")];
    let [user, developer, done] =
        [says("user", " Go on.\n"), says("developer", "Be brief."), says("assistant", "I look.")];
    let ends = [
        (vec![done.clone()], vec![user.clone()]),
        (vec![done.clone()], vec![developer, user.clone()]),
        (vec![done.clone()], vec![user.clone(), user.clone()]),
        (vec![done.clone(), call("1")], vec![output("1")]),
        (vec![call("1")], vec![output("1"), user]),
        (vec![done, call("1"), call("2")], vec![output("1"), output("2")]),
        (vec![thought, call("1")], vec![output("1")]),
    ];
    let mut specimens = Vec::new();
    for (own, new) in &ends {
        let known = said.len() + own.len();
        let items = said.iter().chain(own).chain(new).filter_map(|item| Item::parse("input", item).ok());
        let items: Vec<_> = items.map(Arc::new).collect();
        let plain = Conversation { items: items.into(), ..Conversation::default() };
        let instructed = Conversation { instructions: Some("Be kind.".into()), ..plain.clone() };
        let equipped = Conversation { tools: tools(), ..plain.clone() };
        specimens.extend([plain, instructed, equipped].map(|conversation| (conversation, known)));
    }
    specimens
}

fn tools() -> Toolbook {
    let tool = |name: &str| Tool {
        namespace: None,
        name: name.to_owned(),
        description: "A tool.".to_owned(),
        kind: Kind::Function { parameters: json!({"type": "object", "properties": {}}), strict: false },
    };
    Toolbook::new(&[tool("read"), tool("write")].map(Arc::new))
}
