//! Tokenizers from Hugging Face's `tokenizer.json`: the byte-level BPE kind that code models use.

use super::gguf::split_merge;
use super::patterns::{GPT2, SMOLLM};
use super::vocab::reads_as_marker;
use super::{Parts, TokenKind, Tokenizer};
use crate::error::TextError;
use crate::limits::{MERGES_MAX, SPLIT_STAGES_MAX, TOKENIZER_JSON_BYTES_MAX, VOCAB_TOKENS_MAX};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

#[derive(serde::Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: List<AddedToken, VOCAB_TOKENS_MAX>,
    normalizer: Option<Step>,
    pre_tokenizer: Option<Step>,
    post_processor: Option<PostProcessor>,
    model: Model,
}

#[derive(serde::Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
}

/// A normalizer or pre-tokenizer: which fields there are depends on `kind`.
#[derive(serde::Deserialize)]
struct Step {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default, alias = "normalizers")]
    pretokenizers: List<Step, SPLIT_STAGES_MAX>,
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

#[derive(serde::Deserialize)]
enum Pattern {
    Regex(String),
    String(String),
}

/// Only what says which token comes before every text.
#[derive(serde::Deserialize)]
struct PostProcessor {
    #[serde(default)]
    single: List<Template, SPLIT_STAGES_MAX>,
    #[serde(default)]
    processors: List<PostProcessor, SPLIT_STAGES_MAX>,
}

#[derive(serde::Deserialize)]
struct Template {
    #[serde(rename = "SpecialToken")]
    special: Option<SpecialToken>,
}

#[derive(serde::Deserialize)]
struct SpecialToken {
    id: String,
}

#[derive(serde::Deserialize)]
struct Model {
    #[serde(rename = "type", default)]
    kind: String,
    vocab: Ids,
    merges: List<Merge, MERGES_MAX>,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
}

/// Newer files have pairs, older ones a line with a space in it.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Merge {
    Pair(String, String),
    Line(String),
}

/// A list that is refused as soon as it is longer than it may be.
struct List<T, const MAX: usize>(Vec<T>);

impl<T, const MAX: usize> Default for List<T, MAX> {
    fn default() -> Self {
        List(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for List<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

struct ListVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for ListVisitor<T, MAX> {
    type Value = List<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "a list of at most {MAX} entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            if items.len() >= MAX {
                return Err(serde::de::Error::invalid_length(items.len() + 1, &self));
            }
            items.push(item);
        }
        Ok(List(items))
    }
}

/// The vocabulary: tokens and their ids.
struct Ids(Vec<(String, u32)>);

impl<'de> Deserialize<'de> for Ids {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(IdsVisitor)
    }
}

struct IdsVisitor;

impl<'de> Visitor<'de> for IdsVisitor {
    type Value = Ids;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "at most {VOCAB_TOKENS_MAX} tokens with their ids")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ids, A::Error> {
        let mut ids = Vec::new();
        while let Some(entry) = map.next_entry()? {
            if ids.len() >= VOCAB_TOKENS_MAX {
                return Err(serde::de::Error::invalid_length(ids.len() + 1, &self));
            }
            ids.push(entry);
        }
        Ok(Ids(ids))
    }
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
        let bos = bos_of(file.post_processor.as_ref(), &file.added_tokens.0);
        Tokenizer::assemble(Parts {
            nfc: normalizes(file.normalizer.as_ref())?,
            whole_words: file.model.ignore_merges,
            entries: entries(file.model.vocab.0, file.added_tokens.0)?,
            merges: merges(file.model.merges.0)?,
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
        "Sequence" if step.pretokenizers.0.len() <= 1 => normalizes(step.pretokenizers.0.first()),
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
        "Sequence" => step.pretokenizers.0.iter().try_for_each(|step| collect_patterns(step, patterns))?,
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
fn bos_of(processor: Option<&PostProcessor>, added: &[AddedToken]) -> Option<u32> {
    let processor = processor?;
    let nested = processor.processors.0.iter().find_map(|p| p.single.0.first());
    let first = processor.single.0.first().or(nested)?;
    let literal = &first.special.as_ref()?.id;
    added.iter().find(|token| token.content == *literal).map(|token| token.id)
}

fn merges(merges: Vec<Merge>) -> Result<Vec<(String, String)>, TextError> {
    let pairs = merges.into_iter().enumerate().map(|(rank, merge)| match merge {
        Merge::Pair(left, right) => Ok((left, right)),
        Merge::Line(line) => split_merge(rank, &line),
    });
    pairs.collect()
}

/// All tokens in the order of their ids, with the holes between them.
fn entries(vocab: Vec<(String, u32)>, added: Vec<AddedToken>) -> Result<Vec<(String, TokenKind)>, TextError> {
    let highest =
        vocab.iter().map(|(_, id)| *id).chain(added.iter().map(|t| t.id)).max().unwrap_or(0) as usize;
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
