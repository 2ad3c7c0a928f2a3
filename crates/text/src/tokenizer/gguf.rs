//! Tokenizers from the metadata of a GGUF file.

use super::patterns::{Preparation, preparation};
use super::vocab::reads_as_marker;
use super::{Parts, TokenKind, Tokenizer};
use crate::error::TextError;
use crate::limits::MERGES_MAX;

/// The `tokenizer.ggml.*` metadata, as the file has it.
#[derive(Debug, Clone, Default)]
pub struct GgufVocab {
    pub model: String,         // tokenizer.ggml.model
    pub pre: String,           // tokenizer.ggml.pre, empty when missing
    pub tokens: Vec<String>,   // (tokens)
    pub types: Vec<i32>,       // (tokens) or empty: all ordinary
    pub merges: Vec<String>,   // "left right", best first
    pub scores: Vec<f32>,      // (tokens) or empty; only for the model "llama"
    pub bos: Option<u32>,      // tokenizer.ggml.bos_token_id
    pub ends: Vec<u32>,        // tokenizer.ggml.{eos,eot,eom}_token_id: those that there are, in this order
    pub add_bos: Option<bool>, // tokenizer.ggml.add_bos_token
}

impl Tokenizer {
    /// The tokenizer of a GGUF file. Hostile metadata is an error that names the key.
    pub fn from_gguf(gguf: GgufVocab) -> Result<Self, TextError> {
        if gguf.model != "gpt2" {
            let problem = format!("{:?} is not supported, only \"gpt2\" (byte-level BPE) is", gguf.model);
            return Err(TextError::tokenizer("tokenizer.ggml.model", problem));
        }
        let Preparation { patterns, nfc, whole_words, add_bos } = preparation(&gguf.pre)?;
        let kinds = kinds(&gguf)?;
        Tokenizer::assemble(Parts {
            entries: gguf.tokens.into_iter().zip(kinds).collect(),
            merges: split_merges(&gguf.merges)?,
            patterns: patterns.iter().map(|&p| p.to_owned()).collect(),
            nfc,
            whole_words,
            bos: gguf.bos,
            ends: gguf.ends,
            add_bos: gguf.add_bos.unwrap_or(add_bos),
        })
    }
}

fn kinds(gguf: &GgufVocab) -> Result<Vec<TokenKind>, TextError> {
    if gguf.types.is_empty() {
        return Ok(vec![TokenKind::Text; gguf.tokens.len()]);
    }
    if gguf.types.len() != gguf.tokens.len() {
        let problem = format!("{} entries for {} tokens", gguf.types.len(), gguf.tokens.len());
        return Err(TextError::tokenizer("tokenizer.ggml.token_type", problem));
    }
    gguf.tokens
        .iter()
        .zip(&gguf.types)
        .enumerate()
        .map(|(id, (token, &kind))| gguf_kind(id, token, kind))
        .collect()
}

/// The numbers are GGUF's: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
fn gguf_kind(id: usize, token: &str, kind: i32) -> Result<TokenKind, TextError> {
    match kind {
        1 | 6 => Ok(TokenKind::Text),
        2 | 3 => Ok(TokenKind::Control),
        4 if reads_as_marker(token) => Ok(TokenKind::Marker),
        4 => Ok(TokenKind::Verbatim),
        0 | 5 => Ok(TokenKind::Unused),
        _ => {
            let problem = format!("token {id} has the type {kind}, expected 0 to 6");
            Err(TextError::tokenizer("tokenizer.ggml.token_type", problem))
        }
    }
}

fn split_merges(merges: &[String]) -> Result<Vec<(String, String)>, TextError> {
    if merges.len() > MERGES_MAX {
        let problem = format!("{} merges, at most {MERGES_MAX}", merges.len());
        return Err(TextError::tokenizer("tokenizer.ggml.merges", problem));
    }
    merges.iter().enumerate().map(|(rank, line)| split_merge(rank, line)).collect()
}

/// The two sides of a merge. Neither can hold a space: the byte alphabet writes it otherwise.
pub(super) fn split_merge(rank: usize, line: &str) -> Result<(String, String), TextError> {
    match line.split_once(' ') {
        Some((left, right)) => Ok((left.to_owned(), right.to_owned())),
        None => Err(TextError::tokenizer("merges", format!("merge {rank} is {line:?}, expected two parts"))),
    }
}
