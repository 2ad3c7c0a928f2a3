//! A sequence: a token history and the lease on the KV blocks that hold what was computed of it.
//!
//! It outlives its generations: between two of them it is idle and warm. When the pool is full it may lose
//! its lease but never its history, from which the KV is computed again on next use.

use crate::constrain::Guide;
use crate::draft::Drafter;
use crate::kv::{Chain, Pool};
use crate::limits::KV_BLOCK_TOKENS;
use crate::message::{Break, BreakCause, Counts, Generate, Priority, SequenceId, Tenant};
use crate::sample::{Sampling, Shifts};

pub struct Sequence {
    pub id: SequenceId,
    pub tenant: Tenant,
    pub tokens: Vec<u32>,
    pub lease: Lease,
    pub owed: Option<usize>, // position of the last sampled token, until its row is computed
    pub used: u64,           // step at which it was last busy
    pub run: Option<Run>,
}

/// A generation in progress.
pub struct Run {
    pub sampling: Sampling,
    pub shifts: Shifts,
    pub guide: Option<Guide>,     // keeps to the constraint
    pub drafter: Option<Drafter>, // guesses what comes; none: it is not to be guessed
    pub references: Vec<Vec<u32>>,
    pub stop_tokens: Vec<u32>,
    pub max_tokens: u32,
    pub priority: Priority,
    pub arrival: u64, // order among all generations
    pub waited: u32,  // steps it was passed over since its last token
    pub started: bool,
    pub held: usize, // tokens of the history when it began; what came with it follows
    pub broke: Option<Break>,
    pub counts: Counts,
    pub prefilled: u32, // rows spent on the prompt, and on computing lost KV again
}

/// What is computed of a sequence, and where it lies.
///
/// Between two steps `blocks` is just long enough for `computed`, and all its full blocks are findable.
#[derive(Default)]
pub struct Lease {
    pub blocks: Vec<u32>,
    pub computed: usize, // tokens whose KV is in `blocks`
}

/// Has to be done on the device before anything is written in this step, in the order given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockCopy {
    pub from: u32,
    pub to: u32,
}

impl Sequence {
    pub fn new(id: SequenceId, tenant: Tenant) -> Sequence {
        Sequence { id, tenant, tokens: Vec::new(), lease: Lease::default(), owed: None, used: 0, run: None }
    }

    /// Rows to compute before the next token can be sampled.
    pub fn pending(&self) -> usize {
        self.tokens.len() - self.lease.computed
    }

    /// Rows that can be computed now: the last one is of no use before the constraint is compiled.
    pub fn computable(&self) -> usize {
        self.pending() - usize::from(self.waits_for().is_some())
    }

    /// What the next token has to wait for.
    pub fn waits_for(&self) -> Option<&Guide> {
        self.run.as_ref()?.guide.as_ref().filter(|guide| !guide.is_ready())
    }

    /// 1 when the next row is that of the last sampled token, which belongs to no prompt.
    pub fn decode_rows(&self) -> usize {
        usize::from(self.owed == Some(self.lease.computed))
    }

    pub fn fork(&self, id: SequenceId, at: usize, pool: &mut Pool) -> Sequence {
        Sequence {
            tokens: self.tokens[..at].to_vec(),
            lease: self.lease.fork(at, pool),
            owed: self.owed.filter(|&owed| owed < at),
            used: self.used,
            ..Sequence::new(id, self.tenant)
        }
    }

    pub fn truncate(&mut self, len: usize, pool: &mut Pool) {
        self.tokens.truncate(len);
        self.lease.truncate(len, pool);
        self.owed = self.owed.filter(|&owed| owed < len);
    }

    /// Gives the KV back; what was computed will be computed again.
    pub fn evict(&mut self, pool: &mut Pool) {
        self.lease.truncate(0, pool);
        self.owed = None;
    }

