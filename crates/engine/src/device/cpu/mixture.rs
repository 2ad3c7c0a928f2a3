//! The mixture of experts: route each row, group rows by expert, run each expert once over its rows.

use super::cut::Cut;
use super::gated::GatedUnits;
use super::input::{Needs, Prepare};
use super::matmul::{Output, Product, Rows};
use super::memory::{Memory, OutOfMemory, Shared};
use super::pack::Packed;
use super::{Buffer, Cpu, base_product, multiply, norm_parts};
use crate::batch::Batch;
use crate::device::Mixture;

/// A *slot* is one row's visit to one expert; slot `row * used + i` is the row's `i`-th choice.
#[derive(Default)]
pub struct MixtureScratch {
    room: Option<Room>,
}

struct Room {
    logits: Memory<f32>, // (rows, experts)
    hidden: Memory<f32>, // (slots, ffn)
    down: Memory<f32>,   // (slots, hidden)
    shares: Vec<f32>,    // (slots)
    chosen: Vec<u32>,    // (slots) expert
    slots: Vec<u32>,     // slots in the order of their experts
    rows: Vec<u32>,      // the rows of those slots
    starts: Vec<u32>,    // (experts + 1) where an expert's slots begin
    visited: Vec<u32>,   // experts that have slots
}

impl MixtureScratch {
    pub fn new(rows: usize, slots: usize, experts: usize, width: usize) -> Result<Self, OutOfMemory> {
        if experts == 0 {
            return Ok(MixtureScratch::default());
        }
        let room = Room {
            logits: Memory::zeroed(rows * experts)?,
            hidden: Memory::zeroed(slots * width)?,
            down: Memory::zeroed(slots * width)?,
            shares: vec![0.0; slots],
            chosen: vec![0; slots],
            slots: vec![0; slots],
            rows: vec![0; slots],
            starts: vec![0; experts + 1],
            visited: Vec::with_capacity(experts),
        };
        Ok(MixtureScratch { room: Some(room) })
    }
}

pub fn run(cpu: &mut Cpu, w: &Mixture<Cpu>, x: &mut Buffer, batch: &Batch) {
    let mut room = cpu.mixture.room.take().expect("`ready` made room for the mixture");
    route(cpu, w, x, batch, &mut room);
    group_by_expert(&mut room, batch.rows(), w.used, w.gate.len());
    experts_up(cpu, w, x, batch, &mut room);
    experts_down(cpu, w, batch.rows() * w.used, &mut room);
    let width = x.width;
    for row in 0..batch.rows() {
        for slot in row * w.used..(row + 1) * w.used {
            let share = room.shares[slot];
            let down = &room.down[slot * width..][..width];
            let x = &mut x.values[row * width..][..width];
            x.iter_mut().zip(down).for_each(|(x, down)| *x += share * down);
        }
    }
    cpu.mixture.room = Some(room);
}

/// Which experts each row goes to, and with what shares.
fn route(cpu: &mut Cpu, w: &Mixture<Cpu>, x: &Buffer, batch: &Batch, room: &mut Room) {
    let (isa, rows, experts) = (cpu.isa, batch.rows(), w.gate.len());
    let norm = Some(norm_parts(&w.norm));
    // The experts read the same input.
    let needs = Needs::of(w.router.parts.iter().chain(&w.gate).chain(&w.up));
    let prepare = Prepare::new(isa, &mut cpu.inputs, &x.values, Rows::From(0), rows, x.width, norm, needs);
    let output = Output { base: room.logits.as_mut_ptr(), stride: experts };
    let bias = w.router_bias.as_deref();
    cpu.pool.run(|worker| {
        // SAFETY: the input is whole when it is read; panels are disjoint.
        unsafe {
            let product =
                base_product(&w.router, bias, prepare.run(worker, Cut::Columns), 0..rows, output, false);
            multiply(worker, isa, &w.router.parts, &product, Cut::Columns);
        }
    });
    for row in 0..rows {
        let logits = &room.logits[row * experts..][..experts];
        let slots = row * w.used..(row + 1) * w.used;
        choose(logits, w.normalize, &mut room.chosen[slots.clone()], &mut room.shares[slots]);
    }
}

/// The experts with the largest logits, largest first, the first of equals before the others.
fn choose(logits: &[f32], normalize: bool, chosen: &mut [u32], shares: &mut [f32]) {
    let before = |a: usize, b: usize| logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
    for i in 0..chosen.len() {
        let taken = &chosen[..i];
        let free = (0..logits.len()).filter(|&e| !taken.contains(&(e as u32)));
        let best = free.reduce(|best, e| if before(e, best) { e } else { best }).unwrap_or(0);
        chosen[i] = best as u32;
    }
    let largest = logits[chosen[0] as usize];
    for (share, &expert) in shares.iter_mut().zip(chosen.iter()) {
        *share = (logits[expert as usize] - largest).exp();
    }
    let total: f32 = if normalize {
        shares.iter().sum()
    } else {
        logits.iter().map(|logit| (logit - largest).exp()).sum()
    };
    shares.iter_mut().for_each(|share| *share /= total);
}

