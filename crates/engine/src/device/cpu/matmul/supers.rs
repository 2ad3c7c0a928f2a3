//! Products with weights of the K formats: whole-number scales, and a factor for each 256 columns, as the input has.
//!
//! What is added to a sum for a row and a group is then one multiplication of the levels' dot product with a whole
//! number; the factors and the minima are dealt with once for 256 columns.

use super::{Tile, add_dots, first_dot, prefetch_block};
use crate::device::cpu::input::{Input, LargeLevels};
use crate::device::cpu::pack::{BLOCK, LARGE_BLOCK, Packed, Packing, ScaleKind, Stripe};
use crate::device::cpu::simd::{LANES, Simd};
use std::marker::PhantomData;

pub struct Supers<P>(PhantomData<P>);

impl<S: Simd, P: Packing> Tile<S> for Supers<P> {
    #[inline(always)]
    unsafe fn sums<const M: usize>(
        matrix: &Packed,
        panel: *const u8,
        input: Input<'_>,
        rows: [usize; M],
    ) -> [S::F; M] {
        let stripes = matrix.cols / LARGE_BLOCK;
        // SAFETY: the panel has a stripe, and each row of the input a block, for each 256 columns.
        unsafe {
            let rows = rows.map(|row| input.large.add(row * stripes));
            let mut total = [S::splat(0.0); M];
            for index in 0..stripes {
                let stripe = panel.add(index * Stripe::<P>::BYTES);
                let rows = rows.map(|row| row.add(index));
                let sums = scaled_sums::<S, P, M>(stripe, rows);
                finish_stripe::<S, P, M>(stripe, rows, sums, &mut total);
            }
            total
        }
    }
}

/// The groups' dot products times their scales, summed over a stripe.
#[inline(always)]
unsafe fn scaled_sums<S: Simd, P: Packing, const M: usize>(
    stripe: *const u8,
    rows: [*const LargeLevels; M],
) -> [S::F; M] {
    // SAFETY: passed on from `sums`.
    unsafe {
        let levels = rows.map(|row| (&raw const (*row).levels).cast());
        let mut sums = [S::splat(0.0); M];
        for block in 0..Stripe::<P>::BLOCKS {
            prefetch_block::<P>(stripe, block);
            let planes = stripe.add(Stripe::<P>::LEVELS + block * Stripe::<P>::BLOCK_BYTES);
            for group in 0..Stripe::<P>::GROUPS {
                let index = block * Stripe::<P>::GROUPS + group;
                let scale = load_scales::<S, P>(stripe.add(Stripe::<P>::SCALES + index * LANES));
                let mut dots = [S::zero_i(); M];
                for i in 0..M {
                    if !P::MINIMA {
                        dots[i] = first_dot::<S, P>(minus_sum::<P>(&(*rows[i]).minus, index));
                    }
                }
                add_dots::<S, P, M>(&mut dots, planes, group, &levels, block * BLOCK);
                for i in 0..M {
                    sums[i] = S::fma(S::to_f32(dots[i]), scale, sums[i]);
                }
            }
        }
        sums
    }
}

/// Minus the sum of a group's levels.
#[inline(always)]
fn minus_sum<P: Packing>(halves: &[i32; LARGE_BLOCK / 16], group: usize) -> i32 {
    match P::GROUP {
        16 => halves[group],
        _ => halves[2 * group] + halves[2 * group + 1],
    }
}

/// Multiplies a stripe's sums with its factors and the input's, and adds its minima.
#[inline(always)]
unsafe fn finish_stripe<S: Simd, P: Packing, const M: usize>(
    stripe: *const u8,
    rows: [*const LargeLevels; M],
    sums: [S::F; M],
    total: &mut [S::F; M],
) {
    // SAFETY: passed on from `sums`.
    unsafe {
        let factors = stripe.add(Stripe::<P>::SUPERS).cast::<u16>();
        let scale = S::load_f16(factors);
        for i in 0..M {
            let mut sum = S::mul(sums[i], scale);
            if P::MINIMA {
                let minima = S::to_f32(minima_sums::<S, P>(stripe, rows[i]));
                sum = S::fma(minima, S::load_f16(factors.add(LANES)), sum);
            }
            total[i] = S::fma(sum, S::splat((*rows[i]).scale), total[i]);
        }
    }
}

/// The groups' minima times the sums of their levels, summed over a stripe.
#[inline(always)]
unsafe fn minima_sums<S: Simd, P: Packing>(stripe: *const u8, row: *const LargeLevels) -> S::I {
    // SAFETY: a stripe with minima has a pair of them, for 16 rows, for each pair of groups.
    unsafe {
        let sums: *const i16 = match P::GROUP {
            16 => (&raw const (*row).half_sums).cast(),
            _ => (&raw const (*row).sums).cast(),
        };
        let mut sum = S::zero_i();
        for pair in 0..Stripe::<P>::BLOCKS * Stripe::<P>::GROUPS / 2 {
            let minima = S::load_pairs_u8(stripe.add(Stripe::<P>::MINIMA + pair * 2 * LANES));
            sum = S::dot_i16(sum, minima, sums.add(2 * pair));
        }
        sum
    }
}

#[inline(always)]
unsafe fn load_scales<S: Simd, P: Packing>(at: *const u8) -> S::F {
    // SAFETY: passed on from `scaled_sums`.
    unsafe {
        match P::SCALES {
            ScaleKind::SuperU8 => S::load_u8(at),
            _ => S::load_i8(at),
        }
    }
}
