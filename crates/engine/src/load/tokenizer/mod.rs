//! What a tokenizer is built from, out of the model's own files. Building it is another crate's work.

mod folder;
mod gguf;

pub(super) use folder::from_folder;
pub(super) use gguf::from_gguf;

use super::error::{Fault, quoted};
use crate::limits::TEMPLATE_BYTES_MAX;

/// A vocabulary, and how a conversation is laid out in it.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenizerSource {
    pub vocabulary: Vocabulary,
    pub chat_template: Option<String>,
    pub bos: Option<u32>,
    pub eos: Vec<u32>, // every token that ends an answer, the one that is called so first
    pub add_bos: Option<bool>, // a text begins with `bos`; `None`: the files do not say
    pub add_eos: Option<bool>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Vocabulary {
    Gguf(GgufVocabulary),
    /// The bytes of tokenizer.json.
    Json(Vec<u8>),
}

/// The `tokenizer.ggml.*` keys. Lists that are not empty are as long as `tokens`, but for `merges`.
#[derive(Debug, Clone, PartialEq)]
pub struct GgufVocabulary {
    pub model: String,       // "gpt2": byte-level BPE, "llama": SentencePiece
    pub pre: Option<String>, // which rules split text before BPE
    pub tokens: Vec<String>, // (vocabulary)
    pub types: Vec<i32>,     // (vocabulary) 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
    pub scores: Vec<f32>,    // (vocabulary)
    pub merges: Vec<String>, // "left right", the most frequent first
    pub unk: Option<u32>,
    pub pad: Option<u32>,
    pub add_space_prefix: Option<bool>,
}

/// Refuses a template that is longer than any real one.
fn template(text: Option<&str>, field: &str) -> Result<Option<String>, Fault> {
    match text {
        Some(text) if text.len() > TEMPLATE_BYTES_MAX => {
            let found = format!("{} bytes long", text.len());
            Err(Fault::damaged(quoted(field), found, format!("at most {TEMPLATE_BYTES_MAX} bytes")))
        }
        text => Ok(text.map(str::to_owned)),
    }
}
