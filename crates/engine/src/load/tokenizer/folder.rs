//! The tokenizer of a Hugging Face folder: tokenizer.json, and what the files beside it say of it.

use super::super::error::{Fault, quoted};
use super::super::folder::FolderMetadata;
use super::super::json::{JsonFields, describe};
use super::{TokenizerSource, Vocabulary, template};
use serde_json::Value;

/// Tokens that may end an answer, at most.
const EOS_MAX: usize = 64;

/// `jinja`: the template of newer folders, a file of its own.
pub(in super::super) fn from_folder(
    metadata: &FolderMetadata,
    json: Vec<u8>,
    jinja: Option<Vec<u8>>,
    vocab: usize,
) -> Result<TokenizerSource, Fault> {
    let generation = JsonFields { object: &metadata.generation_config, prefix: "" };
    let config = JsonFields { object: &metadata.config, prefix: "" };
    let tokenizer = JsonFields { object: &metadata.tokenizer_config, prefix: "" };
    let ids = |name| {
        let value = generation.get(name).or_else(|| config.get(name));
        value.map_or(Ok(Vec::new()), |value| token_ids(name, value, vocab))
    };
    Ok(TokenizerSource {
        vocabulary: Vocabulary::Json(json),
        chat_template: chat_template(&tokenizer, jinja)?,
        bos: ids("bos_token_id")?.first().copied(),
        eos: ids("eos_token_id")?,
        add_bos: tokenizer.flag("add_bos_token")?,
        add_eos: tokenizer.flag("add_eos_token")?,
    })
}

/// One token or a list of them.
fn token_ids(name: &str, value: &Value, vocab: usize) -> Result<Vec<u32>, Fault> {
    let values = match value {
        Value::Array(values) => values.as_slice(),
        value => std::slice::from_ref(value),
    };
    if values.len() > EOS_MAX {
        let found = format!("a list of {}", values.len());
        return Err(Fault::damaged(quoted(name), found, format!("at most {EOS_MAX}")));
    }
    let id = |value: &Value| {
        let id = value.as_u64().filter(|id| *id < vocab as u64);
        let wrong = || Fault::damaged(quoted(name), describe(value), format!("a token below {vocab}"));
        id.map(|id| id as u32).ok_or_else(wrong)
    };
    values.iter().map(id).collect()
}

/// The template file if there is one, else the one in tokenizer_config.json (of several, "default").
fn chat_template(tokenizer: &JsonFields, jinja: Option<Vec<u8>>) -> Result<Option<String>, Fault> {
    if let Some(bytes) = jinja {
        let text = std::str::from_utf8(&bytes);
        let text = text.map_err(|error| Fault::damaged("chat_template.jinja", error, "UTF-8 text"))?;
        return template(Some(text), "chat_template.jinja");
    }
    match tokenizer.get("chat_template") {
        None => Ok(None),
        Some(Value::String(text)) => template(Some(text), "chat_template"),
        Some(Value::Array(named)) => template(default_template(named), "chat_template"),
        Some(other) => Err(Fault::damaged(quoted("chat_template"), describe(other), "a string or a list")),
    }
}

fn default_template(named: &[Value]) -> Option<&str> {
    let default = named.iter().find(|entry| entry.get("name").and_then(Value::as_str) == Some("default"));
    default?.get("template")?.as_str()
}
