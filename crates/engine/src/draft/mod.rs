//! Guesses at the next tokens, which one forward pass then checks all at once.
//!
//! What is written next often stands somewhere already: in the file that is being edited, in what the caller
//! expects, in what was written before. A drafter follows such a source token by token (`index`), knows how
//! often it was right (`trust`), and what a wider forward pass costs is measured (`pace`); from these follows
//! how many guesses pay (`widths`). A guess never changes what is generated: each token is sampled from the
//! model's own logits, as if nobody had guessed, and the guesses behind the first wrong one are dropped.

mod index;
mod pace;
mod trust;
mod widths;

pub use pace::Pace;
pub use widths::share_out;

use crate::limits::{DRAFT_HISTORY_TOKENS_MAX, DRAFT_ROWS_MAX};
use index::{Match, SuffixIndex};
use trust::{Ground, Trust};

/// A source that was followed for so many tokens is worth coming back to when it is lost.
const ANCHOR_TOKENS_MIN: usize = 2;

/// A source is not given up for a better one when so many tokens speak for it.
const SETTLED_TOKENS: usize = 8;

/// Follows one generation. All memory is taken when it begins.
pub struct Drafter {
    index: SuffixIndex,
    source: Option<Match>, // whose token is expected next
    anchor: Option<usize>, // where a good source was left
    trust: Trust,
    forced: Option<u32>, // the token that the constraint was thought to force
}

/// What may come next.
#[derive(Debug, Clone, Default)]
pub struct Proposal {
    pub tokens: Vec<u32>,
    pub reach: Vec<f32>, // (tokens) the probability that all up to this one are right
}

impl Proposal {
    pub fn with_capacity(tokens: usize) -> Proposal {
        Proposal { tokens: Vec::with_capacity(tokens), reach: Vec::with_capacity(tokens) }
    }

    pub fn clear(&mut self) {
        self.tokens.clear();
        self.reach.clear();
    }

    fn push(&mut self, token: u32, trust: f32) {
        let before = self.reach.last().copied().unwrap_or(1.0);
        self.tokens.push(token);
        self.reach.push(before * trust);
    }
}

impl Drafter {
    /// Stands behind `history`, which may grow by `growth` tokens. A generation that has told nothing yet is
    /// expected to begin as the first reference does.
    pub fn new(references: &[Vec<u32>], history: &[u32], growth: usize, is_fresh: bool) -> Drafter {
        let history = &history[history.len().saturating_sub(DRAFT_HISTORY_TOKENS_MAX)..];
        let referred: usize = references.iter().map(|reference| reference.len() + 1).sum();
        let mut index = SuffixIndex::with_capacity(referred + history.len() + growth);
        for reference in references {
            reference.iter().for_each(|&token| index.push(token));
            index.separate();
        }
        history.iter().for_each(|&token| index.push(token));
        let expected = is_fresh && !references.is_empty();
        let source = if expected { Some(Match { place: 0, len: 0 }) } else { index.find(None) };
        Drafter { index, source, anchor: expected.then_some(0), trust: Trust::default(), forced: None }
    }

    /// Hears of a token of the generation.
    pub fn push(&mut self, token: u32) {
        if let Some(forced) = self.forced.take() {
            self.trust.note(Ground::Forced, forced == token);
        }
        let followed = self.source.take();
        if let Some(Match { place, len }) = followed {
            let right = self.index.token(place) == Some(token);
            self.trust.note(Ground::Match { len }, right);
            if right {
                self.source = Some(Match { place: place + 1, len: len + 1 });
            } else if len >= ANCHOR_TOKENS_MIN {
                self.anchor = Some(place);
            }
        }
        self.index.push(token);
        if self.source.is_none_or(|source| source.len < SETTLED_TOKENS) {
            self.look(followed);
        }
    }

    /// Takes up a better source. Where a good one was lost just now and nothing is found, its next token was
    /// perhaps replaced by another.
    fn look(&mut self, followed: Option<Match>) {
        let found = self.index.find(self.anchor);
        let better = found.filter(|found| self.source.is_none_or(|source| found.len > source.len));
        let lost = followed.filter(|lost| self.source.is_none() && lost.len >= ANCHOR_TOKENS_MIN);
        let replaced = lost.map(|lost| Match { place: lost.place + 1, len: 0 });
        self.source = better.or(self.source).or(replaced);
    }

