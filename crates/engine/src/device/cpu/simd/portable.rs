//! Arrays and loops: runs everywhere, and the compiler vectorises what it can.

use super::{LANES, Simd};
use half::{bf16, f16};
use std::array::from_fn;

#[derive(Clone, Copy)]
pub struct Portable;

type F = [f32; LANES];
type I = [u8; 4 * LANES];

#[inline(always)]
fn lanes(a: &I) -> [i32; LANES] {
    from_fn(|i| i32::from_ne_bytes([a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3]]))
}

#[inline(always)]
fn bytes(a: [i32; LANES]) -> I {
    from_fn(|i| a[i / 4].to_ne_bytes()[i % 4])
}

// SAFETY: no special instructions; pointers are read and written within the 16 values asked for.
#[allow(clippy::undocumented_unsafe_blocks)]
unsafe impl Simd for Portable {
    type F = F;
    type I = I;

    #[inline(always)]
    unsafe fn splat(value: f32) -> F {
        [value; LANES]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> F {
        unsafe { from.cast::<F>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> F {
        from_fn(|i| f16::from_bits(unsafe { from.add(i).read_unaligned() }).to_f32())
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> F {
        from_fn(|i| bf16::from_bits(unsafe { from.add(i).read_unaligned() }).to_f32())
    }
    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> F {
        from_fn(|i| unsafe { *from.add(i) } as f32)
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> F {
        from_fn(|i| unsafe { *from.add(i) } as i8 as f32)
    }
    #[inline(always)]
    unsafe fn load_e8m0(from: *const u8) -> F {
        from_fn(|i| f32::from_bits((unsafe { *from.add(i) } as u32) << 23))
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, value: F) {
        unsafe { to.cast::<F>().write_unaligned(value) }
    }
    #[inline(always)]
    unsafe fn store_i16(to: *mut i16, value: F) {
        for (i, v) in value.into_iter().enumerate() {
            unsafe { to.add(i).write_unaligned(v.round_ties_even() as i32 as i16) };
        }
    }
    #[inline(always)]
    unsafe fn store_i8(to: *mut i8, value: F) {
        for (i, v) in value.into_iter().enumerate() {
            unsafe { *to.add(i) = v.round_ties_even() as i32 as i8 };
        }
    }

    #[inline(always)]
    unsafe fn add(a: F, b: F) -> F {
        from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    unsafe fn sub(a: F, b: F) -> F {
        from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    unsafe fn mul(a: F, b: F) -> F {
        from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    unsafe fn div(a: F, b: F) -> F {
        from_fn(|i| a[i] / b[i])
    }
    #[inline(always)]
    unsafe fn max(a: F, b: F) -> F {
        from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    unsafe fn min(a: F, b: F) -> F {
        from_fn(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    unsafe fn abs(a: F) -> F {
        from_fn(|i| a[i].abs())
    }
    #[inline(always)]
    unsafe fn fma(a: F, b: F, c: F) -> F {
        from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    unsafe fn round(a: F) -> F {
        from_fn(|i| a[i].round_ties_even())
    }
    #[inline(always)]
    unsafe fn scale_by_power(a: F, n: F) -> F {
        from_fn(|i| a[i] * f32::from_bits(((n[i] as i32).wrapping_add(127) as u32) << 23))
    }
    #[inline(always)]
    unsafe fn sum(a: F) -> f32 {
        let half: [f32; 8] = from_fn(|i| a[i] + a[i + 8]);
        let quarter: [f32; 4] = from_fn(|i| half[i] + half[i + 4]);
        (quarter[0] + quarter[2]) + (quarter[1] + quarter[3])
    }
    #[inline(always)]
    unsafe fn largest(a: F) -> f32 {
        a.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }

    #[inline(always)]
    unsafe fn zero_i() -> I {
        [0; 4 * LANES]
    }
    #[inline(always)]
    unsafe fn load_i(from: *const u8) -> I {
        unsafe { from.cast::<I>().read() }
    }
    #[inline(always)]
    unsafe fn splat_u8(value: u8) -> I {
        [value; 4 * LANES]
    }
    #[inline(always)]
    unsafe fn splat_table(from: &[u8; 16]) -> I {
        from_fn(|i| from[i % 16])
    }
    #[inline(always)]
    unsafe fn and(a: I, b: I) -> I {
        from_fn(|i| a[i] & b[i])
    }
    #[inline(always)]
    unsafe fn or(a: I, b: I) -> I {
        from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    unsafe fn shift_right<const N: u32>(a: I) -> I {
        from_fn(|i| a[i] >> N)
    }
    #[inline(always)]
    unsafe fn shift_left<const N: u32>(a: I) -> I {
        from_fn(|i| a[i] << N)
    }
    #[inline(always)]
    unsafe fn shuffle(table: I, index: I) -> I {
        from_fn(|i| table[i / 16 * 16 + (index[i] & 15) as usize])
    }
    #[inline(always)]
    unsafe fn dot<const WIDE: bool>(acc: I, u: I, s: *const i8) -> I {
        let acc = lanes(&acc);
        bytes(from_fn(|lane| {
            (0..4).fold(acc[lane], |sum, i| sum + u[4 * lane + i] as i32 * unsafe { *s.add(i) } as i32)
        }))
    }
    #[inline(always)]
    unsafe fn dot_i16(acc: I, a: I, b: *const i16) -> I {
        let [b0, b1] = unsafe { b.cast::<[i16; 2]>().read_unaligned() };
        let value = |at: usize| i16::from_ne_bytes([a[at], a[at + 1]]) as i32;
        let acc = lanes(&acc);
        bytes(from_fn(|i| {
            let pair = (value(4 * i) * b0 as i32).wrapping_add(value(4 * i + 2) * b1 as i32);
            acc[i].wrapping_add(pair)
        }))
    }
    #[inline(always)]
    unsafe fn splat_i32(value: i32) -> I {
        bytes([value; LANES])
    }
    #[inline(always)]
    unsafe fn shift_lanes(a: I, by: u32) -> I {
        bytes(lanes(&a).map(|lane| lane << by))
    }
    #[inline(always)]
    unsafe fn load_pairs_u8(from: *const u8) -> I {
        from_fn(|i| match i % 2 == cfg!(target_endian = "big") as usize {
            true => unsafe { *from.add(i / 2) },
            false => 0,
        })
    }
    #[inline(always)]
    unsafe fn to_f32(a: I) -> F {
        lanes(&a).map(|v| v as f32)
    }
}
