//! Byte-pair encoding: the lowest-ranked pair of neighbours is merged until none is left.

use crate::limits::MERGE_SCAN_BYTES_MAX;
use foldhash::HashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A merge rule: the rank decides which goes first, the id is what the pair becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Merge {
    pub(super) rank: u32,
    pub(super) id: u32,
}

#[derive(Debug, Default)]
pub(super) struct Bpe {
    pub(super) byte_ids: Vec<Option<u32>>, // (256) the token of each single byte
    pub(super) merges: HashMap<(u32, u32), Merge>,
}

const NO_RANK: u32 = u32::MAX;

impl Bpe {
    /// Appends the tokens of one piece. Bytes that have no token are dropped, as they were in training: a few
    /// vocabularies lack some control characters.
    pub(super) fn encode(&self, piece: &[u8], out: &mut Vec<u32>) {
        let start = out.len();
        out.extend(piece.iter().filter_map(|&byte| *self.byte_ids.get(usize::from(byte))?));
        if piece.len() <= MERGE_SCAN_BYTES_MAX {
            self.merge_by_scan(out, start);
        } else {
            self.merge_by_heap(out, start);
        }
    }

    fn rank(&self, left: u32, right: u32) -> u32 {
        self.merges.get(&(left, right)).map_or(NO_RANK, |m| m.rank)
    }

    /// Quadratic, but without a queue: the fast way for the few bytes of a usual word.
    fn merge_by_scan(&self, out: &mut Vec<u32>, start: usize) {
        let mut ranks = [NO_RANK; MERGE_SCAN_BYTES_MAX]; // of the pair that begins at each token
        for (i, pair) in out[start..].windows(2).enumerate() {
            ranks[i] = self.rank(pair[0], pair[1]);
        }
        loop {
            let ids = &mut out[start..];
            let pairs = ids.len().saturating_sub(1);
            let Some(at) = (0..pairs).min_by_key(|&i| ranks[i]).filter(|&i| ranks[i] != NO_RANK) else {
                return;
            };
            let Some(merge) = self.merges.get(&(ids[at], ids[at + 1])) else { return };
            ids[at] = merge.id;
            out.remove(start + at + 1);
            ranks.copy_within(at + 1..pairs, at);
            let ids = &out[start..];
            ranks[at] = ids.get(at + 1).map_or(NO_RANK, |&next| self.rank(ids[at], next));
            if at > 0 {
                ranks[at - 1] = self.rank(ids[at - 1], ids[at]);
            }
        }
    }

    /// `n log n`, for pieces as long as an input may be.
    fn merge_by_heap(&self, out: &mut Vec<u32>, start: usize) {
        let mut chain = Chain::new(&out[start..]);
        let mut queue: BinaryHeap<Reverse<(u32, usize)>> = (0..chain.ids.len())
            .filter_map(|at| Some(Reverse((self.merge_at(&chain, at)?.rank, at))))
            .collect();
        while let Some(Reverse((rank, at))) = queue.pop() {
            let Some(merge) = self.merge_at(&chain, at).filter(|m| m.rank == rank) else { continue };
            chain.join(at, merge.id);
            for neighbour in [chain.previous[at], at] {
                if let Some(merge) = self.merge_at(&chain, neighbour) {
                    queue.push(Reverse((merge.rank, neighbour)));
                }
            }
        }
        out.truncate(start);
        out.extend(chain.remaining());
    }

    fn merge_at(&self, chain: &Chain, at: usize) -> Option<Merge> {
        let left = *chain.ids.get(at)?;
        let right = *chain.ids.get(*chain.next.get(at)?)?;
        self.merges.get(&(left, right)).copied()
    }
}

/// Tokens as a doubly linked list, so that a merge in the middle moves nothing.
struct Chain {
    ids: Vec<u32>,
    next: Vec<usize>,     // `END` after the last; `END` too for a token that was merged away
    previous: Vec<usize>, // `END` before the first
}

const END: usize = usize::MAX;

impl Chain {
    fn new(ids: &[u32]) -> Self {
        let len = ids.len();
        let next = (1..=len).map(|i| if i == len { END } else { i }).collect();
        let previous = (0..len).map(|i| if i == 0 { END } else { i - 1 }).collect();
        Chain { ids: ids.to_vec(), next, previous }
    }

    /// Turns the token at `at` and the one after it into `id`.
    fn join(&mut self, at: usize, id: u32) {
        let gone = self.next[at];
        let after = self.next[gone];
        self.ids[at] = id;
        self.next[at] = after;
        self.next[gone] = END;
        if after != END {
            self.previous[after] = at;
        }
    }

    fn remaining(&self) -> impl Iterator<Item = u32> + '_ {
        let mut at = if self.ids.is_empty() { END } else { 0 };
        std::iter::from_fn(move || {
            let id = *self.ids.get(at)?;
            at = self.next[at];
            Some(id)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes are their own ids; rule `i` makes token `256 + i`.
    fn bpe(rules: &[(u32, u32)]) -> Bpe {
        let merges = rules.iter().enumerate();
        let merges = merges.map(|(i, &pair)| (pair, Merge { rank: i as u32, id: 256 + i as u32 }));
        Bpe { byte_ids: (0..256).map(Some).collect(), merges: merges.collect() }
    }

    #[test]
    fn merges_lowest_rank_first_and_leftmost() {
        let bpe = bpe(&[(1, 2), (256, 3), (2, 3), (1, 1)]);
        let encode = |piece: &[u8]| {
            let mut out = vec![7];
            bpe.encode(piece, &mut out);
            out
        };
        assert_eq!(encode(&[1, 2, 3]), [7, 257]);
        assert_eq!(encode(&[2, 3, 1, 2]), [7, 258, 256]);
        assert_eq!(encode(&[1, 1, 1]), [7, 259, 1]);
        assert_eq!(encode(&[]), [7]);
        assert_eq!(encode(&[9]), [7, 9]);
    }

    proptest! {
        #[test]
        fn both_ways_agree(
            rules in prop::collection::vec((0u32..4, 0u32..4, 0usize..3), 0..24),
            piece in prop::collection::vec(0u8..4, 0..MERGE_SCAN_BYTES_MAX),
        ) {
            let mut pairs = Vec::new();
            for (i, (left, right, kind)) in rules.into_iter().enumerate() {
                let made = 256 + (i as u32).saturating_sub(1);
                pairs.push(match kind { 0 => (left, right), 1 => (left, made), _ => (made, right) });
            }
            let bpe = bpe(&pairs);
            let ids: Vec<u32> = piece.iter().map(|&b| u32::from(b)).collect();
            let (mut scanned, mut heaped) = (ids.clone(), ids);
            bpe.merge_by_scan(&mut scanned, 0);
            bpe.merge_by_heap(&mut heaped, 0);
            prop_assert_eq!(scanned, heaped);
        }
    }
}
