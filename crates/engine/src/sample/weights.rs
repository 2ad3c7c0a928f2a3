//! All logits as weights, the best being 1, with sums and maxima by chunk so that what follows can skip most
//! of the vocabulary.

use super::exp::exp;

/// Weights that one chunk covers; the last chunk may have fewer.
pub(super) const CHUNK: usize = 64;
const LANES: usize = 16;

#[derive(Debug, Clone, Copy)]
pub(super) struct Chunk {
    pub sum: f32,
    pub max: f32,
}

/// Turns logits into weights in place: e^((logit - best) * scale).
pub(super) fn weigh(logits: &mut [f32], best: f32, scale: f32, chunks: &mut Vec<Chunk>) {
    chunks.clear();
    chunks.extend(logits.chunks_mut(CHUNK).map(|chunk| weigh_chunk(chunk, best, scale)));
}

/// Several sums side by side: one after the other could not become vector code.
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

/// The token at `share` (0 to 1) of the whole weight.
pub(super) fn draw(weights: &[f32], chunks: &[Chunk], share: f64) -> Option<u32> {
    let mut left = share * total(chunks);
    for (index, (chunk, weights)) in chunks.iter().zip(weights.chunks(CHUNK)).enumerate() {
        if left < f64::from(chunk.sum) {
            return Some((index * CHUNK + draw_within(weights, left)) as u32);
        }
        left -= f64::from(chunk.sum);
    }
    weights.iter().rposition(|&weight| weight > 0.0).map(|token| token as u32)
}

fn draw_within(weights: &[f32], mut left: f64) -> usize {
    let found = weights.iter().position(|&weight| {
        left -= f64::from(weight);
        left < 0.0
    });
    // Rounding may leave a hair of the share over: then it is the last with any weight.
    found.or_else(|| weights.iter().rposition(|&weight| weight > 0.0)).unwrap_or(0)
}
