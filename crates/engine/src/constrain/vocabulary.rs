//! What each token spells, as the masks need it.

use llguidance::toktrie::{ApproximateTokEnv, INVALID_TOKEN, TokEnv, TokRxInfo, TokTrie};
use std::sync::Arc;

/// All tokens of a model, in the order of their ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vocabulary {
    pub pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    Text(Vec<u8>),
    /// A control token or marker, such as `<tool_call>`: only a reference to it in the grammar allows it.
    Special(String),
    /// Never allowed.
    Unused,
}

impl Vocabulary {
    /// The trie of all tokens, filled up to the `count` of logits that the model has. Which tokens end a
    /// generation is known to each generation only: here none does.
    pub(super) fn token_env(&self, count: usize) -> TokEnv {
        let unused = std::iter::repeat(&Piece::Unused);
        let words: Vec<Vec<u8>> = self.pieces.iter().chain(unused).take(count).map(Piece::word).collect();
        let info = TokRxInfo::new(words.len() as u32, INVALID_TOKEN);
        Arc::new(ApproximateTokEnv::new(TokTrie::from(&info, &words)))
    }
}

impl Piece {
    /// How toktrie spells it: a byte that is in no text marks what is special.
    fn word(&self) -> Vec<u8> {
        const MARK: u8 = TokTrie::SPECIAL_TOKEN_MARKER;
        match self {
            Piece::Text(bytes) if bytes.contains(&MARK) || bytes.len() > TRIE_DEPTH_MAX => Vec::new(),
            Piece::Text(bytes) => bytes.clone(),
            Piece::Special(name) if name.len() < TRIE_DEPTH_MAX => [&[MARK], name.as_bytes()].concat(),
            Piece::Special(_) | Piece::Unused => Vec::new(),
        }
    }
}

/// Bytes of a token beyond which toktrie gives up.
const TRIE_DEPTH_MAX: usize = 1000;
