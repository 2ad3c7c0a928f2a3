//! Decides, step by step, which sequences get rows and KV blocks. No device, no clock, no IO: time is the
//! number of the step, and all state is in memory that was taken at the start.
//!
//! All running sequences stand in one order: priority class first, then arrival. Each step seats sequences
//! from the front; every seat gets at least one row, so decoding goes on beside a long prefill. When blocks
//! are short they are taken, in this order, from the idle cache, from the longest idle sequence, and from the
//! back of the order: lowest class, youngest first.
//!
//! No starvation: a sequence that was passed over `STARVATION_STEPS` times since its last token may become
//! the elder. There is one elder at a time, the most often passed over. It is seated first and is never
//! preempted until it gets its next token. With N running sequences of at most L tokens no sequence is
//! passed over more than `STARVATION_STEPS + N * (ceil(L / rows) + 1)` times between two tokens, where `rows`
//! is what one step leaves to the elder: the rows beside decoding less one for every other seat.

mod draft;
mod reclaim;
mod table;
mod verbs;

pub use table::Slot;

use crate::constrain::Guide;
use crate::kv::Pool;
use crate::limits::{
    BATCH_ROWS_BESIDE_DECODE_MAX, BATCH_ROWS_MAX, BATCH_SEQUENCES_MAX, KV_BLOCK_TOKENS, STARVATION_STEPS,
};
use crate::message::{Counts, FinishReason, Priority, Stats};
use crate::runner::RunnerFacts;
use crate::sequence::{BlockCopy, Sequence};
use std::collections::HashSet;
use table::Table;

pub struct Scheduler {
    pool: Pool,
    sequences: Table,
    order: Vec<Rank>,    // running sequences, best first
    elder: Option<Slot>, // goes before all others until its next token
    limits: Limits,
    arrivals: u64,
    stats: Stats,
}

/// What one forward pass and one sequence may hold.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub rows: usize,
    pub rows_beside_decode: usize,
    pub seats: usize,
    pub starvation_steps: u32,
    pub context: usize, // tokens
    pub vocab: usize,
}

impl Limits {
    pub fn new(facts: RunnerFacts) -> Limits {
        Limits {
            rows: BATCH_ROWS_MAX,
            rows_beside_decode: BATCH_ROWS_BESIDE_DECODE_MAX,
            seats: BATCH_SEQUENCES_MAX,
            starvation_steps: STARVATION_STEPS,
            context: facts.sequence_tokens_max(),
            vocab: facts.vocab,
        }
    }
}

/// A place in the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    class: Priority,
    arrival: u64,
    slot: Slot,
}

/// What the device has to do in one step: first the copies, in order, then the rows.
#[derive(Debug, Default)]
pub struct Plan {
    pub copies: Vec<BlockCopy>,
    pub work: Vec<Work>, // (seats)
    pub crowded: bool,   // someone had to be passed over
}

/// The next `rows` tokens of a sequence that are not computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    pub slot: Slot,
    pub rows: usize,
    pub starts: bool, // these are the first rows of the generation
    pub ends: Ends,
    pub drafted: usize, // guessed rows that follow
}

/// What is left of the forward pass that is being planned.
struct Room {
    rows: usize,
    seats: usize,
}

impl Room {
    /// Rows for the next seat, with one left for each seat after it.
    fn for_one(&self) -> Option<usize> {
        Some(self.rows - self.seats.checked_sub(1)?)
    }

    fn take(&mut self, rows: usize) {
        self.rows -= rows;
        self.seats -= 1;
    }
}

/// What follows once the rows are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// The prompt goes on in a later step.
    Unfinished,
    /// The last row's logits give the next token.
    WithToken,
    /// All is computed and no token is wanted.
    Prefilled,
}

impl Plan {
    pub fn with_capacity(seats: usize) -> Plan {
        Plan { copies: Vec::with_capacity(seats), work: Vec::with_capacity(seats), crowded: false }
    }
}

