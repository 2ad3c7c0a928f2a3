//! Finds where the last few tokens have stood before: hash chains over short runs of tokens, as in LZ77.
//!
//! Each token costs a bounded amount of work, and all memory is taken at the start.

use crate::limits::{DRAFT_CANDIDATES_MAX, DRAFT_MATCH_TOKENS_MAX};

/// Between two texts; no token is equal to it.
const SEPARATOR: u32 = u32::MAX;

/// Runs of this many tokens are looked up; the shorter ones when the longer are not found.
const LONG_TOKENS: usize = 4;
const SHORT_TOKENS: usize = 2;

/// A match within so many tokens behind the anchor is preferred to one that is longer by the bonus.
const NEAR_TOKENS: usize = 64;
const NEAR_BONUS_TOKENS: usize = 8;

/// A single token is looked for within so many tokens behind the anchor.
const CLOSE_TOKENS: usize = 16;

/// References and a history, one after the other, and where each short run of tokens stands in them.
///
/// A *place* is a position in `text`; a run of tokens is known by the place behind it.
pub(super) struct SuffixIndex {
    text: Vec<u32>,
    long: Chains,
    short: Chains,
}

/// All places behind runs of `len` tokens, those with the same hash in one chain, latest first.
struct Chains {
    len: usize,
    heads: Vec<u32>,  // (power of two) latest place of each hash; 0: none
    before: Vec<u32>, // (text) the place before the one behind this token, in its chain
}

/// A place where the text goes on as it may go on at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) place: usize,
    pub(super) len: usize, // tokens before it that are equal to the last ones
}