    /// Guesses up to `room` tokens. `forced`: what the constraint seems to allow only.
    pub fn propose(&mut self, forced: &[u32], room: usize, proposal: &mut Proposal) {
        proposal.clear();
        let room = room.min(DRAFT_ROWS_MAX);
        self.forced = forced.first().copied();
        let agrees =
            self.continuation().map(|(token, _)| token).take(forced.len()).eq(forced.iter().copied());
        let by_force = forced.iter().map(|&token| (token, Ground::Forced));
        let by_source = self.continuation().skip(forced.len()).take_while(|_| agrees);
        for (token, ground) in by_force.chain(by_source).take(room) {
            proposal.push(token, self.trust.of(ground));
        }
    }

    /// The tokens of the source from where it is expected to go on. One that reaches the present goes on with
    /// what it has itself foretold: it repeats.
    fn continuation(&self) -> impl Iterator<Item = (u32, Ground)> {
        let len = self.index.len();
        self.source.into_iter().flat_map(move |source| {
            let period = len - source.place.min(len);
            let tokens = (0..).map_while(move |at| match period {
                0 => None,
                period => self.index.token(source.place + at % period),
            });
            tokens.zip(source.len..).map(|(token, len)| (token, Ground::Match { len }))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drafter(history: &[u32]) -> Drafter {
        Drafter::new(&[], history, 100, true)
    }

    fn guess(drafter: &mut Drafter, room: usize) -> Vec<u32> {
        let mut proposal = Proposal::default();
        drafter.propose(&[], room, &mut proposal);
        assert!(proposal.reach.is_sorted_by(|a, b| a >= b));
        proposal.tokens
    }

    fn write(drafter: &mut Drafter, tokens: &[u32]) {
        tokens.iter().for_each(|&token| drafter.push(token));
    }

    #[test]
    fn goes_on_as_it_went_on_before() {
        let mut drafter = drafter(&[1, 2, 3, 4, 5, 6, 7, 90, 2, 3]);
        assert_eq!(guess(&mut drafter, 3), [4, 5, 6]);
        write(&mut drafter, &[4, 5]);
        assert_eq!(guess(&mut drafter, 2), [6, 7]);
    }

    #[test]
    fn what_repeats_is_guessed_beyond_its_end() {
        let mut drafter = drafter(&[9, 1, 2, 3, 1, 2]);
        assert_eq!(guess(&mut drafter, 7), [3, 1, 2, 3, 1, 2, 3]);
    }

    #[test]
    fn the_first_reference_is_expected_from_its_first_token() {
        let references = [vec![5, 6, 7], vec![8, 9, 10, 11]];
        let mut drafter = Drafter::new(&references, &[1, 2], 100, true);
        assert_eq!(guess(&mut drafter, 9), [5, 6, 7]);
        write(&mut drafter, &[8, 9]);
        assert_eq!(guess(&mut drafter, 9), [10, 11]);
    }

    /// Old text 1..=40; each case writes some of the new text and says what is to be guessed then.
    #[test]
    fn an_edit_is_followed_again_at_once() {
        let old: Vec<u32> = (1..=40).chain([99]).collect();
        let cases: [(&str, &[u32], &[u32]); 5] = [
            ("a token replaced", &[1, 2, 3, 4, 77], &[6, 7]),
            ("two replaced by others", &[1, 2, 3, 4, 77, 78, 7], &[8, 9]),
            ("one inserted", &[1, 2, 3, 4, 77, 5], &[6, 7]),
            ("three left out", &[1, 2, 3, 4, 8], &[9, 10]),
            ("a long insertion", &[1, 2, 3, 4, 71, 72, 73, 74, 75, 76, 5], &[6, 7]),
        ];
        for (what, written, expected) in cases {
            let mut drafter = drafter(&old);
            write(&mut drafter, written);
            assert_eq!(guess(&mut drafter, 2), expected, "{what}");
        }
    }

    #[test]
    fn forced_tokens_come_first_and_the_source_follows_where_it_agrees() {
        let mut proposal = Proposal::default();
        let mut drafter = drafter(&[1, 2, 3, 4, 5, 1, 2]);
        drafter.propose(&[3, 4], 3, &mut proposal);
        assert_eq!(proposal.tokens, [3, 4, 5]);
        drafter.propose(&[3, 9], 3, &mut proposal);
        assert_eq!(proposal.tokens, [3, 9]);
    }

    #[test]
    fn only_the_end_of_a_long_history_is_looked_at() {
        let mut history = vec![7, 8, 9];
        history.extend((0..DRAFT_HISTORY_TOKENS_MAX as u32).map(|token| token + 100));
        history.extend([7, 8]);
        assert_eq!(guess(&mut drafter(&history), 3), [0; 0]);
    }
}
