//! Who decodes alone, what the decode kernel's cache lacks, and how far it runs ahead: plain bookkeeping, without a card.

use crate::batch::Batch;
use crate::limits::{ALONE_HITS_BEFORE_AHEAD, ALONE_STEPS_AHEAD_MAX, KV_BLOCK_TOKENS};

/// A batch that is one row of one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct One<'a> {
    pub token: u32,
    pub position: usize,
    pub table: &'a [u32], // its KV blocks
}

impl One<'_> {
    /// Nothing if the batch has more rows, or wants no logits.
    pub fn of(batch: &Batch) -> Option<One<'_>> {
        match (&batch.tokens[..], &batch.spans[..], &batch.logit_rows[..]) {
            (&[token], [span], [0]) => {
                let table = &batch.blocks[span.blocks.clone()];
                let has_place = span.position < table.len() * KV_BLOCK_TOKENS;
                has_place.then_some(One { token, position: span.position, table })
            }
            _ => None,
        }
    }
}

/// Two caches have the same blocks. The general path's has everything; this is what the decode kernel's has of it.
pub struct Mirror {
    tokens: Vec<u8>, // (blocks) the first ones of each that are the same
}

impl Mirror {
    pub fn new(blocks: usize) -> Mirror {
        Mirror { tokens: vec![0; blocks] }
    }

    /// The general path computes this batch.
    pub fn written(&mut self, batch: &Batch) {
        for span in &batch.spans {
            let table = &batch.blocks[span.blocks.clone()];
            for position in span.position..span.position + span.rows.len() {
                self.keep(table, position, position % KV_BLOCK_TOKENS);
            }
        }
    }

    /// A block of the general path's cache was overwritten.
    pub fn overwritten(&mut self, block: u32) {
        self.tokens.get_mut(block as usize).into_iter().for_each(|tokens| *tokens = 0);
    }

    fn keep(&mut self, table: &[u32], position: usize, at_most: usize) {
        let block = table.get(position / KV_BLOCK_TOKENS).map_or(usize::MAX, |&block| block as usize);
        self.tokens.get_mut(block).into_iter().for_each(|tokens| *tokens = (*tokens).min(at_most as u8));
    }

    /// The blocks that lack something which a token at `position` sees. They count as brought.
    pub fn bring(&mut self, one: &One<'_>, list: &mut Vec<u32>) {
        list.clear();
        for (index, &block) in one.table.iter().enumerate() {
            let needed = one.position.saturating_sub(index * KV_BLOCK_TOKENS).min(KV_BLOCK_TOKENS);
            let Some(tokens) = self.tokens.get_mut(block as usize).filter(|_| needed > 0) else { break };
            if usize::from(*tokens) < needed {
                list.push(block);
                *tokens = needed as u8;
            }
        }
    }

    /// Both caches have this token, and the block nothing after it.
    pub fn decoded(&mut self, one: &One<'_>) {
        let (index, place) = (one.position / KV_BLOCK_TOKENS, one.position % KV_BLOCK_TOKENS);
        let tokens = one.table.get(index).and_then(|&block| self.tokens.get_mut(block as usize));
        tokens.into_iter().for_each(|tokens| *tokens = place as u8 + 1);
    }
}

/// The steps of one launch, of which the host has taken some. A launch goes on with the token that it finds likeliest: where
/// that is what the host wanted, the next step is under way already.
#[derive(Debug, Default)]
pub struct Ahead {
    first: usize, // position of the first step
    steps: usize,
    taken: usize,
    table: Vec<u32>,
    follows: Option<u32>, // the likeliest token after the last step that was taken
    hits: usize,          // how often in a row that was the next one
}

/// Where the step comes from that computes a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    UnderWay { step: usize },
    Begin { steps: usize },
}

impl Ahead {
    pub fn next(&mut self, one: &One<'_>) -> Next {
        let goes_on = one.position == self.first + self.taken && self.follows == Some(one.token);
        self.hits = if goes_on { self.hits + 1 } else { 0 };
        if goes_on && self.taken < self.steps && self.table == one.table {
            return Next::UnderWay { step: self.taken };
        }
        let room = one.table.len() * KV_BLOCK_TOKENS - one.position;
        let steps = match self.hits < ALONE_HITS_BEFORE_AHEAD {
            true => 1,
            false => room.min(ALONE_STEPS_AHEAD_MAX),
        };
        Next::Begin { steps }
    }

    /// A launch of so many steps begins with this token.
    pub fn begun(&mut self, one: &One<'_>, steps: usize) {
        (self.first, self.steps, self.taken) = (one.position, steps, 0);
        self.table.clear();
        self.table.extend_from_slice(one.table);
    }

    /// Steps ahead leave no logits: where these are wanted, as many tokens as ever have to be the likeliest ones before the next launch
    /// goes ahead.
    pub fn logits_wanted(&mut self) {
        self.hits = 0;
    }

    /// A step was taken, and `follows` is what the launch goes on with.
    pub fn took(&mut self, follows: Option<u32>) {
        (self.taken, self.follows) = (self.taken + 1, follows);
    }

    /// Steps that the launch goes on with and that were not taken.
    pub fn left(&self) -> usize {
        self.steps.saturating_sub(self.taken)
    }