/// Counting sort of the slots by their expert.
fn group_by_expert(room: &mut Room, rows: usize, used: usize, experts: usize) {
    let chosen = &room.chosen[..rows * used];
    let starts = &mut room.starts[..experts + 1];
    starts.fill(0);
    chosen.iter().for_each(|&expert| starts[expert as usize + 1] += 1);
    for expert in 0..experts {
        starts[expert + 1] += starts[expert];
    }
    for (slot, &expert) in chosen.iter().enumerate() {
        let at = &mut starts[expert as usize];
        room.slots[*at as usize] = slot as u32;
        room.rows[*at as usize] = (slot / used) as u32;
        *at += 1;
    }
    // Each start has moved to its end: the ends, shifted by one, are the starts again.
    starts.copy_within(0..experts, 1);
    starts[0] = 0;
    room.visited.clear();
    room.visited.extend((0..experts).filter(|&e| starts[e] < starts[e + 1]).map(|e| e as u32));
}

/// `hidden[slot] = activation(gate * input[row], up * input[row])`; the input is still that of the router.
fn experts_up(cpu: &mut Cpu, w: &Mixture<Cpu>, x: &Buffer, batch: &Batch, room: &mut Room) {
    let isa = cpu.isa;
    let ffn = w.gate[0].rows;
    let needs = Needs::of(w.gate.iter().chain(&w.up));
    let source =
        Prepare::new(isa, &mut cpu.inputs, &x.values, Rows::From(0), batch.rows(), x.width, None, needs);
    let hidden = Output { base: room.hidden.as_mut_ptr(), stride: ffn };
    let threads = cpu.pool.threads();
    let raw_len = cpu.raw.len() / threads;
    let raw = Shared::new(&mut cpu.raw);
    let units = GatedUnits::split(&w.gate[0], threads, batch.rows(), raw_len);
    let Room { starts, slots, rows, visited, .. } = room;
    cpu.pool.run(|worker| {
        // SAFETY: each thread has its own part of `raw`.
        let raw = unsafe { raw.range_mut(worker.index * raw_len, raw_len) };
        while let Some(taken) = worker.take(visited.len() * units.count()) {
            let expert = visited[taken / units.count()] as usize;
            let own = starts[expert] as usize..starts[expert + 1] as usize;
            let job = GatedUnits {
                isa,
                units,
                gate: &w.gate[expert],
                up: &w.up[expert],
                gate_bias: w.gate_bias.as_ref().map(|bias| &bias[expert * ffn..][..ffn]),
                up_bias: w.up_bias.as_ref().map(|bias| &bias[expert * ffn..][..ffn]),
                input: source.input(worker),
                from: Rows::List(&rows[own.clone()]),
                to: Rows::List(&slots[own.clone()]),
                count: own.len(),
                activation: w.activation,
                hidden,
            };
            // SAFETY: an expert's slots and a unit's columns belong to the thread that took them.
            unsafe { job.run(taken % units.count(), raw) };
        }
    });
}

/// `down[slot] = down * hidden[slot]`
fn experts_down(cpu: &mut Cpu, w: &Mixture<Cpu>, slot_count: usize, room: &mut Room) {
    let isa = cpu.isa;
    let Packed { rows: width, cols: ffn, .. } = w.down[0];
    let needs = Needs::of(&w.down);
    let prepare =
        Prepare::new(isa, &mut cpu.inputs, &room.hidden, Rows::From(0), slot_count, ffn, None, needs);
    let output = Output { base: room.down.as_mut_ptr(), stride: width };
    let units = w.down[0].units(cpu.pool.threads(), slot_count, usize::MAX);
    let Room { starts, slots, visited, .. } = room;
    cpu.pool.run(|worker| {
        // SAFETY: the input is whole when it is read; units are disjoint.
        unsafe {
            let input = prepare.run(worker, Cut::Columns);
            while let Some(taken) = worker.take(visited.len() * units.count()) {
                let (unit, expert) = (taken % units.count(), visited[taken / units.count()] as usize);
                let panels = units.panels(unit);
                let own = starts[expert] as usize..starts[expert + 1] as usize;
                let matrix = &w.down[expert];
                let list = Rows::List(&slots[own.clone()]);
                let product = Product {
                    matrix,
                    bias: w.down_bias.as_ref().map(|bias| &bias[expert * width..][..width]),
                    input,
                    from: list,
                    to: list,
                    count: own.len(),
                    output,
                    add: false,
                };
                let column = panels.start * super::LANES;
                product.run(isa, panels, column);
            }
        }
    });
}
