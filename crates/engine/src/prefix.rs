//! Finds a full KV block by what it holds: the tenant, all tokens before it, and its own tokens.
//!
//! "All tokens before it" is a `Chain`: a number given once to one exact beginning of one tenant. A lookup
//! walks from the root, so comparing the parent's chain and the block's own tokens compares every token.
//! The hash only chooses the bucket; it is keyed at random, so nobody can aim tokens at one bucket.

use crate::limits::KV_BLOCK_TOKENS;
use crate::message::Tenant;
use std::hash::{BuildHasher, RandomState};

/// One exact beginning of one tenant, a whole number of blocks long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Chain(u64);

impl Chain {
    /// The empty beginning, the same for all tenants.
    pub const ROOT: Chain = Chain(0);
}

const NONE: u32 = u32::MAX;

pub(crate) struct PrefixIndex {
    buckets: Vec<u32>,   // (power of two) first block of each bucket
    entries: Vec<Entry>, // (blocks)
    hasher: RandomState,
    chains: u64, // given so far
}

#[derive(Clone)]
struct Entry {
    chain: Option<Chain>, // none: this block is not findable
    parent: Chain,
    tenant: Tenant,
    tokens: [u32; KV_BLOCK_TOKENS],
    next: u32, // block in the same bucket
}

impl PrefixIndex {
    pub(crate) fn new(blocks: usize) -> PrefixIndex {
        let entry = Entry {
            chain: None,
            parent: Chain::ROOT,
            tenant: Tenant(0),
            tokens: [0; KV_BLOCK_TOKENS],
            next: NONE,
        };
        PrefixIndex {
            buckets: vec![NONE; (blocks * 2).next_power_of_two()],
            entries: vec![entry; blocks],
            hasher: RandomState::new(),
            chains: 0,
        }
    }

    pub(crate) fn chain(&self, block: u32) -> Option<Chain> {
        self.entries[block as usize].chain
    }

    /// The block that holds exactly these tokens after `parent`.
    pub(crate) fn find(&self, tenant: Tenant, parent: Chain, tokens: &[u32]) -> Option<u32> {
        let mut block = self.buckets[self.bucket(tenant, parent, tokens)];
        while block != NONE {
            let entry = &self.entries[block as usize];
            if entry.tenant == tenant && entry.parent == parent && entry.tokens == tokens {
                return Some(block);
            }
            block = entry.next;
        }
        None
    }

    /// Makes `block` findable. No equal one may be there.
    pub(crate) fn insert(
        &mut self,
        block: u32,
        tenant: Tenant,
        parent: Chain,
        tokens: &[u32; KV_BLOCK_TOKENS],
    ) {
        assert!(self.chain(block).is_none(), "block {block} is findable already");
        let bucket = self.bucket(tenant, parent, tokens);
        self.chains += 1;
        let next = std::mem::replace(&mut self.buckets[bucket], block);
        let chain = Some(Chain(self.chains));
        self.entries[block as usize] = Entry { chain, parent, tenant, tokens: *tokens, next };
    }

    /// Makes `block` unfindable; nothing happens when it is already.
    pub(crate) fn remove(&mut self, block: u32) {
        let entry = &self.entries[block as usize];
        if entry.chain.is_none() {
            return;
        }
        let bucket = self.bucket(entry.tenant, entry.parent, &entry.tokens);
        let next = entry.next;
        self.entries[block as usize].chain = None;
        if self.buckets[bucket] == block {
            self.buckets[bucket] = next;
            return;
        }
        let mut before = self.buckets[bucket];
        while self.entries[before as usize].next != block {
            before = self.entries[before as usize].next;
        }
        self.entries[before as usize].next = next;
    }

    fn bucket(&self, tenant: Tenant, parent: Chain, tokens: &[u32]) -> usize {
        self.hasher.hash_one((tenant, parent, tokens)) as usize & (self.buckets.len() - 1)
    }
}
