//! Text to token ids and back, exactly as the model was trained.
//!
//! The tokenizers of the models that Flint runs are all byte-level BPE: normalize, split by a pattern,
//! merge pairs of bytes. That is written here by hand rather than taken from the crate `tokenizers`,
//! because that crate panics on merges that spell no token, silently stops splitting when its
//! backtracking pattern engine gives up, allocates a string for every token, and brings some sixty crates.
//! It is the reference instead: `golden/` holds digests of its ids for more than a megabyte of text.
//!
//! Two ways lead to ids. `encode_text` is for what people, files and tools wrote: it never yields a
//! control token, so the text `<|im_end|>` is ordinary pieces. `encode_segments` is for prompts, where
//! control tokens are segments of their own.

mod ascii;
mod bpe;
mod bytes;
mod gguf;
mod json;
mod patterns;
mod split;
mod vocab;
mod words;

pub use gguf::GgufVocab;
pub use vocab::TokenKind;

use crate::error::TextError;
use crate::limits::ENCODE_BYTES_MAX;
use crate::segment::{Controls, Segment};
use bpe::{Bpe, Merge};
use foldhash::{HashMap, HashMapExt};
use split::Splitter;
use std::borrow::Cow;
use unicode_normalization::{UnicodeNormalization, is_nfc};
use vocab::Vocab;
use words::Word;

/// A model's tokenizer. Shared by all sequences; nothing that it says changes.
#[derive(Debug)]
pub struct Tokenizer {
    vocab: Vocab,
    bpe: Bpe,
    splitter: Splitter,
    nfc: bool,
    whole_words: bool,
    verbatim: Controls, // literals that stand for one token even in plain text
    controls: Controls, // literals that only segments can write
    bos: Option<u32>,
    eos: Option<u32>, // the one that templates write
    add_bos: bool,
    ends: Vec<u32>, // tokens that end a turn, ascending
}

/// What a tokenizer is made of, whatever file it came from.
struct Parts {
    entries: Vec<(String, TokenKind)>, // (tokens)
    merges: Vec<(String, String)>,     // best first
    patterns: Vec<String>,
    nfc: bool,
    whole_words: bool,
    bos: Option<u32>,
    ends: Vec<u32>, // those that the file names, the usual one first
    add_bos: bool,
}

/// Control tokens that end a turn in the formats of the supported models. Files name only one of them.
const TURN_ENDS: [&str; 8] = [
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|return|>",
    "<|call|>",
    "</s>",
];

impl Tokenizer {
    fn assemble(parts: Parts) -> Result<Self, TextError> {
        let patterns: Vec<&str> = parts.patterns.iter().map(String::as_str).collect();
        let splitter = Splitter::new(&patterns)?;
        let vocab = Vocab::new(parts.entries.into_iter())?;
        let bpe = build_bpe(&vocab, &parts.merges)?;
        let known = |id: &u32| (*id as usize) < vocab.len();
        let mut ends: Vec<u32> = parts.ends.into_iter().filter(known).collect();
        let named = ends.first().copied();
        ends.extend(TURN_ENDS.iter().filter_map(|literal| vocab.literals.get(*literal)));
        let eos = named.or(ends.first().copied());
        ends.sort_unstable();
        ends.dedup();
        let bos = parts.bos.filter(known);
        Ok(Tokenizer {
            verbatim: Controls::new(vocab.literals(&[TokenKind::Verbatim])),
            controls: Controls::new(vocab.literals(&[TokenKind::Marker, TokenKind::Control])),
            add_bos: parts.add_bos && bos.is_some(),
            nfc: parts.nfc,
            whole_words: parts.whole_words,
            splitter,
            vocab,
            bpe,
            bos,
            eos,
            ends,
        })
    }

    /// Appends the ids of plain text. None of them is a control token or a marker, whatever `text` spells.
    pub fn encode_text(&self, text: &str, out: &mut Vec<u32>) -> Result<(), TextError> {
        if text.len() > ENCODE_BYTES_MAX {
            let problem =
                format!("{} bytes of text, at most {ENCODE_BYTES_MAX} are encoded at once", text.len());
            return Err(TextError::input("prompt", problem));
        }
        let mut rest = text;
        while let Some(found) = self.verbatim.find(rest) {
            self.encode_ordinary(&rest[..found.start], out);
            out.extend(self.vocab.literals.get(&rest[found.clone()]));
            rest = &rest[found.end..];
        }
        self.encode_ordinary(rest, out);
        Ok(())
    }

