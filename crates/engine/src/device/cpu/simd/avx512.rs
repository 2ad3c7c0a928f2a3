//! AVX-512 with VNNI: one register a vector.

use super::Simd;
use std::arch::x86_64::*;

#[derive(Clone, Copy)]
pub struct Avx512;

/// The lower words of the lanes of two vectors.
const EVEN_WORDS: [u16; 32] = {
    let mut words = [0; 32];
    let mut i = 0;
    while i < words.len() {
        words[i] = 2 * i as u16;
        i += 1;
    }
    words
};

/// Folds the lanes of each of four vectors. Every step has half as many lanes of each, and twice as many vectors' side by side.
macro_rules! fold_four {
    ($a:expr, $fold512:ident, $fold256:ident, $fold128:ident) => {{
        let [a, b, c, d] = $a;
        let ab = _mm512_castps_pd($fold512(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)));
        let cd = _mm512_castps_pd($fold512(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d)));
        let (low, high) = (_mm512_unpacklo_pd(ab, cd), _mm512_unpackhi_pd(ab, cd));
        let all = $fold512(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
        let half = $fold256(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps::<1>(all));
        let quarter = $fold128(_mm256_castps256_ps128(half), _mm256_extractf128_ps::<1>(half));
        let mut folded = [0.0; 4];
        _mm_storeu_ps(folded.as_mut_ptr(), quarter);
        folded
    }};
}

// SAFETY: every method is a fixed sequence of AVX-512 instructions on its arguments.
#[allow(clippy::undocumented_unsafe_blocks)]
unsafe impl Simd for Avx512 {
    type F = __m512;
    type I = __m512i;

    #[inline(always)]
    unsafe fn splat(value: f32) -> __m512 {
        unsafe { _mm512_set1_ps(value) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> __m512 {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> __m512 {
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()))) }
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const u8) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast()))) }
    }
    #[inline(always)]
    unsafe fn load_e8m0(from: *const u8) -> __m512 {
        unsafe {
            let wide = _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(wide))
        }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, value: __m512) {
        unsafe { _mm512_storeu_ps(to, value) }
    }
    #[inline(always)]
    unsafe fn store_i16(to: *mut i16, value: __m512) {
        unsafe { _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(value))) }
    }
    #[inline(always)]
    unsafe fn store_pair_i16(to: *mut i16, values: [__m512; 2]) {
        unsafe {
            let low_words = _mm512_loadu_si512(EVEN_WORDS.as_ptr().cast());
            let both = _mm512_permutex2var_epi16(
                _mm512_cvtps_epi32(values[0]),
                low_words,
                _mm512_cvtps_epi32(values[1]),
            );
            _mm512_storeu_si512(to.cast(), both);
        }
    }
    #[inline(always)]
    unsafe fn store_i8(to: *mut i8, value: __m512) {
        unsafe { _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(value))) }
    }

    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn div(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn min(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn abs(a: __m512) -> __m512 {
        unsafe { _mm512_abs_ps(a) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn round(a: __m512) -> __m512 {
        unsafe { _mm512_roundscale_ps::<0>(a) }
    }
    #[inline(always)]
    unsafe fn scale_by_power(a: __m512, n: __m512) -> __m512 {
        unsafe { _mm512_scalef_ps(a, n) }
    }
    #[inline(always)]
    unsafe fn sum(a: __m512) -> f32 {
        unsafe { _mm512_reduce_add_ps(a) }
    }
    #[inline(always)]
    unsafe fn largest(a: __m512) -> f32 {
        unsafe { _mm512_reduce_max_ps(a) }
    }

    #[inline(always)]
    unsafe fn largest_of_four(a: [__m512; 4]) -> [f32; 4] {
        unsafe { fold_four!(a, _mm512_max_ps, _mm256_max_ps, _mm_max_ps) }
    }
    #[inline(always)]
    unsafe fn sum_of_four(a: [__m512; 4]) -> [f32; 4] {
        unsafe { fold_four!(a, _mm512_add_ps, _mm256_add_ps, _mm_add_ps) }
    }

    #[inline(always)]
    unsafe fn zero_i() -> __m512i {
        unsafe { _mm512_setzero_si512() }
    }
    #[inline(always)]
    unsafe fn load_i(from: *const u8) -> __m512i {
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn splat_u8(value: u8) -> __m512i {
        unsafe { _mm512_set1_epi8(value as i8) }
    }
    #[inline(always)]
    unsafe fn splat_table(from: &[u8; 16]) -> __m512i {
        unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(from.as_ptr().cast())) }
    }
    #[inline(always)]
    unsafe fn and(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_and_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn or(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_or_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn shift_right<const N: u32>(a: __m512i) -> __m512i {
        unsafe { _mm512_srli_epi16::<N>(a) }
    }
    #[inline(always)]
    unsafe fn shift_left<const N: u32>(a: __m512i) -> __m512i {
        unsafe { _mm512_slli_epi16::<N>(a) }
    }
    #[inline(always)]
    unsafe fn shuffle(table: __m512i, index: __m512i) -> __m512i {
        unsafe { _mm512_shuffle_epi8(table, index) }
    }
    #[inline(always)]
    unsafe fn dot<const WIDE: bool>(acc: __m512i, u: __m512i, s: *const i8) -> __m512i {
        unsafe { _mm512_dpbusd_epi32(acc, u, _mm512_set1_epi32(s.cast::<i32>().read_unaligned())) }
    }
    #[inline(always)]
    unsafe fn dot_i16(acc: __m512i, a: __m512i, b: *const i16) -> __m512i {
        unsafe { _mm512_dpwssd_epi32(acc, a, _mm512_set1_epi32(b.cast::<i32>().read_unaligned())) }
    }
    #[inline(always)]
    unsafe fn splat_i32(value: i32) -> __m512i {
        unsafe { _mm512_set1_epi32(value) }
    }
    #[inline(always)]
    unsafe fn shift_lanes(a: __m512i, by: u32) -> __m512i {
        unsafe { _mm512_sll_epi32(a, _mm_cvtsi32_si128(by as i32)) }
    }
    #[inline(always)]
    unsafe fn load_pairs_u8(from: *const u8) -> __m512i {
        unsafe { _mm512_cvtepu8_epi16(_mm256_loadu_si256(from.cast())) }
    }
    #[inline(always)]
    unsafe fn to_f32(a: __m512i) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(a) }
    }
}
