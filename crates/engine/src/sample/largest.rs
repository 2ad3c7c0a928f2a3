//! The largest of many logits, chunk by chunk, so that it can become vector code.

use super::CHUNK;

/// The largest of some logits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Largest {
    pub value: f32,
    pub place: usize, // the first that has it
    pub nan: bool,    // some logit is no number
}

impl Largest {
    pub const OF_NONE: Largest = Largest { value: f32::NEG_INFINITY, place: 0, nan: false };

    /// Of these logits and of later ones.
    pub fn or(self, later: Largest) -> Largest {
        let Largest { value, place, .. } = if later.value > self.value { later } else { self };
        Largest { value, place, nan: self.nan | later.nan }
    }
}

const LANES: usize = 16;

#[inline(always)]
pub fn largest(logits: &[f32]) -> Largest {
    let mut best = Largest::OF_NONE;
    let mut chunk = 0; // where the largest is
    let mut nan = [0u32; LANES];
    for (index, logits) in logits.chunks(CHUNK).enumerate() {
        let value = largest_of_chunk(logits, &mut nan);
        if value > best.value {
            (best.value, chunk) = (value, index);
        }
    }
    let inside = logits[(chunk * CHUNK).min(logits.len())..].iter().position(|&logit| logit == best.value);
    best.place = chunk * CHUNK + inside.unwrap_or(0);
    best.nan = nan.iter().any(|&nan| nan != 0);
    best
}

/// Loops and no closures: these might not be compiled for the instruction set of who calls this.
#[inline(always)]
fn largest_of_chunk(logits: &[f32], nan: &mut [u32; LANES]) -> f32 {
    let mut max = [f32::NEG_INFINITY; LANES];
    let (lanes, rest) = logits.as_chunks::<LANES>();
    for logits in lanes {
        for lane in 0..LANES {
            max[lane] = if logits[lane] > max[lane] { logits[lane] } else { max[lane] };
            nan[lane] |= u32::from(logits[lane].is_nan());
        }
    }
    for (lane, &logit) in rest.iter().enumerate() {
        max[lane] = if logit > max[lane] { logit } else { max[lane] };
        nan[lane] |= u32::from(logit.is_nan());
    }
    let mut value = f32::NEG_INFINITY;
    for max in max {
        value = if max > value { max } else { value };
    }
    value
}
