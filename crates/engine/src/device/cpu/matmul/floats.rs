//! Products with unquantised weights.

use super::{Task, Tile};
use crate::device::cpu::input::Input;
use crate::device::cpu::pack::Packed;
use crate::device::cpu::simd::{Kernel, LANES, Simd};
use std::marker::PhantomData;

/// A way that unquantised weights are stored.
pub trait FloatKind {
    /// # Safety
    /// `from` holds 16 values.
    unsafe fn load<S: Simd>(from: *const u8) -> S::F;
    const BYTES: usize;
}

pub struct F32;
pub struct F16;
pub struct Bf16;

impl FloatKind for F32 {
    const BYTES: usize = 4;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u8) -> S::F {
        // SAFETY: passed on.
        unsafe { S::load(from.cast()) }
    }
}

impl FloatKind for F16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u8) -> S::F {
        // SAFETY: passed on.
        unsafe { S::load_f16(from.cast()) }
    }
}

impl FloatKind for Bf16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u8) -> S::F {
        // SAFETY: passed on.
        unsafe { S::load_bf16(from.cast()) }
    }
}

/// One panel of floats times some rows.
pub struct Floats<'a, K>(pub Task<'a>, pub PhantomData<K>);

impl<K: FloatKind> Kernel for Floats<'_, K> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: passed on from `Product::run`.
        unsafe { self.0.run::<S, FloatTile<K>>() }
    }
}

struct FloatTile<K>(PhantomData<K>);

impl<S: Simd, K: FloatKind> Tile<S> for FloatTile<K> {
    #[inline(always)]
    unsafe fn sums<const M: usize>(
        matrix: &Packed,
        panel: *const u8,
        input: Input<'_>,
        rows: [usize; M],
    ) -> [S::F; M] {
        let cols = matrix.cols;
        // SAFETY: the panel has 16 values for each column, the input rows have `cols` values.
        unsafe {
            let values = rows.map(|row| input.values.add(row * cols));
            // Two running sums, for even and odd columns, hide the latency of the additions.
            let mut totals = [[S::splat(0.0); M]; 2];
            for pair in 0..cols / 2 {
                float_step::<S, K, M>(panel, 2 * pair, values, &mut totals[0]);
                float_step::<S, K, M>(panel, 2 * pair + 1, values, &mut totals[1]);
            }
            if cols % 2 == 1 {
                float_step::<S, K, M>(panel, cols - 1, values, &mut totals[0]);
            }
            std::array::from_fn(|i| S::add(totals[0][i], totals[1][i]))
        }
    }
}

/// Adds one column's products.
#[inline(always)]
unsafe fn float_step<S: Simd, K: FloatKind, const M: usize>(
    panel: *const u8,
    col: usize,
    values: [*const f32; M],
    totals: &mut [S::F; M],
) {
    // SAFETY: passed on from `sums`.
    unsafe {
        let weights = K::load::<S>(panel.add(col * LANES * K::BYTES));
        for i in 0..M {
            totals[i] = S::fma(weights, S::splat(*values[i].add(col)), totals[i]);
        }
    }
}
