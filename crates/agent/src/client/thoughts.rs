//! Thoughts go back to who had them, and to nobody else.
//!
//! Some providers seal what their models think, and refuse a request with the seal of another; and what one vendor's model
//! thought is no business of the next. So thoughts are kept with the name of their author, and a model that takes over a
//! conversation reads what was said and done in it.

use super::Incoming;
use crate::provider::Provider;
use crate::settings::OWN;
use serde_json::Value;

/// Where a session keeps the author. It is not sent.
const BY: &str = "flint.by";

/// A model of a provider. Our own server has another address each time that it starts.
pub fn author(provider: &Provider, model: &str) -> String {
    let place = if provider.id == OWN { OWN } else { &provider.base_url };
    format!("{model} at {place}")
}

/// Names the author of what came.
pub fn sign(incoming: &mut Incoming, author: &str) {
    let items = match incoming {
        Incoming::ItemDone { item } => std::slice::from_mut(item),
        Incoming::Ended(ended) => ended.output.as_mut_slice(),
        _ => return,
    };
    for item in items.iter_mut().filter(|item| is_thought(item)) {
        item[BY] = author.into();
    }
}

/// What this model is told of a conversation.
pub fn readable(items: &[Value], author: &str) -> Vec<Value> {
    let own = |item: &&Value| !is_thought(item) || (item[BY] == author && says_something(item));
    let without_author = |item: &Value| {
        let mut item = item.clone();
        item.as_object_mut().and_then(|fields| fields.remove(BY));
        item
    };
    items.iter().filter(own).map(without_author).collect()
}

fn is_thought(item: &Value) -> bool {
    item["type"] == "reasoning"
}

/// A provider that neither seals its thoughts nor tells them cannot take them back either.
fn says_something(item: &Value) -> bool {
    let told = item["content"].as_array().is_some_and(|parts| !parts.is_empty());
    told || item["encrypted_content"].is_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn thoughts(sealed: Value) -> Incoming {
        Incoming::ItemDone { item: json!({"type": "reasoning", "summary": [], "encrypted_content": sealed}) }
    }

    #[test]
    fn thoughts_go_back_to_their_author_alone() {
        let (one, two) = (Provider::new("a", "http://a/v1"), Provider::new("b", "http://b/v1"));
        let (mine, theirs) = (author(&one, "m"), author(&two, "m"));
        let mut items = vec![json!({"type": "message", "role": "user", "content": "hello"})];
        for (sealed, by) in [(json!("1"), &mine), (json!("2"), &theirs), (Value::Null, &mine)] {
            let mut incoming = thoughts(sealed);
            sign(&mut incoming, by);
            let Incoming::ItemDone { item } = incoming else { unreachable!() };
            items.push(item);
        }
        // Nobody knows whose these are.
        items.push(json!({"type": "reasoning", "encrypted_content": "3"}));
        for (by, sealed) in [(&mine, json!(["1"])), (&theirs, json!(["2"])), (&author(&one, "n"), json!([]))]
        {
            let told = readable(&items, by);
            let seals: Vec<&Value> = told[1..].iter().map(|item| &item["encrypted_content"]).collect();
            assert_eq!(json!(seals), sealed, "{by}");
            assert_eq!(told[0], items[0]);
            assert!(!json!(told).to_string().contains(BY), "{told:?}");
        }
    }

    #[test]
    fn our_own_server_is_the_same_wherever_it_listens() {
        let at = |port: u16| author(&Provider::new(OWN, &format!("http://127.0.0.1:{port}/v1")), "m");
        assert_eq!(at(1), at(2));
    }
}
