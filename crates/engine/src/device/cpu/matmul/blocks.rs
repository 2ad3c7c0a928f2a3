//! Products with weights that have a scale for each 32 columns, as their input has.

use super::{Tile, add_dots, first_dot, prefetch_block};
use crate::device::cpu::input::{Input, SmallLevels};
use crate::device::cpu::pack::{BLOCK, Packed, Packing, ScaleKind, Stripe};
use crate::device::cpu::simd::{LANES, Simd};
use std::marker::PhantomData;

pub struct Blocks<P>(PhantomData<P>);

impl<S: Simd, P: Packing> Tile<S> for Blocks<P> {
    #[inline(always)]
    unsafe fn sums<const M: usize>(
        matrix: &Packed,
        panel: *const u8,
        input: Input<'_>,
        rows: [usize; M],
    ) -> [S::F; M] {
        let blocks = matrix.cols / BLOCK;
        // SAFETY: all offsets stay within the panel's stripes and the input's rows, both `cols` wide.
        unsafe {
            let rows = rows.map(|row| input.small.add(row * blocks));
            let mut total = [S::splat(0.0); M];
            for first in (0..blocks).step_by(Stripe::<P>::BLOCKS) {
                let stripe = panel.add(first / Stripe::<P>::BLOCKS * Stripe::<P>::BYTES);
                for block in 0..Stripe::<P>::BLOCKS.min(blocks - first) {
                    prefetch_block::<P>(stripe, block);
                    block_sums::<S, P, M>(stripe, block, rows.map(|row| row.add(first + block)), &mut total);
                }
            }
            total
        }
    }
}

/// Adds one block's products with `M` rows to the totals.
#[inline(always)]
unsafe fn block_sums<S: Simd, P: Packing, const M: usize>(
    stripe: *const u8,
    block: usize,
    rows: [*const SmallLevels; M],
    total: &mut [S::F; M],
) {
    let vector = LANES * Stripe::<P>::SCALE_BYTES;
    // SAFETY: passed on from `sums`.
    unsafe {
        let factors = stripe.add(Stripe::<P>::SCALES + block * vector * Stripe::<P>::VECTORS);
        let scale = load_scales::<S, P>(factors);
        let planes = stripe.add(Stripe::<P>::LEVELS + block * Stripe::<P>::BLOCK_BYTES);
        let mut dots = [S::zero_i(); M];
        for i in 0..M {
            if !P::MINIMA {
                dots[i] = first_dot::<S, P>((*rows[i]).minus);
            }
        }
        add_dots::<S, P, M>(&mut dots, planes, 0, &rows.map(|row| (&raw const (*row).levels).cast()), 0);
        for i in 0..M {
            let scale = S::mul(scale, S::splat((*rows[i]).scale));
            total[i] = S::fma(S::to_f32(dots[i]), scale, total[i]);
        }
        if P::MINIMA {
            let minimum = load_scales::<S, P>(factors.add(vector));
            for i in 0..M {
                total[i] = S::fma(minimum, S::splat((*rows[i]).sum), total[i]);
            }
        }
    }
}

#[inline(always)]
unsafe fn load_scales<S: Simd, P: Packing>(at: *const u8) -> S::F {
    // SAFETY: passed on from `block_sums`.
    unsafe {
        match P::SCALES {
            ScaleKind::E8m0 => S::load_e8m0(at),
            _ => S::load_f16(at.cast()),
        }
    }
}
