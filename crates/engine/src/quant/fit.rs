//! f32 to quantised rows with some search for the scales that change least: for real models, once.

use super::blocks::{pack_scales_and_minima, push_nibbles};
use super::{Format, k, quantize_row};
use half::f16;

/// The part of the values' range that the levels reach over: what lies outside is cut off, and the others become finer.
const REACHES: [f32; 9] = [1.03, 1.0, 0.97, 0.94, 0.91, 0.88, 0.85, 0.81, 0.77];

const LEVEL_MAX: f32 = 15.0;

/// Appends one row in `format`; `false` and nothing appended when there is no quantiser for it.
///
/// Panics when the row is not a whole number of blocks.
pub fn fit_row(format: Format, row: &[f32], out: &mut Vec<u8>) -> bool {
    match format {
        Format::Q4K => row.chunks_exact(256).for_each(|x| q4_k(x, out)),
        Format::Q4_1 => row.chunks_exact(32).for_each(|x| q4_1(x, out)),
        _ => return quantize_row(format, row, out),
    }
    true
}

/// A weight is `scale * level + minimum`, with levels from 0 to 15.
#[derive(Debug, Clone, Copy)]
struct Line {
    scale: f32,
    minimum: f32,
}

impl Line {
    /// The line of the least squared error that was found; `below`: its minimum may not be above 0.
    fn fitted(x: &[f32], below: bool) -> Line {
        let (low, high) = x.iter().fold((f32::MAX, f32::MIN), |(low, high), &x| (low.min(x), high.max(x)));
        let low = if below { low.min(0.0) } else { low };
        let (middle, half) = ((low + high) / 2.0, (high - low) / 2.0);
        let (mut best, mut least) = (Line { scale: 0.0, minimum: low }, f32::INFINITY);
        for reach in REACHES {
            let minimum = middle - reach * half;
            let minimum = if below { minimum.min(0.0) } else { minimum };
            let line = Line { scale: 2.0 * reach * half / LEVEL_MAX, minimum }.refitted(x, below);
            let error = line.error(x);
            if error < least {
                (best, least) = (line, error);
            }
        }
        best
    }

    fn inverse(self) -> f32 {
        if self.scale > 0.0 { 1.0 / self.scale } else { 0.0 }
    }

    fn level(self, x: f32, inverse: f32) -> f32 {
        const ROUNDS: f32 = 12_582_912.0; // so large that a sum with it has no fraction
        ((x - self.minimum) * inverse).clamp(0.0, LEVEL_MAX) + ROUNDS - ROUNDS
    }

    fn error(self, x: &[f32]) -> f32 {
        let inverse = self.inverse();
        x.iter().map(|&x| (self.scale * self.level(x, inverse) + self.minimum - x).powi(2)).sum()
    }

    /// The best line for the levels that this one gives.
    fn refitted(self, x: &[f32], below: bool) -> Line {
        let (inverse, n) = (self.inverse(), x.len() as f32);
        let (mut l, mut ll, mut v, mut lv) = (0.0, 0.0, 0.0, 0.0);
        for &x in x {
            let level = self.level(x, inverse);
            l += level;
            ll += level * level;
            v += x;
            lv += level * x;
        }
        let spread: f32 = n * ll - l * l;
        let scale = (n * lv - l * v) / spread;
        let line = Line { scale, minimum: (v - scale * l) / n };
        match line {
            _ if spread <= 0.0 || scale <= 0.0 => self,
            Line { minimum, .. } if below && minimum > 0.0 => Line { scale: lv / ll, minimum: 0.0 },
            line => line,
        }
    }

    fn push_levels(self, x: &[f32], codes: &mut Vec<u8>) {
        let inverse = self.inverse();
        codes.extend(x.iter().map(|&x| self.level(x, inverse) as u8));
    }
}

fn q4_1(x: &[f32], out: &mut Vec<u8>) {
    let fitted = Line::fitted(x, false);
    let (scale, minimum) = (f16::from_f32(fitted.scale), f16::from_f32(fitted.minimum));
    out.extend(scale.to_le_bytes());
    out.extend(minimum.to_le_bytes());
    let mut codes = Vec::with_capacity(32);
    Line { scale: scale.to_f32(), minimum: minimum.to_f32() }.push_levels(x, &mut codes);
    push_nibbles(out, &codes);
}

/// Scale and minimum of each 32 are 6-bit steps of the block's own largest ones.
fn q4_k(x: &[f32], out: &mut Vec<u8>) {
    let lines: [Line; 8] = std::array::from_fn(|j| Line::fitted(&x[32 * j..][..32], true));
    let most = |values: [f32; 8]| values.into_iter().fold(0.0, f32::max);
    let scale = f16::from_f32(most(lines.map(|line| line.scale)) / 63.0);
    let minimum = f16::from_f32(most(lines.map(|line| -line.minimum)) / 63.0);
    let step = |value: f32, of: f16| match of.to_f32() {
        0.0 => 0,
        of => (value / of).round().clamp(0.0, 63.0) as u8,
    };
    let packed = pack_scales_and_minima(
        &lines.map(|line| step(line.scale, scale)),
        &lines.map(|line| step(-line.minimum, minimum)),
    );
    out.extend(scale.to_le_bytes());
    out.extend(minimum.to_le_bytes());
    out.extend(packed);
    for (pair, x) in x.chunks_exact(64).enumerate() {
        let mut codes = Vec::with_capacity(64);
        for (j, x) in x.chunks_exact(32).enumerate() {
            let (sub_scale, sub_minimum) = k::scale_and_min(&packed, 2 * pair + j);
            let line = Line {
                scale: scale.to_f32() * f32::from(sub_scale),
                minimum: -minimum.to_f32() * f32::from(sub_minimum),
            };
            line.push_levels(x, &mut codes);
        }
        push_nibbles(out, &codes);
    }
}
