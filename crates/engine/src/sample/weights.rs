//! All logits as weights, the best being 1, with sums and maxima by chunk so that what follows can skip most
//! of the vocabulary.

use super::exp::exp;

/// Weights that one chunk covers; the last chunk may have fewer.
pub const CHUNK: usize = 64;
const LANES: usize = 16;

/// What is known of a chunk's weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Chunk {
    pub sum: f32,
    pub max: f32,
}

/// Where a chunk's values are.
fn places(chunk: usize, len: usize) -> std::ops::Range<usize> {
    (chunk * CHUNK).min(len)..((chunk + 1) * CHUNK).min(len)
}

/// A chunk's part of all values.
pub(super) fn part_of(chunk: usize, values: &[f32]) -> &[f32] {
    &values[places(chunk, values.len())]
}

/// Turns the logits of one chunk into weights in place.
pub(super) fn weigh_part(chunk: usize, logits: &mut [f32], best: f32, scale: f32) {
    let places = places(chunk, logits.len());
    weigh_chunk(&mut logits[places], best, scale);
}

/// Turns logits into weights in place: e^((logit - best) * scale).
pub(super) fn weigh(logits: &mut [f32], best: f32, scale: f32, chunks: &mut Vec<Chunk>) {
    chunks.clear();
    chunks.extend(logits.chunks_mut(CHUNK).map(|chunk| weigh_chunk(chunk, best, scale)));
}

/// What a chunk of logits, or a part of the last one, weighs.
#[inline(always)]
pub fn weight_of(logits: &[f32], best: f32, scale: f32) -> Chunk {
    let mut own = [0.0; CHUNK];
    let own = &mut own[..logits.len()];
    own.copy_from_slice(logits);
    weigh_chunk(own, best, scale)
}

/// Several sums side by side: one after the other could not become vector code.
#[inline(always)]
fn weigh_chunk(chunk: &mut [f32], best: f32, scale: f32) -> Chunk {
    let (mut sum, mut max) = ([0f32; LANES], [0f32; LANES]);
    let (lanes, rest) = chunk.as_chunks_mut::<LANES>();
    for logits in lanes {
        for lane in 0..LANES {
            let weight = exp((logits[lane] - best) * scale);
            logits[lane] = weight;
            sum[lane] += weight;
            max[lane] = if weight > max[lane] { weight } else { max[lane] };
        }
    }
    for (lane, logit) in rest.iter_mut().enumerate() {
        *logit = exp((*logit - best) * scale);
        sum[lane] += *logit;
        max[lane] = max[lane].max(*logit);
    }
    Chunk { sum: sum.iter().sum(), max: max.iter().copied().fold(0.0, f32::max) }
}

/// The sum of all weights.
pub(super) fn total(chunks: &[Chunk]) -> f64 {
    chunks.iter().map(|chunk| f64::from(chunk.sum)).sum()
}

/// The logarithm of the sum of all `e^logit`, where `best` is the largest logit.
pub(super) fn log_sum_exp(logits: &[f32], best: f32) -> f32 {
    let mut total = 0f64;
    for chunk in logits.chunks(CHUNK) {
        let mut sum = [0f32; LANES];
        let (lanes, rest) = chunk.as_chunks::<LANES>();
        for logits in lanes {
            for lane in 0..LANES {
                sum[lane] += exp(logits[lane] - best);
            }
        }
        rest.iter().zip(&mut sum).for_each(|(logit, sum)| *sum += exp(logit - best));
        total += f64::from(sum.iter().sum::<f32>());
    }
    best + total.ln() as f32
}

/// The chunk at `share` (0 to 1) of the whole weight, and what of the share is its own; none if rounding leaves some over.
pub(super) fn find(chunks: &[Chunk], share: f64) -> Option<(usize, f64)> {
    let mut left = share * total(chunks);
    let at = chunks.iter().position(|chunk| {
        let found = left < f64::from(chunk.sum);
        left -= if found { 0.0 } else { f64::from(chunk.sum) };
        found
    });
    at.map(|at| (at, left))
}

/// The token at `share` (0 to 1) of the whole weight.
pub(super) fn draw(weights: &[f32], chunks: &[Chunk], share: f64) -> Option<u32> {
    let token = match find(chunks, share) {
        Some((chunk, left)) => chunk * CHUNK + draw_within(part_of(chunk, weights), left),
        None => weights.iter().rposition(|&weight| weight > 0.0)?,
    };
    Some(token as u32)
}

fn draw_within(weights: &[f32], mut left: f64) -> usize {
    let found = weights.iter().position(|&weight| {
        left -= f64::from(weight);
        left < 0.0
    });
    // Rounding may leave a hair of the share over: then it is the last with any weight.
    found.or_else(|| weights.iter().rposition(|&weight| weight > 0.0)).unwrap_or(0)
}
