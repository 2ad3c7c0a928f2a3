//! Which KV block belongs to whom. Only numbers are kept here; the memory is the device's.
//!
//! A block is *held* (some sequence counts on it), *idle* (nobody does, but its tokens are findable and may
//! save a prefill) or *free*. New blocks come from the free ones, then from the longest idle. A block is
//! written only by a sole holder and only while it is not findable; everyone else copies it first.
//!
//! Every layer keeps all positions, those with an attention window too: a fork or a truncation may go back
//! to any token, and what the window had dropped would be missing there.

use crate::limits::KV_BLOCK_TOKENS;
use crate::message::Tenant;
use crate::prefix::PrefixIndex;

pub use crate::prefix::Chain;

pub struct Pool {
    blocks: Vec<Block>, // (blocks)
    free: Vec<u32>,     // a stack
    idle: List,         // longest idle first
    index: PrefixIndex,
}

#[derive(Clone, Copy)]
struct Block {
    holders: u32,
    before: u32, // neighbours in the idle list
    after: u32,
}

/// The ends of a list whose links lie in the blocks themselves.
struct List {
    first: u32,
    last: u32,
    len: usize,
}

const NONE: u32 = u32::MAX;

impl Pool {
    pub fn new(blocks: usize) -> Pool {
        let count = u32::try_from(blocks).ok().filter(|&count| count < NONE);
        let count = count.expect("a pool has fewer than 2^32 - 1 blocks");
        Pool {
            blocks: vec![Block { holders: 0, before: NONE, after: NONE }; blocks],
            free: (0..count).rev().collect(),
            idle: List { first: NONE, last: NONE, len: 0 },
            index: PrefixIndex::new(blocks),
        }
    }

    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    pub fn free(&self) -> usize {
        self.free.len()
    }

    pub fn idle(&self) -> usize {
        self.idle.len
    }

    /// Blocks that `allocate` can give without taking any from a sequence.
    pub fn available(&self) -> usize {
        self.free() + self.idle()
    }

    /// A block for one holder, with no tokens.
    pub fn allocate(&mut self) -> Option<u32> {
        let block = self.free.pop().or_else(|| self.evict())?;
        self.blocks[block as usize].holders = 1;
        Some(block)
    }

    /// Adds a holder.
    pub fn hold(&mut self, block: u32) {
        if self.blocks[block as usize].holders == 0 {
            assert!(self.index.chain(block).is_some(), "block {block} is free and cannot be held");
            self.unlink(block);
        }
        self.blocks[block as usize].holders += 1;
    }

    /// Takes a holder away. The last one leaves the block idle when it is findable, free when not.
    pub fn release(&mut self, block: u32) {
        let holders = &mut self.blocks[block as usize].holders;
        *holders = holders.checked_sub(1).expect("only a held block can be released");
        if *holders > 0 {
            return;
        }
        match self.index.chain(block) {
            Some(_) => self.link_last(block),
            None => self.free.push(block),
        }
    }

    /// Takes a holder away from a block whose content is not to be trusted: nobody finds it any more.
    pub fn discard(&mut self, block: u32) {
        self.index.remove(block);
        self.release(block);
    }

    pub fn is_writable(&self, block: u32) -> bool {
        self.blocks[block as usize].holders == 1 && self.index.chain(block).is_none()
    }

    /// The beginning that ends with this block, once it is published.
    pub fn chain(&self, block: u32) -> Option<Chain> {
        self.index.chain(block)
    }

    /// The block that holds exactly these tokens after `parent`, for the same tenant.
    pub fn find(&self, tenant: Tenant, parent: Chain, tokens: &[u32]) -> Option<u32> {
        self.index.find(tenant, parent, tokens)
    }

    /// Makes a full block findable and returns the block to go on with: an equal one that was there before
    /// takes its place.
    ///
    /// One block per content keeps this order: whoever holds a block holds its parent too, so a parent falls
    /// idle after its children and is never evicted before them.
    pub fn publish(
        &mut self,
        block: u32,
        tenant: Tenant,
        parent: Chain,
        tokens: &[u32; KV_BLOCK_TOKENS],
    ) -> u32 {
        if let Some(equal) = self.find(tenant, parent, tokens) {
            self.hold(equal);
            self.release(block);
            return equal;
        }
        self.index.insert(block, tenant, parent, tokens);
        block
    }

