//! The vocabulary in GGUF metadata.

use super::super::error::{Fault, quoted};
use super::super::gguf::GgufMetadata;
use super::{GgufVocabulary, TokenizerSource, Vocabulary, template};

/// Keys of tokens after which an answer is over.
const END_KEYS: [&str; 3] = ["eos_token_id", "eot_token_id", "eom_token_id"];
const TOKEN_TYPES: std::ops::RangeInclusive<i64> = 0..=6;

/// `vocab`: rows of the embedding, which no token may reach beyond.
pub(in super::super) fn from_gguf(metadata: &GgufMetadata, vocab: usize) -> Result<TokenizerSource, Fault> {
    let keys = Keys { metadata };
    let vocabulary = keys.vocabulary(vocab)?;
    let id = |name| keys.token(name, vocabulary.tokens.len());
    let mut eos = Vec::new();
    for name in END_KEYS {
        eos.extend(id(name)?.filter(|id| !eos.contains(id)));
    }
    Ok(TokenizerSource {
        bos: id("bos_token_id")?,
        eos,
        add_bos: keys.metadata.flag(&Keys::key("add_bos_token"))?,
        add_eos: keys.metadata.flag(&Keys::key("add_eos_token"))?,
        chat_template: template(metadata.text("tokenizer.chat_template")?, "tokenizer.chat_template")?,
        vocabulary: Vocabulary::Gguf(vocabulary),
    })
}

struct Keys<'a> {
    metadata: &'a GgufMetadata,
}

impl Keys<'_> {
    fn key(name: &str) -> String {
        format!("tokenizer.ggml.{name}")
    }

    fn vocabulary(&self, vocab: usize) -> Result<GgufVocabulary, Fault> {
        let tokens = self.tokens(vocab)?;
        let len = tokens.len();
        Ok(GgufVocabulary {
            model: self.text("model")?.ok_or_else(|| missing("model", "a name"))?,
            pre: self.text("pre")?,
            types: self.types(len)?,
            scores: self.scores(len)?,
            merges: self.merges()?,
            unk: self.token("unknown_token_id", len)?,
            pad: self.token("padding_token_id", len)?,
            add_space_prefix: self.metadata.flag(&Keys::key("add_space_prefix"))?,
            tokens,
        })
    }

    fn text(&self, name: &str) -> Result<Option<String>, Fault> {
        Ok(self.metadata.text(&Keys::key(name))?.map(str::to_owned))
    }

    fn tokens(&self, vocab: usize) -> Result<Vec<String>, Fault> {
        let tokens = self.metadata.texts(&Keys::key("tokens"))?;
        let tokens = tokens.ok_or_else(|| missing("tokens", "an array of strings"))?;
        if tokens.is_empty() || tokens.len() > vocab {
            let found = format!("{} tokens", tokens.len());
            return Err(Fault::damaged(
                field("tokens"),
                found,
                format!("1 to {vocab}, the rows of the embedding"),
            ));
        }
        Ok(tokens)
    }

    fn types(&self, len: usize) -> Result<Vec<i32>, Fault> {
        let types = self.metadata.integers(&Keys::key("token_type"))?.unwrap_or_default();
        same_length("token_type", types.len(), len)?;
        match types.iter().find(|kind| !TOKEN_TYPES.contains(kind)) {
            Some(kind) => Err(Fault::damaged(field("token_type"), kind, "types from 0 to 6")),
            None => Ok(types.iter().map(|kind| *kind as i32).collect()),
        }
    }

    fn scores(&self, len: usize) -> Result<Vec<f32>, Fault> {
        let scores = self.metadata.floats(&Keys::key("scores"))?.unwrap_or_default();
        same_length("scores", scores.len(), len)?;
        match scores.iter().find(|score| score.is_nan()) {
            Some(score) => Err(Fault::damaged(field("scores"), score, "numbers")),
            None => Ok(scores),
        }
    }

    fn merges(&self) -> Result<Vec<String>, Fault> {
        let merges = self.metadata.texts(&Keys::key("merges"))?.unwrap_or_default();
        match merges.iter().find(|merge| !is_merge(merge)) {
            Some(merge) => {
                Err(Fault::damaged(field("merges"), quoted(merge), "two tokens with a space between"))
            }
            None => Ok(merges),
        }
    }

    /// A token's number; it must be in the vocabulary.
    fn token(&self, name: &str, tokens: usize) -> Result<Option<u32>, Fault> {
        match self.metadata.whole(&Keys::key(name))? {
            Some(id) if id >= tokens as u64 => {
                Err(Fault::damaged(field(name), id, format!("a token below {tokens}")))
            }
            id => Ok(id.map(|id| id as u32)),
        }
    }
}

/// A token may itself begin with a space, so the one that parts the two is the first after that.
fn is_merge(merge: &str) -> bool {
    let mut rest = merge.chars();
    rest.next();
    let rest = rest.as_str();
    rest.find(' ').is_some_and(|space| space + 1 < rest.len())
}

fn field(name: &str) -> String {
    quoted(&Keys::key(name)).to_string()
}

fn missing(name: &str, expected: &str) -> Fault {
    Fault::missing(field(name), expected)
}

fn same_length(name: &str, found: usize, tokens: usize) -> Result<(), Fault> {
    if found != 0 && found != tokens {
        let expected = format!("{tokens}, one for each token");
        return Err(Fault::damaged(field(name), format!("{found} long"), expected));
    }
    Ok(())
}
