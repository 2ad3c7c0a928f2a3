//! Top-k, top-p and min-p without sorting the vocabulary.
//!
//! Each cut first finds a weight below which nothing can survive; only the few tokens above it are gathered,
//! and of those only the ones around the edge of the cut are put in order.

use super::weights::{CHUNK, Chunk, part_of};
use std::cmp::Ordering;

/// A token that may be drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Candidate {
    pub weight: f32, // 1 for the most likely token
    pub token: u32,
}

/// Best first; of equal ones the lower id.
fn better(a: &Candidate, b: &Candidate) -> Ordering {
    b.weight.total_cmp(&a.weight).then(a.token.cmp(&b.token))
}

/// The chunks that have a token that weighs at least `least`, and anything at all.
pub(super) fn wanted(chunks: &[Chunk], least: f32) -> impl Iterator<Item = usize> + Clone + '_ {
    let least = least.max(f32::MIN_POSITIVE);
    chunks.iter().enumerate().filter(move |(_, chunk)| chunk.max >= least).map(|(index, _)| index)
}

/// All tokens that weigh at least `least`, and anything at all.
pub(super) fn gather(weights: &[f32], chunks: &[Chunk], least: f32, candidates: &mut Vec<Candidate>) {
    candidates.clear();
    for index in wanted(chunks, least) {
        let tokens = (index * CHUNK) as u32..;
        let all = part_of(index, weights).iter().zip(tokens);
        let all = all.map(|(&weight, token)| Candidate { weight, token });
        candidates.extend(all.filter(|candidate| candidate.weight >= least.max(f32::MIN_POSITIVE)));
    }
}

/// A weight that each of the `k` best tokens has at least: the k-th largest of the chunks' maxima. `maxima` is scratch.
pub(super) fn least_of_top_k(chunks: &[Chunk], k: usize, maxima: &mut Vec<f32>) -> f32 {
    maxima.clear();
    maxima.extend(chunks.iter().map(|chunk| chunk.max));
    match k <= maxima.len() {
        true => *maxima.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a)).1,
        false => 0.0,
    }
}

/// Leaves the `k` best candidates.
pub(super) fn top_k(k: usize, candidates: &mut Vec<Candidate>) {
    if k < candidates.len() {
        candidates.select_nth_unstable_by(k, better);
        candidates.truncate(k);
    }
}

/// The least weight of a token that can be among the fewest that have `p` of the `total` weight of `vocab`
/// tokens: all that weigh less than this have, together, less than the rest.
pub(super) fn least_of_top_p(p: f32, total: f64, vocab: usize) -> f32 {
    // A hair less, for the rounding of the sums.
    ((1.0 - f64::from(p)) * total / vocab as f64 * 0.999) as f32
}

const BINS: usize = 1024;

/// A better token never falls into a later bin: the bins follow the exponent and first bits of the weight.
fn bin(weight: f32) -> usize {
    (1f32.to_bits().saturating_sub(weight.to_bits()) >> 20).min(BINS as u32 - 1) as usize
}

/// The fewest best tokens that together weigh at least `wanted`.
pub(super) fn top_p(wanted: f64, candidates: &mut Vec<Candidate>) {
    let mut bins = [0f64; BINS];
    candidates.iter().for_each(|c| bins[bin(c.weight)] += f64::from(c.weight));
    let mut before = 0.0;
    let cut = bins.iter().position(|weight| {
        let reached = before + weight >= wanted;
        before += if reached { 0.0 } else { *weight };
        reached
    });
    let Some(cut) = cut else { return };
    let kept = bring_forward(candidates, |c| bin(c.weight) < cut);
    let within = bring_forward(&mut candidates[kept..], |c| bin(c.weight) == cut);
    candidates.truncate(kept + within);
    candidates[kept..].sort_unstable_by(better);
    let edge = candidates[kept..].iter().position(|c| {
        before += f64::from(c.weight);
        before >= wanted
    });
    candidates.truncate(edge.map_or(kept + within, |edge| kept + edge + 1));
}

/// The sum of all weights.
pub(super) fn total(candidates: &[Candidate]) -> f64 {
    candidates.iter().map(|candidate| f64::from(candidate.weight)).sum()
}

/// The candidate at `share` (0 to 1) of the whole weight.
pub(super) fn draw(candidates: &[Candidate], share: f64) -> Option<u32> {
    let mut left = share * total(candidates);
    let found = candidates.iter().find(|candidate| {
        left -= f64::from(candidate.weight);
        left < 0.0
    });
    found.or(candidates.last()).map(|candidate| candidate.token)
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