    /// Compares the books with `held`, the blocks of all sequences as often as they are held. For tests.
    pub fn audit(&self, held: impl Iterator<Item = u32>) -> Result<(), String> {
        let mut holders = vec![0; self.blocks.len()];
        held.for_each(|block| holders[block as usize] += 1);
        for (block, (expected, found)) in holders.iter().zip(&self.blocks).enumerate() {
            if *expected != found.holders {
                return Err(format!("block {block} has {expected} holders, the pool says {}", found.holders));
            }
        }
        let held = holders.iter().filter(|&&holders| holders > 0).count();
        match held + self.available() == self.blocks.len() {
            true => Ok(()),
            false => Err(format!("{held} held and {} available of {}", self.available(), self.blocks.len())),
        }
    }

    fn evict(&mut self) -> Option<u32> {
        let block = Some(self.idle.first).filter(|&block| block != NONE)?;
        self.unlink(block);
        self.index.remove(block);
        Some(block)
    }

    fn link_last(&mut self, block: u32) {
        let before = std::mem::replace(&mut self.idle.last, block);
        self.blocks[block as usize].before = before;
        self.blocks[block as usize].after = NONE;
        match before {
            NONE => self.idle.first = block,
            before => self.blocks[before as usize].after = block,
        }
        self.idle.len += 1;
    }

    fn unlink(&mut self, block: u32) {
        let Block { before, after, .. } = self.blocks[block as usize];
        match before {
            NONE => self.idle.first = after,
            before => self.blocks[before as usize].after = after,
        }
        match after {
            NONE => self.idle.last = before,
            after => self.blocks[after as usize].before = before,
        }
        self.idle.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: Tenant = Tenant(1);
    const BOB: Tenant = Tenant(2);

    fn tokens(first: u32) -> [u32; KV_BLOCK_TOKENS] {
        std::array::from_fn(|i| first + i as u32)
    }

    #[test]
    fn a_published_block_is_found_by_its_own_tenant_chain_and_tokens_only() {
        let mut pool = Pool::new(4);
        let first = pool.allocate().unwrap();
        let first = pool.publish(first, ANN, Chain::ROOT, &tokens(0));
        let chain = pool.chain(first).unwrap();
        assert_eq!(pool.find(ANN, Chain::ROOT, &tokens(0)), Some(first));
        assert_eq!(pool.find(BOB, Chain::ROOT, &tokens(0)), None);
        assert_eq!(pool.find(ANN, chain, &tokens(0)), None);
        assert_eq!(pool.find(ANN, Chain::ROOT, &tokens(1)), None);
    }

    #[test]
    fn an_equal_block_gives_way_to_the_one_that_was_there() {
        let mut pool = Pool::new(4);
        let [first, second] = [pool.allocate().unwrap(), pool.allocate().unwrap()];
        assert_eq!(pool.publish(first, ANN, Chain::ROOT, &tokens(0)), first);
        assert_eq!(pool.publish(second, ANN, Chain::ROOT, &tokens(0)), first);
        assert_eq!(pool.free(), 3);
        pool.audit([first, first].into_iter()).unwrap();
    }

    #[test]
    fn the_longest_idle_block_is_evicted_first() {
        let mut pool = Pool::new(3);
        let held: Vec<u32> = (0..3)
            .map(|i| {
                let block = pool.allocate().unwrap();
                pool.publish(block, ANN, Chain::ROOT, &tokens(i * 100))
            })
            .collect();
        assert_eq!(pool.allocate(), None);
        [1, 0, 2].into_iter().for_each(|i| pool.release(held[i]));
        pool.hold(held[1]);
        pool.release(held[1]);
        let evicted: Vec<u32> = std::iter::from_fn(|| pool.allocate()).collect();
        assert_eq!(evicted, [held[0], held[2], held[1]]);
        assert_eq!(pool.find(ANN, Chain::ROOT, &tokens(0)), None);
    }

    #[test]
    fn only_a_sole_holder_of_an_unfindable_block_may_write() {
        let mut pool = Pool::new(2);
        let block = pool.allocate().unwrap();
        assert!(pool.is_writable(block));
        pool.hold(block);
        assert!(!pool.is_writable(block));
        pool.release(block);
        pool.publish(block, ANN, Chain::ROOT, &tokens(0));
        assert!(!pool.is_writable(block));
    }

    #[test]
    fn a_discarded_block_is_never_found_again() {
        let mut pool = Pool::new(1);
        let block = pool.allocate().unwrap();
        pool.publish(block, ANN, Chain::ROOT, &tokens(0));
        pool.discard(block);
        assert_eq!(pool.find(ANN, Chain::ROOT, &tokens(0)), None);
        assert_eq!((pool.free(), pool.idle()), (1, 0));
    }
}
