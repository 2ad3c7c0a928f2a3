//! Opening a model: what its file says of text, as something that reads and writes text.
//!
//! `flint-engine` reads files and knows no text; `flint-text` knows text and reads no files. Whoever talks to
//! a model needs both, and finds them put together here.

#![forbid(unsafe_code)]

use flint_engine::constrain::{self, Piece};
use flint_engine::load::{GgufVocabulary, LoadError, ModelFile, TokenizerSource, Vocabulary};
use flint_text::{GgufVocab, Template, TextError, TokenKind, Tokenizer};
use std::sync::Arc;

/// What turns a model's tokens into text and back.
#[derive(Debug)]
pub struct ModelText {
    pub tokenizer: Tokenizer,
    pub template: Option<Template>, // none: the model only continues text
    pub stop_tokens: Vec<u32>,      // every token that ends an answer, ascending
}

/// Why a model's text side cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Text(#[from] TextError),
}

impl ModelText {
    pub fn read(file: &ModelFile) -> Result<ModelText, OpenError> {
        Ok(ModelText::new(file.tokenizer()?)?)
    }

    fn new(source: TokenizerSource) -> Result<ModelText, TextError> {
        let TokenizerSource { vocabulary, chat_template, bos, eos, add_bos, .. } = source;
        let tokenizer = match vocabulary {
            Vocabulary::Gguf(gguf) => Tokenizer::from_gguf(gguf_vocab(gguf, bos, &eos, add_bos))?,
            Vocabulary::Json(bytes) => Tokenizer::from_json(&bytes)?,
        };
        let template = chat_template.as_deref().map(Template::new).transpose()?;
        let mut stop_tokens = eos;
        stop_tokens.extend(tokenizer.eos_ids());
        stop_tokens.sort_unstable();
        stop_tokens.dedup();
        Ok(ModelText { tokenizer, template, stop_tokens })
    }

    /// The tokens of a text that is to be continued as it is.
    pub fn encode_raw(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let mut tokens = Vec::new();
        if self.tokenizer.add_bos() {
            tokens.extend(self.tokenizer.bos());
        }
        self.tokenizer.encode_text(text, &mut tokens)?;
        Ok(tokens)
    }
}

/// What all tokens spell and how text is cut into them, which constraints need to know.
pub fn vocabulary(tokenizer: &Arc<Tokenizer>) -> constrain::Vocabulary {
    let pieces = (0..tokenizer.vocab_size() as u32).map(|id| piece(tokenizer, id)).collect();
    let tokenizer = tokenizer.clone();
    let cut = move |text: &str| {
        let mut tokens = Vec::new();
        // What cannot be cut, because it is too long, is not guessed.
        let cut = tokenizer.encode_text(text, &mut tokens);
        cut.map_or(Vec::new(), |()| tokens)
    };
    constrain::Vocabulary { pieces, cut: Some(Arc::new(cut)) }
}

fn piece(tokenizer: &Tokenizer, id: u32) -> Piece {
    let bytes = tokenizer.token_bytes(id);
    match tokenizer.kind(id) {
        TokenKind::Text | TokenKind::Verbatim => Piece::Text(bytes.to_vec()),
        TokenKind::Marker | TokenKind::Control => Piece::Special(String::from_utf8_lossy(bytes).into_owned()),
        TokenKind::Unused => Piece::Unused,
    }
}

fn gguf_vocab(gguf: GgufVocabulary, bos: Option<u32>, ends: &[u32], add_bos: Option<bool>) -> GgufVocab {
    GgufVocab {
        model: gguf.model,
        pre: gguf.pre.unwrap_or_default(),
        tokens: gguf.tokens,
        types: gguf.types,
        merges: gguf.merges,
        scores: gguf.scores,
        bos,
        ends: ends.to_vec(),
        add_bos,
    }
}

#[cfg(test)]
mod tests;
