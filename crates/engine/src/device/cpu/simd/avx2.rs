//! AVX2 with FMA and F16C: two registers a vector. AVX-VNNI differs from it in dot products alone.

use super::Simd;
use std::arch::x86_64::*;
use std::marker::PhantomData;

#[derive(Clone, Copy)]
pub struct Avx2<D>(PhantomData<D>);

/// How dot products are added to lanes of 32 bits.
///
/// # Safety
/// As for [`Simd`].
pub unsafe trait Dots: Copy + 'static {
    /// Of four unsigned bytes of `u` with four signed ones of `s`. `WIDE`: bytes of `u` may exceed 127.
    unsafe fn bytes<const WIDE: bool>(acc: __m256i, u: __m256i, s: __m256i) -> __m256i;
    /// Of two i16.
    unsafe fn words(acc: __m256i, a: __m256i, b: __m256i) -> __m256i;
}

/// AVX2 itself: products and sums apart.
#[derive(Clone, Copy)]
pub struct Apart;

/// AVX-VNNI, of processors without AVX-512.
#[derive(Clone, Copy)]
pub struct Vnni;

/// The same instructions as AVX-512 has them: so kernels for AVX-VNNI are tested where there is only that.
#[cfg(debug_assertions)]
#[derive(Clone, Copy)]
pub struct VnniOf512;

// SAFETY: made of AVX2 alone.
unsafe impl Dots for Apart {
    #[inline(always)]
    unsafe fn bytes<const WIDE: bool>(acc: __m256i, u: __m256i, s: __m256i) -> __m256i {
        // SAFETY: registers only.
        unsafe { _mm256_add_epi32(acc, if WIDE { dot_wide(u, s) } else { dot_narrow(u, s) }) }
    }
    #[inline(always)]
    unsafe fn words(acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: registers only.
        unsafe { _mm256_add_epi32(acc, _mm256_madd_epi16(a, b)) }
    }
}

// SAFETY: AVX-VNNI's own instructions, which do not saturate.
unsafe impl Dots for Vnni {
    #[inline(always)]
    unsafe fn bytes<const WIDE: bool>(acc: __m256i, u: __m256i, s: __m256i) -> __m256i {
        // SAFETY: registers only.
        unsafe { _mm256_dpbusd_avx_epi32(acc, u, s) }
    }
    #[inline(always)]
    unsafe fn words(acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: registers only.
        unsafe { _mm256_dpwssd_avx_epi32(acc, a, b) }
    }
}

#[cfg(debug_assertions)]
// SAFETY: likewise of AVX-512.
unsafe impl Dots for VnniOf512 {
    #[inline(always)]
    unsafe fn bytes<const WIDE: bool>(acc: __m256i, u: __m256i, s: __m256i) -> __m256i {
        // SAFETY: registers only.
        unsafe { _mm256_dpbusd_epi32(acc, u, s) }
    }
    #[inline(always)]
    unsafe fn words(acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: registers only.
        unsafe { _mm256_dpwssd_epi32(acc, a, b) }
    }
}

type F2 = [__m256; 2];
type I2 = [__m256i; 2];

#[inline(always)]
fn both<T: Copy, U>(a: [T; 2], f: impl Fn(T) -> U) -> [U; 2] {
    [f(a[0]), f(a[1])]
}

#[inline(always)]
fn pair<T: Copy, U>(a: [T; 2], b: [T; 2], f: impl Fn(T, T) -> U) -> [U; 2] {
    [f(a[0], b[0]), f(a[1], b[1])]
}

/// Four-byte dot products by way of 16-bit pair sums. Saturates when bytes of `u` exceed 127.
#[inline(always)]
unsafe fn dot_narrow(u: __m256i, s: __m256i) -> __m256i {
    // SAFETY: registers only.
    unsafe { _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), _mm256_set1_epi16(1)) }
}

