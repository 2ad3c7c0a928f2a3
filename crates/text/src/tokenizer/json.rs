//! Tokenizers from Hugging Face's `tokenizer.json`: the byte-level BPE kind that code models use.

use super::gguf::split_merges;
use super::patterns::{GPT2, SMOLLM};
use super::vocab::reads_as_marker;
use super::{Parts, TokenKind, Tokenizer};
use crate::error::TextError;
use crate::limits::{MERGES_MAX, TOKENIZER_JSON_BYTES_MAX, VOCAB_TOKENS_MAX};
use serde::Deserialize;
use std::collections::HashMap;

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    normalizer: Option<Step>,
    pre_tokenizer: Option<Step>,
    post_processor: Option<serde_json::Value>,
    model: Model,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
}

/// A normalizer or pre-tokenizer: which fields there are depends on `kind`.
#[derive(Deserialize)]
struct Step {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default, alias = "normalizers")]
    pretokenizers: Vec<Step>,
    pattern: Option<Pattern>,
    behavior: Option<String>,
    #[serde(default)]
    invert: bool,
    #[serde(default)]
    add_prefix_space: bool,
    #[serde(default = "yes")]
    use_regex: bool,
    #[serde(default)]
    individual_digits: bool,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
enum Pattern {
    Regex(String),
    String(String),
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type", default)]
    kind: String,
    vocab: HashMap<String, u32>,
    merges: Merges,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Merges {
    Pairs(Vec<(String, String)>),
    Lines(Vec<String>),
}

impl Tokenizer {
    /// The tokenizer of a Hugging Face folder. Hostile files are an error that names the field.
    pub fn from_json(json: &[u8]) -> Result<Self, TextError> {
        if json.len() > TOKENIZER_JSON_BYTES_MAX {
            let problem = format!("{} bytes, at most {TOKENIZER_JSON_BYTES_MAX}", json.len());
            return Err(TextError::tokenizer("tokenizer.json", problem));
        }
        let file: File = serde_json::from_slice(json)
            .map_err(|error| TextError::tokenizer("tokenizer.json", error.to_string()))?;
        check_model(&file.model)?;
        let mut patterns = Vec::new();
        if let Some(step) = &file.pre_tokenizer {
            collect_patterns(step, &mut patterns)?;
        }
        let bos = bos_of(file.post_processor.as_ref(), &file.added_tokens);
        Tokenizer::assemble(Parts {
            nfc: normalizes(file.normalizer.as_ref())?,
            whole_words: file.model.ignore_merges,
            entries: entries(file.model.vocab, file.added_tokens)?,
            merges: merges(file.model.merges)?,
            patterns,
            bos,
            ends: Vec::new(),
            add_bos: bos.is_some(),
        })
    }
}

fn check_model(model: &Model) -> Result<(), TextError> {
    let affix = |affix: &Option<String>| affix.as_deref().is_some_and(|a| !a.is_empty());
    if !matches!(model.kind.as_str(), "" | "BPE") {
        let problem = format!("{:?} is not supported, only \"BPE\" is", model.kind);
        return Err(TextError::tokenizer("model.type", problem));
    }
    if model.byte_fallback || affix(&model.continuing_subword_prefix) || affix(&model.end_of_word_suffix) {
        let problem = "byte_fallback, continuing_subword_prefix and end_of_word_suffix are not supported";
        return Err(TextError::tokenizer("model", problem));
    }
    Ok(())
}

fn normalizes(step: Option<&Step>) -> Result<bool, TextError> {
    let Some(step) = step else { return Ok(false) };
    match step.kind.as_str() {
        "NFC" => Ok(true),
        "Sequence" if step.pretokenizers.is_empty() => Ok(false),
        "Sequence" if step.pretokenizers.len() == 1 => normalizes(step.pretokenizers.first()),
        kind => {
            Err(TextError::tokenizer("normalizer", format!("{kind:?} is not supported, only NFC or none is")))
        }
    }
}

/// The patterns of a pre-tokenizer, in the order in which they apply.
fn collect_patterns(step: &Step, patterns: &mut Vec<String>) -> Result<(), TextError> {
    let unsupported =
        |what: &str| Err(TextError::tokenizer("pre_tokenizer", format!("{what} is not supported")));
    match step.kind.as_str() {
        "Sequence" => step.pretokenizers.iter().try_for_each(|step| collect_patterns(step, patterns))?,
        "ByteLevel" if step.add_prefix_space => return unsupported("add_prefix_space"),
        "ByteLevel" if step.use_regex => patterns.push(GPT2[0].to_owned()),
        "ByteLevel" => {}
        "Digits" if step.individual_digits => patterns.push(SMOLLM[0].to_owned()),
        "Digits" => patterns.push(r"\p{N}+".to_owned()),
        "Split" if step.invert || step.behavior.as_deref() != Some("Isolated") => {
            return unsupported("a split other than \"Isolated\"");
        }
        "Split" => match &step.pattern {
            Some(Pattern::Regex(pattern)) => patterns.push(pattern.clone()),
            Some(Pattern::String(literal)) => patterns.push(literal_pattern(literal)),
            None => return unsupported("a split without a pattern"),
        },
        kind => return unsupported(&format!("the step {kind:?}")),
    }
    Ok(())
}

/// A pattern that matches `literal` and nothing else.
fn literal_pattern(literal: &str) -> String {
    literal.chars().map(|c| format!("\\x{{{:x}}}", c as u32)).collect()
}

/// The token that the post-processor puts before every text, if it does.
fn bos_of(post_processor: Option<&serde_json::Value>, added: &[AddedToken]) -> Option<u32> {
    let processor = post_processor?;
    let list = processor.get("processors").and_then(|p| p.as_array());
    let single =
        std::iter::once(processor).chain(list.into_iter().flatten()).find_map(|p| p.get("single"))?;
    let literal = single.get(0)?.get("SpecialToken")?.get("id")?.as_str()?;
    added.iter().find(|token| token.content == literal).map(|token| token.id)
}

fn merges(merges: Merges) -> Result<Vec<(String, String)>, TextError> {
    match merges {
        Merges::Lines(lines) => split_merges(&lines),
        Merges::Pairs(pairs) if pairs.len() <= MERGES_MAX => Ok(pairs),
        Merges::Pairs(pairs) => {
            Err(TextError::tokenizer("model.merges", format!("{} merges, at most {MERGES_MAX}", pairs.len())))
        }
    }
}

/// All tokens in the order of their ids, with the holes between them.
fn entries(
    vocab: HashMap<String, u32>,
    added: Vec<AddedToken>,
) -> Result<Vec<(String, TokenKind)>, TextError> {
    let highest = vocab.values().copied().chain(added.iter().map(|t| t.id)).max().unwrap_or(0) as usize;
    if highest >= VOCAB_TOKENS_MAX {
        let problem = format!("the highest id is {highest}, expected below {VOCAB_TOKENS_MAX}");
        return Err(TextError::tokenizer("model.vocab", problem));
    }
    let mut entries = vec![(String::new(), TokenKind::Unused); highest + 1];
    for (token, id) in vocab {
        entries[id as usize] = (token, TokenKind::Text);
    }
    for token in added {
        let kind = match (token.special, reads_as_marker(&token.content)) {
            (true, _) => TokenKind::Control,
            (false, true) => TokenKind::Marker,
            (false, false) => TokenKind::Verbatim,
        };
        entries[token.id as usize] = (token.content, kind);
    }
    Ok(entries)
}
