//! Words that are one token of the vocabulary, which nearly all pieces of a text are.
//!
//! Between two turns everything here has left the processor's caches. So a place of the table holds a short word itself:
//! looking it up touches one line of memory, where a map of strings touches four.
//!
//! That a piece is spelled like a token does not mean that merging its bytes ends in that token. It nearly always
//! does; whether it does is found out the first time that the piece comes, and remembered.

use super::bpe::Bpe;
use foldhash::fast::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU8, Ordering};

#[derive(Debug, Default)]
pub(super) struct Words {
    slots: Vec<Slot>, // a power of two of them, two thirds full at most; a word stands where its hash says, or behind
    hasher: RandomState,
}

const SHORT_BYTES: usize = 10;

#[derive(Debug)]
#[repr(align(16))]
struct Slot {
    id: u32,
    len: u8, // of the word, if that is short
    merged: AtomicU8,
    short: [u8; SHORT_BYTES],
}

const NOBODY: u32 = u32::MAX;
const LONG: u8 = u8::MAX;

// What the bytes of a word merge to.
const UNKNOWN: u8 = 0;
const ITSELF: u8 = 1;
const OTHERS: u8 = 2;

impl Words {
    /// The words with these ids; of two that are spelled alike the latter. `spelled` tells what each is.
    pub(super) fn new<'a>(ids: &[u32], spelled: impl Fn(u32) -> &'a [u8]) -> Words {
        let count = (ids.len() + ids.len() / 2 + 1).next_power_of_two();
        let mut words = Words {
            slots: (0..count).map(|_| Slot::new(NOBODY, &[])).collect(),
            hasher: RandomState::default(),
        };
        for &id in ids {
            let at = words.place(spelled(id), &spelled);
            words.slots[at] = Slot::new(id, spelled(id));
        }
        words
    }

    pub(super) fn get<'a>(&self, word: &[u8], spelled: impl Fn(u32) -> &'a [u8]) -> Option<Word<'_>> {
        let slot = self.slots.get(self.place(word, spelled))?;
        (slot.id != NOBODY).then_some(Word { slot })
    }

    /// Where the word stands, or would stand.
    fn place<'a>(&self, word: &[u8], spelled: impl Fn(u32) -> &'a [u8]) -> usize {
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = self.hasher.hash_one(word) as usize & mask;
        while let Some(slot) = self.slots.get(at)
            && slot.id != NOBODY
            && !slot.is(word, &spelled)
        {
            at = (at + 1) & mask;
        }
        at
    }
}

impl Slot {
    fn new(id: u32, word: &[u8]) -> Slot {
        let mut short = [0; SHORT_BYTES];
        let len = match short.get_mut(..word.len()) {
            Some(place) => {
                place.copy_from_slice(word);
                word.len() as u8
            }
            None => LONG,
        };
        Slot { id, len, merged: AtomicU8::new(UNKNOWN), short }
    }

    fn is<'a>(&self, word: &[u8], spelled: impl Fn(u32) -> &'a [u8]) -> bool {
        match self.len {
            LONG => word.len() > SHORT_BYTES && spelled(self.id) == word,
            len => self.short[..usize::from(len)] == *word,
        }
    }
}

/// A word of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Word<'a> {
    slot: &'a Slot,
}

impl Word<'_> {
    pub(super) fn id(self) -> u32 {
        self.slot.id
    }

    /// Whether its bytes, which are those of `piece`, merge to it.
    pub(super) fn merges(self, bpe: &Bpe, piece: &[u8]) -> bool {
        match self.slot.merged.load(Ordering::Relaxed) {
            ITSELF => true,
            OTHERS => false,
            _ => {
                let mut ids = Vec::new();
                bpe.encode(piece, &mut ids);
                let itself = ids == [self.slot.id];
                self.slot.merged.store(if itself { ITSELF } else { OTHERS }, Ordering::Relaxed);
                itself
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn finds_what_a_map_finds(
            words in prop::collection::vec(prop::collection::vec(0u8..3, 0..14), 0..200),
            asked in prop::collection::vec(prop::collection::vec(0u8..3, 0..14), 0..50),
        ) {
            let ids: Vec<u32> = (0..words.len() as u32).collect();
            let spelled = |id: u32| words[id as usize].as_slice();
            let table = Words::new(&ids, spelled);
            let map: HashMap<&[u8], u32> = ids.iter().map(|&id| (spelled(id), id)).collect();
            for word in words.iter().chain(&asked) {
                let found = table.get(word, spelled).map(Word::id);
                prop_assert_eq!(found, map.get(word.as_slice()).copied());
            }
        }
    }

    #[test]
    fn an_empty_table_has_nothing() {
        assert!(Words::default().get(b"a", |_| b"").is_none());
    }
}