    /// Takes up a generation whose tokens are all in the history. Reserves what it may grow to, so that no
    /// later step allocates.
    pub fn begin(&mut self, request: &Generate, held: usize, arrival: u64, context: usize) {
        let growth = (request.max_tokens - request.resumed.min(request.max_tokens)) as usize;
        let len = (self.tokens.len() + growth).min(context);
        self.tokens.reserve(len - self.tokens.len().min(len));
        self.lease
            .blocks
            .reserve((len.div_ceil(KV_BLOCK_TOKENS) + 1).saturating_sub(self.lease.blocks.len()));
        let prompt = self.tokens.len() - request.resumed as usize;
        self.run = Some(Run {
            shifts: Shifts::new(&request.sampling, &self.tokens, prompt, len),
            sampling: request.sampling.clone(),
            guide: None,
            drafter: request.speculate.then(|| self.drafter(request, len)),
            references: request.references.clone(),
            stop_tokens: request.stop_tokens.clone(),
            max_tokens: request.max_tokens,
            priority: request.priority,
            arrival,
            waited: 0,
            started: false,
            held,
            broke: None,
            counts: Counts { generated: request.resumed, ..Counts::default() },
            prefilled: 0,
        });
    }

    /// One that guesses how the history goes on, up to `len` tokens.
    fn drafter(&self, request: &Generate, len: usize) -> Drafter {
        let growth = len - self.tokens.len().min(len);
        Drafter::new(&request.references, &self.tokens, growth, request.resumed == 0)
    }

    /// The run gets its first rows: settles how many tokens of its prompt need no work.
    pub fn start(&mut self) -> u32 {
        let cached = self.lease.computed + self.decode_rows();
        let len = self.tokens.len();
        let Some(run) = &mut self.run else { return 0 };
        run.started = true;
        run.counts.cached = cached as u32;
        run.counts.new = (len - cached) as u32;
        if cached < run.held.min(len - 1) {
            run.broke = Some(Break { at: cached as u32, cause: BreakCause::Evicted });
        }
        cached as u32
    }
}

impl Lease {
    /// Goes on as far as blocks of `tokens` are findable, but not to the end: the last token has to be
    /// computed for its logits.
    pub fn adopt(&mut self, tenant: Tenant, tokens: &[u32], pool: &mut Pool) {
        let full = self.computed / KV_BLOCK_TOKENS;
        let mut chain = self.chain(full, pool);
        let wanted = tokens[..tokens.len().saturating_sub(1)].as_chunks::<KV_BLOCK_TOKENS>().0;
        for (place, block) in wanted.iter().enumerate().skip(full) {
            let Some(found) = chain.and_then(|chain| pool.find(tenant, chain, block)) else { return };
            chain = pool.chain(found);
            pool.hold(found);
            self.blocks.drain(place..).for_each(|partial| pool.release(partial));
            self.blocks.push(found);
            self.computed = self.blocks.len() * KV_BLOCK_TOKENS;
        }
    }

    /// Blocks to allocate before `rows` more tokens can be written.
    pub fn needs(&self, rows: usize, pool: &Pool) -> usize {
        let blocks = (self.computed + rows).div_ceil(KV_BLOCK_TOKENS);
        blocks - self.blocks.len() + usize::from(self.shared_tail(pool).is_some())
    }

    /// Rows that fit when `available` blocks can be allocated.
    pub fn fits(&self, available: usize, pool: &Pool) -> usize {
        match (self.shared_tail(pool), available) {
            (Some(_), 0) => 0,
            (Some(_), _) => (self.blocks.len() + available - 1) * KV_BLOCK_TOKENS - self.computed,
            (None, _) => (self.blocks.len() + available) * KV_BLOCK_TOKENS - self.computed,
        }
    }

    /// Allocates for `rows` more tokens; `needs` blocks must be available.
    pub fn reserve(&mut self, rows: usize, pool: &mut Pool, copies: &mut Vec<BlockCopy>) {
        if let Some(from) = self.shared_tail(pool) {
            let to = pool.allocate().expect("the scheduler made room for the copy");
            copies.push(BlockCopy { from, to });
            pool.release(from);
            self.blocks.pop();
            self.blocks.push(to);
        }
        while self.blocks.len() * KV_BLOCK_TOKENS < self.computed + rows {
            self.blocks.push(pool.allocate().expect("the scheduler made room for the rows"));
        }
    }

    /// The device has written `rows` more of `tokens`: blocks that are full now become findable.
    pub fn advance(&mut self, rows: usize, tenant: Tenant, tokens: &[u32], pool: &mut Pool) {
        let full = self.computed / KV_BLOCK_TOKENS;
        self.computed += rows;
        let mut chain = self.chain(full, pool);
        let blocks = tokens[..self.computed].as_chunks::<KV_BLOCK_TOKENS>().0;
        for (held, tokens) in self.blocks.iter_mut().zip(blocks).skip(full) {
            let Some(parent) = chain else { return };
            *held = pool.publish(*held, tenant, parent, tokens);
            chain = pool.chain(*held);
        }
    }