/// Four-byte dot products with even and odd bytes widened to 16 bits first: exact for all bytes.
#[inline(always)]
unsafe fn dot_wide(u: __m256i, s: __m256i) -> __m256i {
    // SAFETY: registers only.
    unsafe {
        let low = _mm256_set1_epi16(0xff);
        let even =
            _mm256_madd_epi16(_mm256_and_si256(u, low), _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(s)));
        let odd = _mm256_madd_epi16(_mm256_srli_epi16::<8>(u), _mm256_srai_epi16::<8>(s));
        _mm256_add_epi32(even, odd)
    }
}

/// Rounded to nearest, as 16 words.
#[inline(always)]
unsafe fn words(value: F2) -> __m256i {
    // SAFETY: registers only.
    unsafe {
        let whole = both(value, |v| _mm256_cvtps_epi32(v));
        // Packing works within 128-bit halves: the permutation puts the words back in order.
        _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(whole[0], whole[1]))
    }
}

// SAFETY: every method is a fixed sequence of AVX2, FMA and F16C instructions on its arguments, and of the dot products' own.
#[allow(clippy::undocumented_unsafe_blocks)]
unsafe impl<D: Dots> Simd for Avx2<D> {
    type F = F2;
    type I = I2;

    #[inline(always)]
    unsafe fn splat(value: f32) -> F2 {
        unsafe { [_mm256_set1_ps(value); 2] }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> F2 {
        unsafe { [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))] }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> F2 {
        unsafe { both([from, from.add(8)], |p| _mm256_cvtph_ps(_mm_loadu_si128(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> F2 {
        unsafe {
            both([from, from.add(8)], |p| {
                let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
            })
        }
    }
    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> F2 {
        unsafe {
            both([from, from.add(8)], |p| _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast()))))
        }
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> F2 {
        unsafe {
            both([from, from.add(8)], |p| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast()))))
        }
    }
    #[inline(always)]
    unsafe fn load_e8m0(from: *const u8) -> F2 {
        unsafe {
            both([from, from.add(8)], |p| {
                let wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(wide))
            })
        }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, value: F2) {
        unsafe {
            _mm256_storeu_ps(to, value[0]);
            _mm256_storeu_ps(to.add(8), value[1]);
        }
    }
    #[inline(always)]
    unsafe fn store_i16(to: *mut i16, value: F2) {
        unsafe { _mm256_storeu_si256(to.cast(), words(value)) }
    }
    #[inline(always)]
    unsafe fn store_i8(to: *mut i8, value: F2) {
        unsafe {
            let words = words(value);
            let bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
            _mm_storeu_si128(to.cast(), bytes);
        }
    }

    #[inline(always)]
    unsafe fn add(a: F2, b: F2) -> F2 {
        unsafe { pair(a, b, |a, b| _mm256_add_ps(a, b)) }
    }
    #[inline(always)]
    unsafe fn sub(a: F2, b: F2) -> F2 {
        unsafe { pair(a, b, |a, b| _mm256_sub_ps(a, b)) }
    }
    #[inline(always)]
    unsafe fn mul(a: F2, b: F2) -> F2 {
        unsafe { pair(a, b, |a, b| _mm256_mul_ps(a, b)) }
    }
    #[inline(always)]
    unsafe fn div(a: F2, b: F2) -> F2 {
        unsafe { pair(a, b, |a, b| _mm256_div_ps(a, b)) }
    }
    #[inline(always)]
    unsafe fn max(a: F2, b: F2) -> F2 {
        unsafe { pair(a, b, |a, b| _mm256_max_ps(a, b)) }
    }
    #[inline(always)]
    unsafe fn min(a: F2, b: F2) -> F2 {
        unsafe { pair(a, b, |a, b| _mm256_min_ps(a, b)) }
    }
    #[inline(always)]
    unsafe fn abs(a: F2) -> F2 {
        unsafe { both(a, |a| _mm256_andnot_ps(_mm256_set1_ps(-0.0), a)) }
    }
    #[inline(always)]
    unsafe fn fma(a: F2, b: F2, c: F2) -> F2 {
        unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
    }
    #[inline(always)]
    unsafe fn round(a: F2) -> F2 {
        unsafe { both(a, |a| _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a)) }
    }
    #[inline(always)]
    unsafe fn scale_by_power(a: F2, n: F2) -> F2 {
        unsafe {
            pair(a, n, |a, n| {
                let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
                _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent)))
            })
        }
    }
    #[inline(always)]
    unsafe fn sum(a: F2) -> f32 {
        unsafe {
            let half = _mm256_add_ps(a[0], a[1]);
            let quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps::<1>(half));
            let eighth = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
            _mm_cvtss_f32(_mm_add_ss(eighth, _mm_movehdup_ps(eighth)))
        }
    }
    #[inline(always)]
    unsafe fn largest(a: F2) -> f32 {
        unsafe {
            let half = _mm256_max_ps(a[0], a[1]);
            let quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps::<1>(half));
            let eighth = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
            _mm_cvtss_f32(_mm_max_ss(eighth, _mm_movehdup_ps(eighth)))
        }
    }

    #[inline(always)]
    unsafe fn zero_i() -> I2 {
        unsafe { [_mm256_setzero_si256(); 2] }
    }
    #[inline(always)]
    unsafe fn load_i(from: *const u8) -> I2 {
        unsafe { both([from, from.add(32)], |p| _mm256_loadu_si256(p.cast())) }
    }
    #[inline(always)]
    unsafe fn splat_u8(value: u8) -> I2 {
        unsafe { [_mm256_set1_epi8(value as i8); 2] }
    }
    #[inline(always)]
    unsafe fn splat_table(from: &[u8; 16]) -> I2 {
        unsafe { [_mm256_broadcastsi128_si256(_mm_loadu_si128(from.as_ptr().cast())); 2] }
    }
    #[inline(always)]
    unsafe fn and(a: I2, b: I2) -> I2 {
        unsafe { pair(a, b, |a, b| _mm256_and_si256(a, b)) }
    }
    #[inline(always)]
    unsafe fn or(a: I2, b: I2) -> I2 {
        unsafe { pair(a, b, |a, b| _mm256_or_si256(a, b)) }
    }
    #[inline(always)]
    unsafe fn shift_right<const N: u32>(a: I2) -> I2 {
        unsafe { both(a, |a| _mm256_srl_epi16(a, _mm_cvtsi32_si128(N as i32))) }
    }
    #[inline(always)]
    unsafe fn shift_left<const N: u32>(a: I2) -> I2 {
        unsafe { both(a, |a| _mm256_sll_epi16(a, _mm_cvtsi32_si128(N as i32))) }
    }
    #[inline(always)]
    unsafe fn shuffle(table: I2, index: I2) -> I2 {
        unsafe { pair(table, index, |t, i| _mm256_shuffle_epi8(t, i)) }
    }
    #[inline(always)]
    unsafe fn dot<const WIDE: bool>(acc: I2, u: I2, s: *const i8) -> I2 {
        unsafe {
            let s = _mm256_set1_epi32(s.cast::<i32>().read_unaligned());
            pair(acc, u, |acc, u| D::bytes::<WIDE>(acc, u, s))
        }
    }
    #[inline(always)]
    unsafe fn dot_i16(acc: I2, a: I2, b: *const i16) -> I2 {
        unsafe {
            let b = _mm256_set1_epi32(b.cast::<i32>().read_unaligned());
            pair(acc, a, |acc, a| D::words(acc, a, b))
        }
    }
    #[inline(always)]
    unsafe fn splat_i32(value: i32) -> I2 {
        unsafe { [_mm256_set1_epi32(value); 2] }
    }
    #[inline(always)]
    unsafe fn shift_lanes(a: I2, by: u32) -> I2 {
        unsafe { both(a, |a| _mm256_sll_epi32(a, _mm_cvtsi32_si128(by as i32))) }
    }
    #[inline(always)]
    unsafe fn load_pairs_u8(from: *const u8) -> I2 {
        unsafe { both([from, from.add(16)], |p| _mm256_cvtepu8_epi16(_mm_loadu_si128(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn to_f32(a: I2) -> F2 {
        unsafe { both(a, |a| _mm256_cvtepi32_ps(a)) }
    }
}