impl Scheduler {
    pub fn new(kv_blocks: usize, limits: Limits) -> Scheduler {
        assert!(limits.seats > 0 && limits.rows_beside_decode > limits.seats, "every seat needs a row");
        Scheduler {
            pool: Pool::new(kv_blocks),
            sequences: Table::default(),
            order: Vec::new(),
            elder: None,
            limits,
            arrivals: 0,
            stats: Stats::default(),
        }
    }

    pub fn is_idle(&self) -> bool {
        self.order.is_empty()
    }

    pub fn stats(&self) -> Stats {
        Stats {
            sequences: self.sequences.len() as u64,
            sequences_running: self.order.len() as u64,
            blocks: self.pool.blocks() as u64,
            blocks_running: self.blocks_running() as u64,
            blocks_free: self.pool.free() as u64,
            blocks_cached: self.pool.idle() as u64,
            ..self.stats
        }
    }

    /// Blocks that cannot be had without stopping someone; each once, whoever else holds it.
    fn blocks_running(&self) -> usize {
        let leases = self.order.iter().map(|rank| &self.sequences[rank.slot].lease);
        let held: HashSet<u32> = leases.flat_map(|lease| lease.blocks.iter().copied()).collect();
        held.len()
    }

    pub fn sequence(&self, slot: Slot) -> &Sequence {
        &self.sequences[slot]
    }

    pub fn sequence_mut(&mut self, slot: Slot) -> &mut Sequence {
        &mut self.sequences[slot]
    }

    /// What running sequences wait for.
    pub fn waits_for(&self) -> Option<&Guide> {
        self.order.iter().find_map(|rank| self.sequences[rank.slot].waits_for())
    }

    /// Seats as many sequences as one forward pass can take. Nothing is planned only when nothing runs, or
    /// all that runs waits for its constraint.
    pub fn plan(&mut self, plan: &mut Plan) {
        plan.copies.clear();
        plan.work.clear();
        plan.crowded = false;
        self.stats.steps += 1;
        self.elect_elder();
        let seats = self.limits.seats.min(self.order.len());
        let mut room = Room { rows: self.rows_of_this_step(), seats };
        if let Some(elder) = self.elder {
            self.seat(elder, 0, &mut room, plan);
        }
        for place in 0..self.order.len() {
            let slot = self.order[place].slot;
            if self.elder != Some(slot) {
                self.seat(slot, place, &mut room, plan);
            }
        }
    }

    /// The device has computed the rows of `work`.
    pub fn advance(&mut self, work: Work) {
        let sequence = &mut self.sequences[work.slot];
        let decoded = sequence.decode_rows().min(work.rows);
        let prefilled = work.rows - decoded;
        sequence.lease.advance(work.rows, sequence.tenant, &sequence.tokens, &mut self.pool);
        sequence.owed = sequence.owed.filter(|&owed| owed >= sequence.lease.computed);
        sequence.used = self.stats.steps;
        if let Some(run) = &mut sequence.run {
            run.prefilled += prefilled as u32;
        }
        self.stats.rows_prefilled += prefilled as u64;
        self.stats.rows_decoded += decoded as u64;
    }

    /// Appends a sampled token. Says whether the generation ends with it.
    pub fn accept(&mut self, slot: Slot, token: u32) -> Option<FinishReason> {
        if self.elder == Some(slot) {
            self.elder = None;
        }
        let sequence = &mut self.sequences[slot];
        sequence.owed = Some(sequence.tokens.len());
        sequence.tokens.push(token);
        let full = sequence.tokens.len() >= self.limits.context;
        let run = sequence.run.as_mut()?;
        run.waited = 0;
        run.counts.generated += 1;
        run.shifts.add(token);
        run.drafter.iter_mut().for_each(|drafter| drafter.push(token));
        if run.stop_tokens.contains(&token) {
            return Some(FinishReason::Stop);
        }
        if run.counts.generated >= run.max_tokens {
            return Some(FinishReason::Length);
        }
        full.then_some(FinishReason::Context)
    }

