//! Products with weights of the K formats: whole-number scales, and a factor for each 256 columns, as the input has.
//!
//! What is added to a sum for a row and a group is then one multiplication of the levels' dot product with a whole
//! number; the factors and the minima are dealt with once for 256 columns.

use super::{Tile, add_dots, first_dot, prefetch_block};
use crate::device::cpu::input::{Input, LargeBlocks};
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
        // SAFETY: the panel has a stripe, and each row of the input a block, for each 256 columns.
        unsafe {
            let mut at = InputRows::<M>::new::<P>(input.large, rows, matrix.cols);
            let mut total = [S::splat(0.0); M];
            for stripe in 0..matrix.cols / LARGE_BLOCK {
                let stripe = panel.add(stripe * Stripe::<P>::BYTES);
                let sums = scaled_sums::<S, P, M>(stripe, &at);
                finish_stripe::<S, P, M>(stripe, &at, sums, &mut total);
                at.next_stripe::<P>();
            }
            total
        }
    }
}

/// Where the next 256 columns of each input row lie.
struct InputRows<const M: usize> {
    levels: [*const i8; M],
    scales: [*const f32; M],
    sums: [*const i16; M],  // of groups
    minus: [*const i32; M], // of 16 columns
}

impl<const M: usize> InputRows<M> {
    #[inline(always)]
    unsafe fn new<P: Packing>(input: LargeBlocks, rows: [usize; M], cols: usize) -> Self {
        // SAFETY: the rows exist.
        unsafe {
            InputRows {
                levels: rows.map(|row| input.levels.add(row * cols)),
                scales: rows.map(|row| input.scales.add(row * (cols / LARGE_BLOCK))),
                sums: rows.map(|row| match P::GROUP {
                    16 => input.half_sums.add(row * (cols / 16)),
                    _ => input.sums.add(row * (cols / BLOCK)),
                }),
                minus: rows.map(|row| input.minus.add(row * (cols / 16))),
            }
        }
    }

    #[inline(always)]
    fn next_stripe<P: Packing>(&mut self) {
        for i in 0..M {
            self.levels[i] = self.levels[i].wrapping_add(LARGE_BLOCK);
            self.scales[i] = self.scales[i].wrapping_add(1);
            self.sums[i] = self.sums[i].wrapping_add(LARGE_BLOCK / P::GROUP);
            self.minus[i] = self.minus[i].wrapping_add(LARGE_BLOCK / 16);
        }
    }
}

/// The groups' dot products times their scales, summed over a stripe.
#[inline(always)]
unsafe fn scaled_sums<S: Simd, P: Packing, const M: usize>(
    stripe: *const u8,
    at: &InputRows<M>,
) -> [S::F; M] {
    // SAFETY: passed on from `sums`.
    unsafe {
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
                        dots[i] = first_dot::<S, P>(minus_sum::<P>(at.minus[i], index));
                    }
                }
                add_dots::<S, P, M>(&mut dots, planes, group, &at.levels, block * BLOCK);
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
unsafe fn minus_sum<P: Packing>(halves: *const i32, group: usize) -> i32 {
    // SAFETY: passed on from `sums`.
    unsafe {
        match P::GROUP {
            16 => *halves.add(group),
            _ => *halves.add(2 * group) + *halves.add(2 * group + 1),
        }
    }
}

/// Multiplies a stripe's sums with its factors and the input's, and adds its minima.
#[inline(always)]
unsafe fn finish_stripe<S: Simd, P: Packing, const M: usize>(
    stripe: *const u8,
    at: &InputRows<M>,
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
                let minima = S::to_f32(minima_sums::<S, P>(stripe, at.sums[i]));
                sum = S::fma(minima, S::load_f16(factors.add(LANES)), sum);
            }
            total[i] = S::fma(sum, S::splat(*at.scales[i]), total[i]);
        }
    }
}

/// The groups' minima times the sums of their levels, summed over a stripe.
#[inline(always)]
unsafe fn minima_sums<S: Simd, P: Packing>(stripe: *const u8, sums: *const i16) -> S::I {
    // SAFETY: a stripe with minima has a pair of them, for 16 rows, for each pair of groups.
    unsafe {
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
