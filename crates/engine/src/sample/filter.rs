//! Top-k, top-p and min-p, and the draw itself, without sorting the vocabulary.
//!
//! Both cuts first count into bins by how far a token is below the best one, which finds the bin in which
//! the cut falls. Only the tokens of that bin are put in order.

use super::exp::exp;
use std::cmp::Ordering;

/// A token that may be drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Candidate {
    pub log_weight: f32, // 0 for the most likely token, below 0 for the others
    pub token: u32,
}

const BINS: usize = 256;
const BINS_PER_UNIT: f32 = 8.0;

/// A better token never falls into a later bin; the last bin takes all that is 32 units or more below the best.
fn bin(log_weight: f32) -> usize {
    ((log_weight * -BINS_PER_UNIT) as usize).min(BINS - 1)
}

/// Best first; of equal ones the lower id.
fn better(a: &Candidate, b: &Candidate) -> Ordering {
    b.log_weight.total_cmp(&a.log_weight).then(a.token.cmp(&b.token))
}

/// All tokens that have any chance.
pub(super) fn all(log_weights: &[f32], candidates: &mut Vec<Candidate>) {
    candidates.clear();
    let tokens = log_weights.iter().zip(0..);
    let tokens = tokens.map(|(&log_weight, token)| Candidate { log_weight, token });
    candidates.extend(tokens.filter(|candidate| candidate.log_weight > f32::NEG_INFINITY));
}

/// The `k` best tokens.
pub(super) fn top_k(log_weights: &[f32], k: usize, candidates: &mut Vec<Candidate>) {
    let mut counts = [0usize; BINS];
    log_weights.iter().for_each(|&log_weight| counts[bin(log_weight)] += 1);
    let mut within = 0;
    let last = counts.iter().position(|count| {
        within += count;
        within >= k
    });
    let last = last.unwrap_or(BINS - 1);
    candidates.clear();
    let tokens = log_weights.iter().zip(0..);
    let tokens = tokens.map(|(&log_weight, token)| Candidate { log_weight, token });
    candidates.extend(tokens.filter(|c| c.log_weight > f32::NEG_INFINITY && bin(c.log_weight) <= last));
    if k < candidates.len() {
        candidates.select_nth_unstable_by(k, better);
        candidates.truncate(k);
    }
}

/// The fewest best tokens that have at least `p` of the whole weight.
pub(super) fn top_p(p: f32, candidates: &mut Vec<Candidate>) {
    let mut weights = [0f64; BINS];
    candidates.iter().for_each(|c| weights[bin(c.log_weight)] += f64::from(exp(c.log_weight)));
    let wanted = f64::from(p) * weights.iter().sum::<f64>();
    let mut before = 0.0;
    let cut = weights.iter().position(|weight| {
        let reached = before + weight >= wanted;
        before += if reached { 0.0 } else { *weight };
        reached
    });
    let Some(cut) = cut else { return };
    let kept = bring_forward(candidates, |c| bin(c.log_weight) < cut);
    let within = bring_forward(&mut candidates[kept..], |c| bin(c.log_weight) == cut);
    candidates.truncate(kept + within);
    candidates[kept..].sort_unstable_by(better);
    let edge = candidates[kept..].iter().position(|c| {
        before += f64::from(exp(c.log_weight));
        before >= wanted
    });
    candidates.truncate(edge.map_or(kept + within, |edge| kept + edge + 1));
}

/// The tokens at least `p` times as likely as the best.
pub(super) fn min_p(p: f32, candidates: &mut Vec<Candidate>) {
    let least = p.ln();
    candidates.retain(|candidate| candidate.log_weight >= least);
}

/// The candidate at `share` (0 to 1) of the whole weight.
pub(super) fn draw(candidates: &[Candidate], share: f64) -> Option<u32> {
    const CHUNK: usize = 256;
    let weight = |chunk: &[Candidate]| f64::from(chunk.iter().map(|c| exp(c.log_weight)).sum::<f32>());
    let target = share * candidates.chunks(CHUNK).map(weight).sum::<f64>();
    let mut before = 0.0;
    for chunk in candidates.chunks(CHUNK) {
        let weight = weight(chunk);
        if before + weight > target {
            return Some(draw_within(chunk, target - before));
        }
        before += weight;
    }
    candidates.last().map(|candidate| candidate.token)
}

fn draw_within(chunk: &[Candidate], target: f64) -> u32 {
    let mut before = 0.0;
    let found = chunk.iter().find(|candidate| {
        before += f64::from(exp(candidate.log_weight));
        before > target
    });
    // Rounding may leave the target a hair above the sum: then it is the last with any weight.
    let last = chunk.iter().rev().find(|candidate| exp(candidate.log_weight) > 0.0);
    found.or(last).map_or(chunk[0].token, |candidate| candidate.token)
}

/// Puts those for which `wanted` holds first and says how many they are.
fn bring_forward(candidates: &mut [Candidate], wanted: impl Fn(&Candidate) -> bool) -> usize {
    let mut kept = 0;
    for i in 0..candidates.len() {
        if wanted(&candidates[i]) {
            candidates.swap(kept, i);
            kept += 1;
        }
    }
    kept
}