    /// Ends the generation; the sequence stays, idle and warm.
    pub fn finish(&mut self, slot: Slot) -> Counts {
        self.order.retain(|rank| rank.slot != slot);
        self.elder = self.elder.filter(|&elder| elder != slot);
        let sequence = &mut self.sequences[slot];
        sequence.used = self.stats.steps;
        sequence.tokens.shrink_to_fit();
        sequence.run.take().map_or(Counts::default(), |run| run.final_counts())
    }

    /// Ends a generation whose KV is not to be trusted.
    pub fn fail(&mut self, slot: Slot) {
        self.finish(slot);
        let sequence = &mut self.sequences[slot];
        sequence.lease.discard(&mut self.pool);
        sequence.owed = None;
    }

    /// Compares all books with one another. For tests.
    pub fn audit(&self) -> Result<(), String> {
        let held = self.sequences.iter().flat_map(|(_, sequence)| sequence.lease.blocks.iter().copied());
        self.pool.audit(held)?;
        for (slot, sequence) in self.sequences.iter() {
            let ordered = self.order.iter().filter(|rank| rank.slot == slot).count();
            if ordered != usize::from(sequence.run.is_some()) {
                return Err(format!("sequence {} stands {ordered} times in the order", sequence.id.0));
            }
            let blocks = sequence.lease.computed.div_ceil(KV_BLOCK_TOKENS);
            if sequence.lease.blocks.len() != blocks {
                return Err(format!("sequence {} holds other than {blocks} blocks", sequence.id.0));
            }
        }
        match self.order.is_sorted() {
            true => Ok(()),
            false => Err("the order is not in order".to_owned()),
        }
    }

    fn elect_elder(&mut self) {
        if self.elder.is_some() {
            return;
        }
        let waits = |rank: &Rank| self.sequences[rank.slot].run.as_ref().map_or(0, |run| run.waited);
        let longest = self.order.iter().max_by_key(|rank| (waits(rank), std::cmp::Reverse(**rank)));
        let longest = longest.filter(|rank| waits(rank) >= self.limits.starvation_steps);
        self.elder = longest.map(|rank| rank.slot);
    }

    fn rows_of_this_step(&self) -> usize {
        let decoding = self.order.iter().any(|rank| self.sequences[rank.slot].pending() == 1);
        if decoding { self.limits.rows_beside_decode } else { self.limits.rows }
    }

    /// Gives the sequence at `place` what rows it can have, or passes it over when there is no room.
    fn seat(&mut self, slot: Slot, place: usize, room: &mut Room, plan: &mut Plan) {
        let Some(rows_max) = room.for_one() else { return self.pass_over(slot, plan) };
        if self.sequences[slot].computable() == 0 {
            return;
        }
        self.adopt(slot);
        // What others have computed may leave nothing but the row that waits for the constraint.
        let rows_max = rows_max.min(self.sequences[slot].computable());
        if rows_max == 0 {
            return;
        }
        let rows = self.make_room(slot, place, rows_max, plan.work.is_empty());
        if rows == 0 {
            return self.pass_over(slot, plan);
        }
        room.take(rows);
        let starts = self.start(slot);
        let sequence = &mut self.sequences[slot];
        sequence.lease.reserve(rows, &mut self.pool, &mut plan.copies);
        let wants_token = sequence.run.as_ref().is_some_and(|run| run.counts.generated < run.max_tokens);
        let ends = match rows < sequence.pending() {
            true => Ends::Unfinished,
            false if wants_token => Ends::WithToken,
            false => Ends::Prefilled,
        };
        plan.work.push(Work { slot, rows, starts, ends, drafted: 0 });
    }

    /// Says whether these are the first rows of the generation.
    fn start(&mut self, slot: Slot) -> bool {
        let sequence = &mut self.sequences[slot];
        let starts = sequence.run.as_ref().is_some_and(|run| !run.started);
        if starts {
            self.stats.tokens_cached += u64::from(sequence.start());
        }
        starts
    }

    fn pass_over(&mut self, slot: Slot, plan: &mut Plan) {
        plan.crowded = true;
        if let Some(run) = &mut self.sequences[slot].run {
            run.waited = run.waited.saturating_add(1);
        }
    }
}
