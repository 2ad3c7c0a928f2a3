//! A pattern as far as it is about ASCII, which is nearly all of the text that coding is about: a table small enough to be
//! made whole at load, and a loop of one look-up a byte.

use crate::limits::ASCII_AUTOMATON_BYTES_MAX;
use regex_automata::Anchored;
use regex_automata::dfa::dense::{self, Config, DFA};
use regex_automata::dfa::{Automaton, StartKind};
use regex_automata::nfa::thompson::NFA;
use regex_automata::util::primitives::StateID;

#[derive(Debug)]
pub(super) struct Ascii {
    table: DFA<Vec<u32>>, // gives up at the first byte of another character
    start: StateID,
}

impl Ascii {
    /// None for a pattern whose table would be large, or that looks at what stands before it.
    pub(super) fn new(nfa: &NFA) -> Option<Ascii> {
        let limit = Some(ASCII_AUTOMATON_BYTES_MAX);
        let config = Config::new()
            .start_kind(StartKind::Anchored)
            .accelerate(false)
            .dfa_size_limit(limit)
            .determinize_size_limit(limit);
        let config = (0x80..=0xFF).fold(config, |config, byte| config.quit(byte, true));
        let table = dense::Builder::new().configure(config).build_from_nfa(nfa).ok()?;
        let start = table.universal_start_state(Anchored::Yes)?;
        Some(Ascii { table, start })
    }

    /// Where the match ends that begins at `from`, and which pattern it is of. None also if another character than ASCII
    /// stands in it or right behind it.
    #[inline]
    pub(super) fn match_at(&self, text: &str, from: usize) -> Option<(usize, usize)> {
        let (mut state, mut found) = (self.start, None);
        for (at, &byte) in text.as_bytes().iter().enumerate().skip(from) {
            state = self.table.next_state(state, byte);
            if !self.table.is_special_state(state) {
                continue;
            }
            // A match is known one byte after its end.
            match self.table.is_match_state(state) {
                true => found = Some((at, self.table.match_pattern(state, 0).as_usize())),
                false if self.table.is_dead_state(state) => return found,
                false => return None,
            }
        }
        state = self.table.next_eoi_state(state);
        match self.table.is_match_state(state) {
            true => Some((text.len(), self.table.match_pattern(state, 0).as_usize())),
            false => found,
        }
    }
}