    /// The deepest blocks are released first, so that they are evicted first.
    pub fn truncate(&mut self, len: usize, pool: &mut Pool) {
        self.computed = self.computed.min(len);
        while self.blocks.len() > self.computed.div_ceil(KV_BLOCK_TOKENS) {
            self.blocks.pop().into_iter().for_each(|block| pool.release(block));
        }
    }

    /// Gives everything back and lets nobody find it.
    pub fn discard(&mut self, pool: &mut Pool) {
        self.blocks.drain(..).rev().for_each(|block| pool.discard(block));
        self.computed = 0;
    }

    fn fork(&self, at: usize, pool: &mut Pool) -> Lease {
        let computed = self.computed.min(at);
        let blocks = self.blocks[..computed.div_ceil(KV_BLOCK_TOKENS)].to_vec();
        blocks.iter().for_each(|&block| pool.hold(block));
        Lease { blocks, computed }
    }

    /// The beginning that the first `full` blocks hold, as long as it is findable.
    fn chain(&self, full: usize, pool: &Pool) -> Option<Chain> {
        match full.checked_sub(1) {
            None => Some(Chain::ROOT),
            Some(last) => pool.chain(self.blocks[last]),
        }
    }

    /// The block that the next token goes into, when it has to be copied first.
    fn shared_tail(&self, pool: &Pool) -> Option<u32> {
        let tail = self.blocks.get(self.computed / KV_BLOCK_TOKENS).copied();
        tail.filter(|&block| !pool.is_writable(block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(pool: &mut Pool, tokens: &[u32]) -> Sequence {
        let mut sequence = Sequence::new(SequenceId(1), Tenant(1));
        sequence.tokens = tokens.to_vec();
        write(&mut sequence, pool);
        sequence
    }

    fn write(sequence: &mut Sequence, pool: &mut Pool) -> Vec<BlockCopy> {
        let mut copies = Vec::new();
        let rows = sequence.pending();
        sequence.lease.reserve(rows, pool, &mut copies);
        sequence.lease.advance(rows, sequence.tenant, &sequence.tokens, pool);
        copies
    }

    #[test]
    fn a_fork_shares_all_blocks_and_the_first_writer_copies_the_last() {
        let mut pool = Pool::new(8);
        let mut parent = written(&mut pool, &[7; 40]);
        let mut child = parent.fork(SequenceId(2), 40, &mut pool);
        assert_eq!(child.lease.blocks, parent.lease.blocks);
        child.tokens.push(1);
        let copies = write(&mut child, &mut pool);
        assert_eq!(copies, [BlockCopy { from: parent.lease.blocks[1], to: child.lease.blocks[1] }]);
        parent.tokens.push(2);
        assert_eq!(write(&mut parent, &mut pool), []);
        assert_eq!(child.lease.blocks[0], parent.lease.blocks[0]);
    }

    #[test]
    fn writing_after_a_truncation_leaves_the_findable_block_as_it_was() {
        let mut pool = Pool::new(8);
        let mut sequence = written(&mut pool, &[7; 64]);
        let old = sequence.lease.blocks[1];
        sequence.truncate(50, &mut pool);
        sequence.tokens.push(1);
        assert_eq!(write(&mut sequence, &mut pool).len(), 1);
        let chain = pool.chain(sequence.lease.blocks[0]).unwrap();
        assert_eq!(pool.find(Tenant(1), chain, &[7; KV_BLOCK_TOKENS]), Some(old));
    }

    #[test]
    fn a_prefix_is_adopted_up_to_the_block_before_the_last_token() {
        let mut pool = Pool::new(8);
        let mut first = written(&mut pool, &[7; 64]);
        let blocks = first.lease.blocks.clone();
        first.evict(&mut pool);
        let mut lease = Lease::default();
        lease.adopt(Tenant(1), &[7; 64], &mut pool);
        assert_eq!((lease.blocks.as_slice(), lease.computed), (&blocks[..1], KV_BLOCK_TOKENS));
        let mut other = Lease::default();
        other.adopt(Tenant(2), &[7; 64], &mut pool);
        assert_eq!(other.computed, 0);
        pool.audit(lease.blocks.iter().copied()).unwrap();
    }
}
