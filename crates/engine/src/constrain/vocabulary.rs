//! What each token spells, as the masks need it.

use llguidance::toktrie::{INVALID_TOKEN, TokEnv, TokRxInfo, TokTrie, TokenizerEnv};
use std::sync::Arc;

/// All tokens of a model, in the order of their ids.
#[derive(Clone, Default)]
pub struct Vocabulary {
    pub pieces: Vec<Piece>,
    pub cut: Option<Cut>,
}

/// Cuts text into tokens as the model has seen it cut. Without it, the longest piece comes first.
pub type Cut = Arc<dyn Fn(&str) -> Vec<u32> + Send + Sync>;

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
        Arc::new(Speller { trie: TokTrie::from(&info, &words), cut: self.cut.clone() })
    }
}

/// Both ways between text and tokens.
struct Speller {
    trie: TokTrie,
    cut: Option<Cut>,
}

impl TokenizerEnv for Speller {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        match (&self.cut, std::str::from_utf8(bytes)) {
            (Some(cut), Ok(text)) => cut(text),
            _ => self.trie.greedy_tokenize(bytes),
        }
    }

    /// What models write need not be what the tokenizer would make of it, and all of it is allowed.
    fn tokenize_is_canonical(&self) -> bool {
        false
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
