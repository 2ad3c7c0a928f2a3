//! The items of a conversation: what a client sends as input, and what a response has as output.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::limits::{ID_BYTES_MAX, INPUT_ITEMS_MAX, NAME_BYTES_MAX, PARTS_MAX, TOOLS_MAX};
use crate::tool::Tools;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};

/// An item as it came, and what it means.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    pub json: Value,
    pub meaning: Meaning,
    pub print: u64, // the same for items that say the same to the model
}

#[derive(Debug, Clone, PartialEq)]
pub enum Meaning {
    Message {
        role: Role,
        parts: Vec<Part>,
    },
    /// A call of a function (`arguments` is JSON) or of a custom tool (`arguments` is its input).
    Call {
        call_id: String,
        namespace: Option<String>,
        name: String,
        arguments: String,
        custom: bool,
    },
    CallOutput {
        call_id: String,
        parts: Vec<Part>,
    },
    Reasoning {
        text: String,
    },
    /// Tools that join the declared ones.
    AdditionalTools {
        tools: Tools,
    },
    /// A history that was made short earlier: the summary.
    Compaction {
        content: String,
    },
    /// The client asks for the history to be made short.
    CompactionTrigger,
    /// A kind that this server has no use for.
    Other {
        kind: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    System,
    Developer,
    User,
    Assistant,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Part {
    Text(String),
    Image,
    File,
    Audio,
}

/// The input of a request: a string, or items.
pub fn input_items(fields: &mut Fields<'_>) -> Result<Vec<Item>, ApiError> {
    match fields.value("input") {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![user_message(text)]),
        Some(Value::Array(items)) if items.len() > INPUT_ITEMS_MAX => {
            let problem = format!("has {} items, at most {INPUT_ITEMS_MAX} are allowed", items.len());
            Err(fields.invalid("input", problem))
        }
        Some(Value::Array(items)) => items
            .iter()
            .enumerate()
            .map(|(index, item)| Item::parse(&format!("input[{index}]"), item))
            .collect(),
        Some(_) => Err(fields.invalid("input", "must be a string or an array of items")),
    }
}

fn user_message(text: &str) -> Item {
    let content = json!([{"type": "input_text", "text": text}]);
    let meaning = Meaning::Message { role: Role::User, parts: vec![Part::Text(text.to_owned())] };
    Item::new(json!({"type": "message", "role": "user", "content": content}), meaning)
}

impl Item {
    pub fn parse(path: &str, json: &Value) -> Result<Item, ApiError> {
        let meaning = meaning(Fields::at(path, json)?)?;
        Ok(Item::new(json.clone(), meaning))
    }

    fn new(json: Value, meaning: Meaning) -> Item {
        let print = print(&meaning);
        Item { json, meaning, print }
    }
}

/// A number for what an item says, without the ids and marks that clients drop or change.
fn print(meaning: &Meaning) -> u64 {
    let mut hasher = DefaultHasher::new();
    match meaning {
        Meaning::Message { role, parts } => (0, *role as u8, parts).hash(&mut hasher),
        Meaning::Call { call_id, namespace, name, arguments, custom } => {
            let arguments = if *custom { arguments.into() } else { spaceless(arguments) };
            (1, call_id, namespace, name, arguments, custom).hash(&mut hasher);
        }
        Meaning::CallOutput { call_id, parts } => (2, call_id, parts).hash(&mut hasher),
        Meaning::Reasoning { text } => (3, text).hash(&mut hasher),
        Meaning::Compaction { content } => (4, content).hash(&mut hasher),
        // These say nothing to the model by themselves.
        Meaning::AdditionalTools { .. } | Meaning::CompactionTrigger | Meaning::Other { .. } => {}
    }
    hasher.finish()
}

/// JSON without the white space that clients change when they write it anew.
fn spaceless(json: &str) -> Cow<'_, str> {
    serde_json::from_str(json).map_or(json.into(), |value: Value| value.to_string().into())
}

fn meaning(mut fields: Fields<'_>) -> Result<Meaning, ApiError> {
    let kind = fields.text("type")?;
    match kind.unwrap_or("message") {
        "message" | "agent_message" => message(fields),
        "function_call" => call(fields, "arguments", false),
        "custom_tool_call" => call(fields, "input", true),
        "function_call_output" | "custom_tool_call_output" => call_output(fields),
        "reasoning" => reasoning(fields),
        "additional_tools" => {
            let mut tools = Tools::default();
            tools.extend(&fields.path("tools"), fields.array("tools", TOOLS_MAX)?.unwrap_or_default())?;
            Ok(Meaning::AdditionalTools { tools })
        }
        "compaction" | "compaction_summary" => {
            let content = fields.text("encrypted_content")?.unwrap_or_default().to_owned();
            Ok(Meaning::Compaction { content })
        }
        "compaction_trigger" => Ok(Meaning::CompactionTrigger),
        "item_reference" => {
            let problem = "is an item_reference; send the item itself, or previous_response_id";
            Err(fields.invalid("type", problem))
        }
        other => Ok(Meaning::Other { kind: other.chars().take(NAME_BYTES_MAX).collect() }),
    }
}

