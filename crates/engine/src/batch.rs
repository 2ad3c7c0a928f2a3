//! One forward pass, as data: which tokens, at which positions, over which KV blocks.

use std::ops::Range;

/// The rows of one forward pass. Spans follow one another and cover all rows.
///
/// The vectors keep their capacity from step to step, so filling a batch allocates nothing.
#[derive(Debug, Default, Clone)]
pub struct Batch {
    pub tokens: Vec<u32>,     // (rows)
    pub positions: Vec<u32>,  // (rows) position of each row in its own sequence
    pub spans: Vec<Span>,     // (sequences)
    pub blocks: Vec<u32>,     // KV block tables of all spans, one after the other
    pub logit_rows: Vec<u32>, // rows whose logits are wanted, ascending
    pub greedy: bool, // of their logits the largest, as far as is known: others may be asked for, at a price
}

/// The consecutive rows of one sequence.
///
/// Row `rows.start + i` stands at position `position + i` and attends to positions `0..=position + i`,
/// which lie in `blocks`: position `p` is token `p % KV_BLOCK_TOKENS` of block `p / KV_BLOCK_TOKENS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    pub rows: Range<usize>,
    pub position: usize,
    pub blocks: Range<usize>, // into `Batch::blocks`
}

impl Batch {
    pub fn rows(&self) -> usize {
        self.tokens.len()
    }

    pub fn clear(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.spans.clear();
        self.blocks.clear();
        self.logit_rows.clear();
        self.greedy = false;
    }

    /// Appends `tokens` of one sequence, the first of them at `position`, over the block table `blocks`.
    /// With `logits`, the last row's logits are wanted.
    pub fn push(&mut self, tokens: &[u32], position: usize, blocks: &[u32], logits: bool) {
        let row = self.tokens.len();
        let block = self.blocks.len();
        self.tokens.extend_from_slice(tokens);
        self.positions.extend((position..position + tokens.len()).map(|p| p as u32));
        self.blocks.extend_from_slice(blocks);
        self.spans.push(Span {
            rows: row..row + tokens.len(),
            position,
            blocks: block..block + blocks.len(),
        });
        if logits {
            self.logit_rows.push((row + tokens.len() - 1) as u32);
        }
    }

    /// Appends guesses at how the last sequence goes on. Their logits are wanted too.
    pub fn push_draft(&mut self, tokens: &[u32]) {
        let Some(span) = self.spans.last_mut() else { return };
        let (row, position) = (span.rows.end, span.position + span.rows.len());
        span.rows.end += tokens.len();
        self.tokens.extend_from_slice(tokens);
        self.positions.extend((position..position + tokens.len()).map(|p| p as u32));
        self.logit_rows.extend((row..row + tokens.len()).map(|row| row as u32));
    }
}
