//! The table of tokens: what each id spells, and whether text may become it.

use super::bytes::ByteAlphabet;
use super::words::{Word, Words};
use crate::error::TextError;
use crate::limits::{TOKEN_BYTES_MAX, VOCAB_TOKENS_MAX};
use foldhash::HashMap;

/// What a token is to the text around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// A piece of ordinary text.
    Text,
    /// Text that the vocabulary holds whole, such as a run of spaces; found before anything is split.
    Verbatim,
    /// Part of the conversation's format that reads as text, such as `<tool_call>`: written by
    /// templates and models, never made from user text.
    Marker,
    /// A control token such as `<|im_end|>`: as `Marker`, and never shown.
    Control,
    /// A hole in the vocabulary.
    Unused,
}

#[derive(Debug)]
pub(super) struct Vocab {
    bytes: Vec<u8>,                            // of all tokens, one after the other
    ends: Vec<u32>,                            // (tokens) where each one ends in `bytes`
    kinds: Vec<TokenKind>,                     // (tokens)
    words: Words,                              // tokens of kind `Text`
    pub(super) literals: HashMap<String, u32>, // tokens of kind `Verbatim`, `Marker` and `Control`
}

impl Vocab {
    /// `entries` in the order of their ids; text is in the byte alphabet, all else is as it reads.
    pub(super) fn new(entries: impl Iterator<Item = (String, TokenKind)>) -> Result<Self, TextError> {
        let alphabet = ByteAlphabet::new();
        let mut vocab = Vocab {
            bytes: Vec::new(),
            ends: Vec::new(),
            kinds: Vec::new(),
            words: Words::default(),
            literals: HashMap::default(),
        };
        for (token, kind) in entries {
            vocab.push(&alphabet, token, kind)?;
        }
        if vocab.ends.is_empty() {
            return Err(TextError::tokenizer("tokens", "the vocabulary is empty"));
        }
        let is_word = |id: &u32| vocab.kind(*id) == TokenKind::Text;
        let ids: Vec<u32> = (0..vocab.len() as u32).filter(is_word).collect();
        vocab.words = Words::new(&ids, |id| vocab.bytes(id));
        Ok(vocab)
    }

    fn push(&mut self, alphabet: &ByteAlphabet, token: String, kind: TokenKind) -> Result<(), TextError> {
        let id = self.ends.len();
        if id >= VOCAB_TOKENS_MAX || token.len() > TOKEN_BYTES_MAX {
            let problem = format!(
                "token {id} has {} bytes; at most {VOCAB_TOKENS_MAX} tokens of {TOKEN_BYTES_MAX} bytes fit",
                token.len()
            );
            return Err(TextError::tokenizer("tokens", problem));
        }
        let spelled = match kind {
            TokenKind::Text => alphabet.decode(&token).unwrap_or_else(|| token.as_bytes().to_vec()),
            _ => token.as_bytes().to_vec(),
        };
        self.bytes.extend_from_slice(&spelled);
        self.ends.push(self.bytes.len() as u32);
        self.kinds.push(kind);
        match kind {
            TokenKind::Verbatim | TokenKind::Marker | TokenKind::Control => {
                self.literals.insert(token, id as u32);
            }
            TokenKind::Text | TokenKind::Unused => {}
        }
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The bytes of a token; none for an id that is not of this vocabulary.
    pub(super) fn bytes(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else { return &[] };
        let start = id.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..end as usize]
    }

    /// The token of kind `Text` that is spelled so.
    pub(super) fn word(&self, spelled: &[u8]) -> Option<Word<'_>> {
        self.words.get(spelled, |id| self.bytes(id))
    }

    pub(super) fn kind(&self, id: u32) -> TokenKind {
        self.kinds.get(id as usize).copied().unwrap_or(TokenKind::Unused)
    }

    /// The literals of the given kinds.
    pub(super) fn literals(&self, kinds: &[TokenKind]) -> impl Iterator<Item = String> {
        let mut found: Vec<_> =
            self.literals.iter().filter(|(_, id)| kinds.contains(&self.kind(**id))).collect();
        found.sort_by_key(|(_, id)| **id);
        found.into_iter().map(|(literal, _)| literal.clone()).collect::<Vec<_>>().into_iter()
    }
}

/// Whether an added token that is not called special is part of a conversation's format all the same:
/// `<tool_call>`, `<|fim_prefix|>`, `[INST]`.
pub(super) fn reads_as_marker(token: &str) -> bool {
    let bracketed = |open, close| token.len() > 2 && token.starts_with(open) && token.ends_with(close);
    bracketed('<', '>') || bracketed('[', ']')
}