impl SuffixIndex {
    /// Empty, with memory for so many tokens, separators included.
    pub(super) fn with_capacity(tokens: usize) -> SuffixIndex {
        SuffixIndex {
            text: Vec::with_capacity(tokens),
            long: Chains::with_capacity(LONG_TOKENS, tokens),
            short: Chains::with_capacity(SHORT_TOKENS, tokens),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    pub(super) fn push(&mut self, token: u32) {
        self.text.push(token);
        self.long.add(&self.text);
        self.short.add(&self.text);
    }

    /// Ends one text: nothing goes on from it into the next.
    pub(super) fn separate(&mut self) {
        self.push(SEPARATOR);
    }

    /// The token at a place; none at the end of a text.
    pub(super) fn token(&self, place: usize) -> Option<u32> {
        self.text.get(place).copied().filter(|&token| token != SEPARATOR)
    }

    /// The best earlier place: the longest match, but rather one just behind `anchor`.
    pub(super) fn find(&self, anchor: Option<usize>) -> Option<Match> {
        let best = |chains: &Chains| {
            let places = chains.places(self.len()).take(DRAFT_CANDIDATES_MAX);
            let matches = places.map(|place| Match { place, len: self.agreement(place) });
            let matches = matches.filter(|found| found.len >= chains.len);
            matches.max_by_key(|found| (found.len + bonus(found.place, anchor), found.place))
        };
        best(&self.long).or_else(|| best(&self.short)).or_else(|| self.find_token(anchor?))
    }

    /// The last token alone, close behind the anchor.
    fn find_token(&self, anchor: usize) -> Option<Match> {
        let (&last, before) = self.text.split_last()?;
        let close = before.get(anchor..)?.iter().take(CLOSE_TOKENS);
        let found = close.take_while(|&&token| token != SEPARATOR).position(|&token| token == last)?;
        Some(Match { place: anchor + found + 1, len: 1 })
    }

    /// How many tokens before `place` are equal to the last ones.
    fn agreement(&self, place: usize) -> usize {
        let earlier = self.text[..place].iter().rev();
        let pairs = earlier.zip(self.text.iter().rev()).take(DRAFT_MATCH_TOKENS_MAX);
        pairs.take_while(|(a, b)| a == b && **a != SEPARATOR).count()
    }
}

impl Chains {
    fn with_capacity(len: usize, tokens: usize) -> Chains {
        Chains { len, heads: vec![0; tokens.next_power_of_two()], before: Vec::with_capacity(tokens) }
    }

    /// Takes note of the run at the end of `text`.
    fn add(&mut self, text: &[u32]) {
        let Some(run) = text.len().checked_sub(self.len).map(|start| &text[start..]) else {
            return self.before.push(0);
        };
        let bucket = hash(run) as usize & (self.heads.len() - 1);
        self.before.push(std::mem::replace(&mut self.heads[bucket], text.len() as u32));
    }

    /// Earlier places behind a run that is probably the last one of a text of `len` tokens.
    fn places(&self, len: usize) -> impl Iterator<Item = usize> {
        let before = |place: usize| place.checked_sub(1).map(|token| self.before[token] as usize);
        std::iter::successors(before(len), move |&place| before(place)).take_while(|&place| place > 0)
    }
}

fn bonus(place: usize, anchor: Option<usize>) -> usize {
    let near = anchor.is_some_and(|anchor| (anchor..=anchor + NEAR_TOKENS).contains(&place));
    if near { NEAR_BONUS_TOKENS } else { 0 }
}

/// Only chooses a chain: what is found there is compared.
fn hash(run: &[u32]) -> u32 {
    let mix = |hash: u64, &token: &u32| (hash ^ u64::from(token)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (run.iter().fold(0, mix) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(texts: &[&[u32]]) -> SuffixIndex {
        let tokens = texts.iter().map(|text| text.len() + 1).sum();
        let mut index = SuffixIndex::with_capacity(tokens);
        for (at, text) in texts.iter().enumerate() {
            (at > 0).then(|| index.separate());
            text.iter().for_each(|&token| index.push(token));
        }
        index
    }

    /// The length of the longest match, looked for everywhere; 0 when it is shorter than a run.
    fn naive(text: &[u32]) -> usize {
        let agreement = |place: usize| {
            let pairs = text[..place].iter().rev().zip(text.iter().rev()).take(DRAFT_MATCH_TOKENS_MAX);
            pairs.take_while(|(a, b)| a == b && **a != SEPARATOR).count()
        };
        (1..text.len()).map(agreement).max().filter(|&len| len >= SHORT_TOKENS).unwrap_or(0)
    }

    #[test]
    fn finds_what_a_search_everywhere_finds() {
        let mut state = 7u64;
        let mut random = |below: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u32 % below
        };
        let (mut found_long, mut found_short) = (0, 0);
        for _ in 0..300 {
            // So few repetitions that no chain is longer than what is looked at.
            let mut index = SuffixIndex::with_capacity(200);
            while index.len() < 150 {
                match random(12) {
                    0 => index.separate(),
                    1..4 if index.len() > 10 => {
                        let from = random(index.len() as u32) as usize;
                        let copied: Vec<u32> =
                            index.text[from..].iter().copied().take(random(9) as usize).collect();
                        copied.into_iter().for_each(|token| index.push(token));
                    }
                    _ => index.push(random(4000)),
                }
                let expected = naive(&index.text);
                let found = index.find(None);
                assert_eq!(found.map_or(0, |found| found.len), expected, "{:?}", index.text);
                found_long += usize::from(expected >= LONG_TOKENS);
                found_short += usize::from((SHORT_TOKENS..LONG_TOKENS).contains(&expected));
            }
        }
        assert!(found_long > 1000 && found_short > 1000, "{found_long} {found_short}");
    }

    #[test]
    fn the_latest_of_equally_long_matches_is_taken() {
        let index = index(&[&[1, 2, 3, 4, 10, 1, 2, 3, 4, 11, 1, 2, 3, 4]]);
        assert_eq!(index.find(None), Some(Match { place: 9, len: 4 }));
    }

    #[test]
    fn a_place_just_behind_the_anchor_is_preferred() {
        let index = index(&[&[1, 2, 3, 4, 10, 5, 1, 2, 3, 4, 11, 7, 5, 1, 2, 3, 4]]);
        assert_eq!(index.find(None), Some(Match { place: 10, len: 5 }));
        assert_eq!(index.find(Some(2)), Some(Match { place: 10, len: 5 }), "both are near");
        assert_eq!(index.find(Some(5)), Some(Match { place: 10, len: 5 }));
        let far = [&[1, 2, 3, 4, 10], &[9; 80][..], &[5, 1, 2, 3, 4, 11, 5, 1, 2, 3, 4]].concat();
        let index = super::tests::index(&[&far]);
        assert_eq!(index.find(None), Some(Match { place: 90, len: 5 }));
        assert_eq!(index.find(Some(0)), Some(Match { place: 4, len: 4 }), "near and shorter by one");
    }

    #[test]
    fn one_token_is_found_close_behind_the_anchor_only() {
        let index = index(&[&[1, 2, 3, 4, 5, 6], &[20, 21, 4]]);
        assert_eq!(index.find(None), None);
        assert_eq!(index.find(Some(1)), Some(Match { place: 4, len: 1 }));
        assert_eq!(index.find(Some(4)), None, "behind the anchor is only 5 and 6");
    }

    #[test]
    fn no_match_reaches_beyond_the_beginning_of_a_text() {
        let index = index(&[&[8, 9], &[1, 2, 3], &[1, 2, 3]]);
        assert_eq!(index.find(None), Some(Match { place: 6, len: 3 }));
        assert_eq!(index.token(6), None, "nor beyond its end");
    }
}
