//! From planes of bits back to levels, one vector at a time.

use crate::device::cpu::pack::Packing;
use crate::device::cpu::simd::Simd;

/// Vector `vector` (0..8) of a block's levels: 16 rows by 4 columns.
///
/// # Safety
/// A block of levels lies at `planes`, and the CPU has `S`.
#[inline(always)]
pub unsafe fn unpack<S: Simd, P: Packing>(planes: *const u8, vector: usize) -> S::I {
    // SAFETY: the block has `P::BITS * 64` bytes.
    unsafe {
        let levels = match P::BITS {
            2 => pair::<S>(planes, vector),
            3 => S::or(pair::<S>(planes, vector), S::shift_left::<2>(single::<S>(planes.add(128), vector))),
            4 => nibble::<S>(planes, vector),
            5 => S::or(nibble::<S>(planes, vector), S::shift_left::<4>(single::<S>(planes.add(256), vector))),
            6 => S::or(nibble::<S>(planes, vector), S::shift_left::<4>(pair::<S>(planes.add(256), vector))),
            _ => S::load_i(planes.add(vector * 64)),
        };
        match P::TABLE {
            Some(table) => S::shuffle(S::splat_table(&table), levels),
            None => levels,
        }
    }
}

#[inline(always)]
unsafe fn nibble<S: Simd>(planes: *const u8, vector: usize) -> S::I {
    // SAFETY: passed on from `unpack`.
    unsafe {
        let both = S::load_i(planes.add(vector / 2 * 64));
        let own = if vector % 2 == 0 { both } else { S::shift_right::<4>(both) };
        S::and(own, S::splat_u8(15))
    }
}

#[inline(always)]
unsafe fn pair<S: Simd>(planes: *const u8, vector: usize) -> S::I {
    // SAFETY: passed on from `unpack`.
    unsafe {
        let four = S::load_i(planes.add(vector / 4 * 64));
        let own = match vector % 4 {
            0 => four,
            1 => S::shift_right::<2>(four),
            2 => S::shift_right::<4>(four),
            _ => S::shift_right::<6>(four),
        };
        S::and(own, S::splat_u8(3))
    }
}

#[inline(always)]
unsafe fn single<S: Simd>(planes: *const u8, vector: usize) -> S::I {
    // SAFETY: passed on from `unpack`.
    unsafe {
        let eight = S::load_i(planes);
        let own = match vector {
            0 => eight,
            1 => S::shift_right::<1>(eight),
            2 => S::shift_right::<2>(eight),
            3 => S::shift_right::<3>(eight),
            4 => S::shift_right::<4>(eight),
            5 => S::shift_right::<5>(eight),
            6 => S::shift_right::<6>(eight),
            _ => S::shift_right::<7>(eight),
        };
        S::and(own, S::splat_u8(1))
    }
}
