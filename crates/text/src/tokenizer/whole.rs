//! Words that are one token of the vocabulary, which nearly all pieces of a text are.
//!
//! That a piece is spelled like a token does not mean that merging its bytes ends in that token. It nearly always
//! does; whether it does is found out the first time that the piece comes, and remembered.

use super::bpe::Bpe;
use std::sync::atomic::{AtomicU8, Ordering};

const UNKNOWN: u8 = 0;
const ITSELF: u8 = 1;
const OTHERS: u8 = 2;

#[derive(Debug)]
pub(super) struct WholeWords {
    states: Vec<AtomicU8>, // (tokens) what the token's bytes merge to
}

impl WholeWords {
    pub(super) fn new(tokens: usize) -> WholeWords {
        WholeWords { states: (0..tokens).map(|_| AtomicU8::new(UNKNOWN)).collect() }
    }

    /// Whether `piece`, which is spelled like the token `id`, merges to it.
    pub(super) fn merges_to(&self, bpe: &Bpe, piece: &[u8], id: u32) -> bool {
        let Some(state) = self.states.get(id as usize) else { return false };
        match state.load(Ordering::Relaxed) {
            ITSELF => true,
            OTHERS => false,
            _ => {
                let mut ids = Vec::new();
                bpe.encode(piece, &mut ids);
                let itself = ids == [id];
                state.store(if itself { ITSELF } else { OTHERS }, Ordering::Relaxed);
                itself
            }
        }
    }
}