    /// The launch is told to stop, if it is not over yet. Whether it had to be is told.
    pub fn stop(&mut self) -> bool {
        let runs = self.left() > 0;
        self.steps = self.steps.min(self.taken);
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: [u32; 3] = [4, 1, 7];

    fn one(token: u32, position: usize) -> One<'static> {
        One { token, position, table: &TABLE }
    }

    fn batch(rows: usize, position: usize, sequences: usize) -> Batch {
        let mut batch = Batch::default();
        (0..sequences).for_each(|_| batch.push(&vec![3; rows], position, &TABLE, true));
        batch
    }

    fn brought(mirror: &mut Mirror, position: usize) -> Vec<u32> {
        let mut list = Vec::new();
        mirror.bring(&one(0, position), &mut list);
        list
    }

    #[test]
    fn only_one_row_with_its_logits_goes_alone() {
        assert_eq!(One::of(&batch(1, 40, 1)), Some(one(3, 40)));
        assert_eq!(One::of(&batch(2, 40, 1)), None);
        assert_eq!(One::of(&batch(1, 40, 2)), None);
        assert_eq!(One::of(&batch(1, 96, 1)), None); // no block for it
        let mut silent = batch(1, 40, 1);
        silent.logit_rows.clear();
        assert_eq!(One::of(&silent), None);
    }

    #[test]
    fn what_the_general_path_writes_is_brought_once() {
        let mut mirror = Mirror::new(8);
        assert_eq!(brought(&mut mirror, 0), [0u32; 0]);
        mirror.written(&batch(40, 0, 1));
        assert_eq!(brought(&mut mirror, 40), [4, 1]);
        mirror.decoded(&one(0, 40));
        assert_eq!(brought(&mut mirror, 41), [0u32; 0]);
        // Guesses after position 41, of which two were right.
        mirror.written(&batch(4, 41, 1));
        assert_eq!(brought(&mut mirror, 44), [1]);
        assert_eq!(brought(&mut mirror, 44), [0u32; 0]);
        // Truncated, and written on from there.
        mirror.decoded(&one(0, 34));
        assert_eq!(brought(&mut mirror, 44), [1]);
        // Another sequence has the first block now.
        mirror.overwritten(4);
        assert_eq!(brought(&mut mirror, 45), [4, 1]);
    }

    #[test]
    fn a_write_far_ahead_leaves_what_lies_before_it() {
        let mut mirror = Mirror::new(8);
        brought(&mut mirror, 64);
        mirror.written(&batch(1, 64, 1));
        assert_eq!(brought(&mut mirror, 64), [0u32; 0]);
        mirror.written(&batch(2, 31, 1));
        assert_eq!(brought(&mut mirror, 31), [0u32; 0]);
        assert_eq!(brought(&mut mirror, 64), [4, 1]);
    }

    /// Takes tokens that the launch said, from `position` on, and tells how the steps were begun.
    fn go(ahead: &mut Ahead, token: u32, position: usize, count: usize) -> Vec<Next> {
        (position..position + count)
            .map(|position| {
                let next = ahead.next(&one(token, position));
                if let Next::Begin { steps } = next {
                    ahead.begun(&one(token, position), steps);
                }
                ahead.took(Some(token));
                next
            })
            .collect()
    }

    #[test]
    fn it_runs_ahead_to_the_end_of_the_block_once_its_tokens_are_taken() {
        let (mut ahead, hits) = (Ahead::default(), ALONE_HITS_BEFORE_AHEAD);
        let nexts = go(&mut ahead, 9, 60, hits + 4);
        assert!(nexts[..hits].iter().all(|next| *next == Next::Begin { steps: 1 }));
        assert_eq!(nexts[hits], Next::Begin { steps: 36 - hits });
        assert_eq!(nexts[hits + 1..], [1, 2, 3].map(|step| Next::UnderWay { step }));
    }

    #[test]
    fn nothing_is_begun_ahead_of_who_wants_logits() {
        let (mut ahead, hits) = (Ahead::default(), ALONE_HITS_BEFORE_AHEAD);
        for position in 60..60 + 2 * hits {
            assert_eq!(go(&mut ahead, 9, position, 1), [Next::Begin { steps: 1 }]);
            ahead.logits_wanted();
        }
        let nexts = go(&mut ahead, 9, 60 + 2 * hits, hits);
        assert!(matches!(nexts[hits - 1], Next::Begin { steps } if steps > 1));
    }

    #[test]
    fn another_token_position_or_table_begins_anew() {
        let (mut ahead, hits) = (Ahead::default(), ALONE_HITS_BEFORE_AHEAD);
        go(&mut ahead, 9, 60, hits + 2);
        let position = 60 + hits + 2;
        assert_eq!(ahead.next(&one(8, position)), Next::Begin { steps: 1 });
        go(&mut ahead, 9, 60, hits + 2);
        assert_eq!(ahead.next(&one(9, position + 1)), Next::Begin { steps: 1 });
        go(&mut ahead, 9, 60, hits + 2);
        let moved = One { token: 9, position, table: &[4, 1, 6] };
        assert!(matches!(ahead.next(&moved), Next::Begin { .. }));
        go(&mut ahead, 9, 60, hits + 2);
        assert!(ahead.stop() && !ahead.stop());
        assert!(matches!(ahead.next(&one(9, position)), Next::Begin { .. }));
    }
}
