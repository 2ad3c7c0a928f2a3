//! How far a device may be from the plain one.

/// How far a result is from the one that is wanted, or may be at most on the CPU: twice or three times as far as
/// it is.
///
/// A single wrong value is seen by its own error, a little error of every value by that of all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Errors {
    pub all: f32, // |difference| / |wanted|, over all values
    pub one: f32, // the largest difference, relative to the size of the values
}

impl Errors {
    pub const NONE: Errors = Errors { all: 0.0, one: 0.0 };

    pub fn of(want: &[f32], got: &[f32]) -> Errors {
        if want.len() != got.len() || got.iter().any(|v| !v.is_finite()) {
            return Errors { all: f32::INFINITY, one: f32::INFINITY };
        }
        let mean = |values: &mut dyn Iterator<Item = f32>| {
            let sum: f64 = values.map(|v| f64::from(v) * f64::from(v)).sum();
            (sum / want.len() as f64).sqrt() as f32
        };
        let off = || want.iter().zip(got).map(|(w, g)| (w - g).abs());
        let size = mean(&mut want.iter().copied()).max(1e-20);
        Errors { all: mean(&mut off()) / size, one: off().fold(0.0, f32::max) / size }
    }
}

/// Sums in another order, and nothing else: also with quantised weights, if the 8-bit form of their inputs is exact.
pub const SUMS: Errors = Errors { all: 1e-6, one: 1e-5 };

/// Keys and values are rounded to whole numbers of 12 bits with a sign, and shares to 13 bits. A score is off by
/// what that is of its size, and its share by a factor of that; scores of made-up weights are large.
pub const ATTENTION: Errors = Errors { all: 1.5e-3, one: 1e-2 };

/// So many columns leave 11 bits for a query's numbers.
pub const LONG_ATTENTION: Errors = Errors { all: 2e-3, one: 2e-2 };

/// Inputs are rounded to 127 levels on either side of zero in each block of 32 or 256, and those of a second
/// product once more.
pub const fn rounded(all: f32, one: f32) -> Errors {
    Errors { all, one }
}
