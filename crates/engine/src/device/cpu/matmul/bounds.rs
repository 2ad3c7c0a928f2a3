//! What the products of one row with 16 rows of 6-bit levels lie between, by the upper 3 bits of these.
//!
//! What is not read of a level is 0 to 7, as good as equally likely. So a product is off by 2.29 (their standard deviation) times
//! the length of the input, each part of it times its own scale, in the root mean square.

use super::PREFETCH_BYTES;
use super::coarse::{Coarse, GROUP, GROUPS, PAIRS, SINGLES, STRIPE_BYTES};
use crate::device::cpu::input::LargeLevels;
use crate::device::cpu::simd::{Kernel, LANES, Simd, prefetch_once};

/// By chance a product is off by more than so many standard deviations once in 10^15.
const DEVIATIONS: f32 = 8.0;
const DEVIATION: f32 = 2.291_288; // the square root of (64 - 1) / 12

/// Twice what a level means, where nothing of it is read: the level of 0 is 32, and what is not read 3.5 in the mean.
const TWICE_BEFORE: i32 = 2 * 32 - 7;

/// What none of 16 products is above, and the largest of them is not below.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    pub upper: f32, // infinite where a product is no number
    pub lower: f32,
}

/// A panel times one row.
pub struct BoundPanel<'a> {
    pub matrix: &'a Coarse,
    pub panel: usize,
    pub row: *const LargeLevels,
    pub energies: &'a [f32], // of the row: for each 16 columns the sum of its levels' squares
}

impl Kernel for BoundPanel<'_> {
    type Output = Bounds;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> Bounds {
        let (factors, stripes) = self.matrix.panel(self.panel);
        let (mut products, mut squares) = ([0.0; LANES], [0.0; LANES]);
        // SAFETY: the panel has factors and a stripe, and the row a block, for each 256 columns.
        unsafe {
            let (mut sum, mut off) = (S::splat(0.0), S::splat(0.0));
            for (index, energies) in self.energies.as_chunks::<GROUPS>().0.iter().enumerate() {
                let row = self.row.add(index);
                let (levels, rest) = stripe_sums::<S>(stripes.add(index * STRIPE_BYTES), row, energies);
                prefetch_once(factors.wrapping_byte_add(PREFETCH_BYTES).wrapping_add(index * LANES));
                let factor = S::mul(S::load_f16(factors.add(index * LANES)), S::splat((*row).scale));
                sum = S::fma(levels, factor, sum);
                off = S::fma(rest, S::mul(factor, factor), off);
            }
            S::store(products.as_mut_ptr(), sum);
            S::store(squares.as_mut_ptr(), off);
        }
        let rows = LANES.min(self.matrix.rows - self.panel * LANES);
        around(&products[..rows], &squares[..rows])
    }
}

/// A stripe's part of the products, and of the squares of what they are off by, both without its factors.
#[inline(always)]
unsafe fn stripe_sums<S: Simd>(
    stripe: *const u8,
    row: *const LargeLevels,
    energies: &[f32; GROUPS],
) -> (S::F, S::F) {
    // SAFETY: passed on from `BoundPanel`.
    unsafe {
        let levels: *const i8 = (&raw const (*row).levels).cast();
        let (mut products, mut squares) = (S::splat(0.0), S::splat(0.0));
        for group in 0..GROUPS {
            prefetch_group(stripe, group);
            let scale = S::load_i8(stripe.add(group * LANES));
            let mut dots = S::splat_i32((*row).minus[group] * TWICE_BEFORE / 2);
            for vector in 0..GROUP / 4 {
                let levels = levels.add(group * GROUP + 4 * vector);
                dots = S::dot::<false>(dots, upper_bits::<S>(stripe, group, vector), levels);
            }
            products = S::fma(S::to_f32(dots), scale, products);
            squares = S::fma(S::mul(scale, scale), S::splat(energies[group]), squares);
        }
        (products, squares)
    }
}

/// One of a group's 4 vectors of levels: bits 5 and 4, and bit 3; the others are 0.
#[inline(always)]
unsafe fn upper_bits<S: Simd>(stripe: *const u8, group: usize, vector: usize) -> S::I {
    // SAFETY: passed on from `BoundPanel`.
    unsafe {
        let pairs = S::load_i(stripe.add(PAIRS + group * 64));
        let pair = match vector {
            0 => S::shift_left::<4>(pairs),
            1 => S::shift_left::<2>(pairs),
            2 => pairs,
            _ => S::shift_right::<2>(pairs),
        };
        let singles = S::load_i(stripe.add(SINGLES + group / 2 * 64));
        let single = match group % 2 * 4 + vector {
            0 => S::shift_left::<3>(singles),
            1 => S::shift_left::<2>(singles),
            2 => S::shift_left::<1>(singles),
            3 => singles,
            4 => S::shift_right::<1>(singles),
            5 => S::shift_right::<2>(singles),
            6 => S::shift_right::<3>(singles),
            _ => S::shift_right::<4>(singles),
        };
        S::or(S::and(pair, S::splat_u8(3 << 4)), S::and(single, S::splat_u8(1 << 3)))
    }
}

/// Asks for a group's share of the stripe that is `PREFETCH_BYTES` further on.
#[inline(always)]
fn prefetch_group(stripe: *const u8, group: usize) {
    const LINES: usize = STRIPE_BYTES / 64;
    for line in group * LINES / GROUPS..(group + 1) * LINES / GROUPS {
        prefetch_once(stripe.wrapping_add(PREFETCH_BYTES + line * 64));
    }
}

#[inline(always)]
fn around(products: &[f32], squares: &[f32]) -> Bounds {
    let mut bounds = Bounds { upper: f32::NEG_INFINITY, lower: f32::NEG_INFINITY };
    for (product, square) in products.iter().zip(squares) {
        let reach = DEVIATIONS * DEVIATION * square.sqrt();
        bounds.upper = bounds.upper.max(if product.is_finite() { product + reach } else { f32::INFINITY });
        bounds.lower = bounds.lower.max(product - reach);
    }
    bounds
}