fn message(mut fields: Fields<'_>) -> Result<Meaning, ApiError> {
    let roles = [
        ("user", Role::User),
        ("assistant", Role::Assistant),
        ("developer", Role::Developer),
        ("system", Role::System),
    ];
    let role = match fields.text("type")? {
        Some("agent_message") => Role::User,
        _ => fields.choice("role", &roles)?.ok_or_else(|| fields.missing("role"))?,
    };
    let parts = parts(&mut fields, "content")?.ok_or_else(|| fields.missing("content"))?;
    Ok(Meaning::Message { role, parts })
}

/// Text, or an array of parts.
fn parts(fields: &mut Fields<'_>, key: &'static str) -> Result<Option<Vec<Part>>, ApiError> {
    match fields.value(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(vec![Part::Text(text.clone())])),
        Some(_) => {
            let path = fields.path(key);
            let array = fields.array(key, PARTS_MAX)?.unwrap_or_default();
            let part = |(index, value)| part(Fields::at(format!("{path}[{index}]"), value)?);
            array.iter().enumerate().map(part).collect::<Result<_, _>>().map(Some)
        }
    }
}

fn part(mut fields: Fields<'_>) -> Result<Part, ApiError> {
    match fields.required_text("type")? {
        "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text" => {
            Ok(Part::Text(fields.required_text("text")?.to_owned()))
        }
        "refusal" => Ok(Part::Text(fields.required_text("refusal")?.to_owned())),
        "input_image" | "image_url" | "computer_screenshot" => Ok(Part::Image),
        "input_file" | "file" => Ok(Part::File),
        "input_audio" => Ok(Part::Audio),
        _ => Err(fields.invalid("type", "is not a kind of content: use input_text or output_text")),
    }
}

fn call(mut fields: Fields<'_>, arguments: &'static str, custom: bool) -> Result<Meaning, ApiError> {
    Ok(Meaning::Call {
        call_id: call_id(&mut fields)?,
        namespace: fields.short_text("namespace", NAME_BYTES_MAX)?.map(str::to_owned),
        name: fields.short_text("name", NAME_BYTES_MAX)?.ok_or_else(|| fields.missing("name"))?.to_owned(),
        arguments: fields.required_text(arguments)?.to_owned(),
        custom,
    })
}

fn call_id(fields: &mut Fields<'_>) -> Result<String, ApiError> {
    let id = fields.short_text("call_id", ID_BYTES_MAX)?;
    id.map(str::to_owned).ok_or_else(|| fields.missing("call_id"))
}

fn call_output(mut fields: Fields<'_>) -> Result<Meaning, ApiError> {
    let call_id = call_id(&mut fields)?;
    let parts = parts(&mut fields, "output")?.ok_or_else(|| fields.missing("output"))?;
    Ok(Meaning::CallOutput { call_id, parts })
}

/// The thoughts themselves if they are there, else their summary.
fn reasoning(mut fields: Fields<'_>) -> Result<Meaning, ApiError> {
    let content = parts(&mut fields, "content")?.unwrap_or_default();
    let summary = parts(&mut fields, "summary")?.unwrap_or_default();
    let chosen = if content.is_empty() { summary } else { content };
    Ok(Meaning::Reasoning { text: text_of(&chosen) })
}

fn text_of(parts: &[Part]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        Part::Image | Part::File | Part::Audio => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// The items that a response is made of.
pub mod output {
    use serde_json::{Value, json};

    /// One part of a message's content.
    pub fn text_part(text: &str, logprobs: &[Value]) -> Value {
        json!({"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs})
    }

    pub fn message(id: &str, status: &str, parts: Vec<Value>) -> Value {
        json!({"id": id, "type": "message", "role": "assistant", "status": status, "content": parts})
    }

    pub fn reasoning(id: &str, status: &str, text: &str) -> Value {
        let content = match text.is_empty() {
            true => json!([]),
            false => json!([{"type": "reasoning_text", "text": text}]),
        };
        json!({"id": id, "type": "reasoning", "status": status, "summary": [], "content": content,
            "encrypted_content": null})
    }

    /// Where a call goes.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Callee {
        pub call_id: String,
        pub namespace: Option<String>,
        pub name: String,
        pub custom: bool,
    }

    /// A call with its arguments (JSON text) or, for a custom tool, its input.
    pub fn call(id: &str, status: &str, callee: &Callee, arguments: &str) -> Value {
        let (kind, key) = match callee.custom {
            true => ("custom_tool_call", "input"),
            false => ("function_call", "arguments"),
        };
        let mut item = json!({"id": id, "type": kind, "status": status, "call_id": callee.call_id,
            "name": callee.name});
        item[key] = arguments.into();
        if let Some(namespace) = &callee.namespace {
            item["namespace"] = namespace.as_str().into();
        }
        item
    }

    pub fn compaction(id: &str, content: &str) -> Value {
        json!({"id": id, "type": "compaction", "encrypted_content": content})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(arguments: &str) -> Item {
        let json = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments});
        Item::parse("input[0]", &json).unwrap()
    }

    #[test]
    fn white_space_in_arguments_says_nothing() {
        let print = |arguments: &str| call(arguments).print;
        assert_eq!(print("{\"a\": [1, \"b c\"]}"), print("{\"a\":[1,\"b c\"]}"));
        assert_ne!(print("{\"a\": [1, \"b c\"]}"), print("{\"a\":[1,\"bc\"]}"));
        assert_ne!(print("not JSON"), print("notJSON"));
    }
}