    fn encode_ordinary(&self, text: &str, out: &mut Vec<u32>) {
        let text =
            if self.nfc && !is_nfc(text) { Cow::Owned(text.nfc().collect()) } else { Cow::Borrowed(text) };
        self.splitter.split(&text, &mut |piece| self.encode_piece(piece.as_bytes(), out));
    }

    fn encode_piece(&self, piece: &[u8], out: &mut Vec<u32>) {
        match self.vocab.word(piece) {
            Some(word) if self.whole_words || word.merges(&self.bpe, piece) => out.push(word.id()),
            _ => self.bpe.encode(piece, out),
        }
    }

    /// Appends the ids of a prompt.
    pub fn encode_segments(&self, segments: &[Segment], out: &mut Vec<u32>) -> Result<(), TextError> {
        for segment in segments {
            match segment {
                Segment::Text(text) => self.encode_text(text, out)?,
                Segment::Control(literal) => out.push(self.control_id(literal).ok_or_else(|| {
                    TextError::tokenizer("tokens", format!("the vocabulary has no control token {literal:?}"))
                })?),
            }
        }
        Ok(())
    }

    /// The id of a control token or marker.
    pub fn control_id(&self, literal: &str) -> Option<u32> {
        self.vocab.literals.get(literal).copied().filter(|&id| self.kind(id) != TokenKind::Verbatim)
    }

    /// The text of `ids`, without control tokens; bytes that are no character become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut detokenizer = crate::Detokenizer::new();
        let mut text = String::new();
        for &id in ids {
            text.push_str(detokenizer.push(self, id));
        }
        text.push_str(detokenizer.finish());
        text
    }

    /// What a token spells; nothing for an id that is not of this vocabulary.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.vocab.bytes(id)
    }

    pub fn kind(&self, id: u32) -> TokenKind {
        self.vocab.kind(id)
    }

    /// Whether the token is never shown: a control token, or none at all.
    pub fn is_control(&self, id: u32) -> bool {
        matches!(self.kind(id), TokenKind::Control | TokenKind::Unused)
    }

    /// Literals that only templates and models may write.
    pub fn controls(&self) -> &Controls {
        &self.controls
    }

    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The end of a turn as templates write it.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Whether a raw prompt (one without a template) begins with `bos`.
    pub fn add_bos(&self) -> bool {
        self.add_bos
    }

    /// The tokens that end a turn, ascending.
    pub fn eos_ids(&self) -> &[u32] {
        &self.ends
    }
}

fn build_bpe(vocab: &Vocab, merges: &[(String, String)]) -> Result<Bpe, TextError> {
    let byte_ids: Vec<Option<u32>> = (0..=255u8).map(|byte| vocab.word(&[byte]).map(Word::id)).collect();
    if let Some(missing) = (b' '..=b'~').find(|&byte| byte_ids[usize::from(byte)].is_none()) {
        let problem =
            format!("no token for {:?}; every printable ASCII character needs one", char::from(missing));
        return Err(TextError::tokenizer("tokens", problem));
    }
    let alphabet = bytes::ByteAlphabet::new();
    let mut rules = HashMap::with_capacity(merges.len());
    for (rank, (left, right)) in merges.iter().enumerate() {
        let (pair, id) = merge_ids(vocab, &alphabet, left, right).ok_or_else(|| {
            let problem =
                format!("merge {rank}, {left:?} with {right:?}, is not of tokens of the vocabulary");
            TextError::tokenizer("merges", problem)
        })?;
        rules.insert(pair, Merge { rank: rank as u32, id });
    }
    Ok(Bpe { byte_ids, merges: rules })
}

/// The ids of both sides of a merge, and of what they make.
fn merge_ids(
    vocab: &Vocab,
    alphabet: &bytes::ByteAlphabet,
    left: &str,
    right: &str,
) -> Option<((u32, u32), u32)> {
    let mut spelled = alphabet.decode(left)?;
    let id = |spelled: &[u8]| vocab.word(spelled).map(Word::id);
    let left = id(&spelled)?;
    let right = alphabet.decode(right)?;
    spelled.extend_from_slice(&right);
    Some(((left, id(&right)?), id(&spelled)?))
}
