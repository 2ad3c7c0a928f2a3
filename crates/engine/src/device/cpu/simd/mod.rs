//! Sixteen lanes: the vocabulary that every CPU kernel is written in, once.
//!
//! A kernel is a struct that implements [`Kernel`]; [`Isa::run`] compiles it for each instruction set
//! and picks one at run time. All methods are `inline(always)`: they must melt into the function that
//! carries the target features, or they would be calls without them.

#[cfg(target_arch = "x86_64")]
#[allow(clippy::wildcard_imports, reason = "the names of intrinsics say where they come from")]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(clippy::wildcard_imports, reason = "the names of intrinsics say where they come from")]
mod avx512;
mod portable;

#[cfg(all(target_arch = "x86_64", debug_assertions))]
use avx2::VnniOf512;
#[cfg(target_arch = "x86_64")]
use avx2::{Apart, Avx2, Vnni};
#[cfg(target_arch = "x86_64")]
pub use avx512::Avx512;
pub use portable::Portable;

/// Lanes of f32 or i32 in one vector; a vector of bytes has four times as many.
pub const LANES: usize = 16;

/// One instruction set. `F` is 16 f32; `I` is 16 i32 or 64 bytes.
///
/// # Safety
/// The methods may only run on a CPU that has the instruction set, and pointers must be valid for the
/// bytes that the method's name implies (16 values of its type).
pub unsafe trait Simd: Copy + 'static {
    type F: Copy;
    type I: Copy;

    unsafe fn splat(value: f32) -> Self::F;
    unsafe fn load(from: *const f32) -> Self::F;
    unsafe fn load_f16(from: *const u16) -> Self::F;
    unsafe fn load_bf16(from: *const u16) -> Self::F;
    unsafe fn load_u8(from: *const u8) -> Self::F;
    unsafe fn load_i8(from: *const u8) -> Self::F;
    /// Powers of two, `2^(byte - 127)`, the scales of MXFP4.
    unsafe fn load_e8m0(from: *const u8) -> Self::F;
    unsafe fn store(to: *mut f32, value: Self::F);
    /// Rounds to nearest and keeps the low 16 bits of each lane.
    unsafe fn store_i16(to: *mut i16, value: Self::F);
    /// As `store_i16`, the lanes of two vectors after each other.
    #[inline(always)]
    unsafe fn store_pair_i16(to: *mut i16, values: [Self::F; 2]) {
        // SAFETY: passed on; there is room for both.
        unsafe {
            Self::store_i16(to, values[0]);
            Self::store_i16(to.add(LANES), values[1]);
        }
    }
    /// Rounds to nearest and keeps the low byte of each lane.
    unsafe fn store_i8(to: *mut i8, value: Self::F);

    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn abs(a: Self::F) -> Self::F;
    /// `a * b + c`
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    unsafe fn round(a: Self::F) -> Self::F;
    /// `a * 2^n`, `n` whole and within -126..=127.
    unsafe fn scale_by_power(a: Self::F, n: Self::F) -> Self::F;
    unsafe fn sum(a: Self::F) -> f32;
    unsafe fn largest(a: Self::F) -> f32;
    /// The largest lane of each vector.
    #[inline(always)]
    unsafe fn largest_of_four(a: [Self::F; 4]) -> [f32; 4] {
        // SAFETY: registers only.
        unsafe { [Self::largest(a[0]), Self::largest(a[1]), Self::largest(a[2]), Self::largest(a[3])] }
    }
    /// The sum of each vector's lanes, in any order.
    #[inline(always)]
    unsafe fn sum_of_four(a: [Self::F; 4]) -> [f32; 4] {
        // SAFETY: registers only.
        unsafe { [Self::sum(a[0]), Self::sum(a[1]), Self::sum(a[2]), Self::sum(a[3])] }
    }

    unsafe fn zero_i() -> Self::I;
    unsafe fn load_i(from: *const u8) -> Self::I;
    unsafe fn splat_u8(value: u8) -> Self::I;
    /// The 16 bytes at `from`, in each quarter of the vector.
    unsafe fn splat_table(from: &[u8; 16]) -> Self::I;
    unsafe fn and(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I;
    /// Shifts 16-bit words; bits that cross from the neighbouring byte must be masked off after.
    unsafe fn shift_right<const N: u32>(a: Self::I) -> Self::I;
    unsafe fn shift_left<const N: u32>(a: Self::I) -> Self::I;
    /// Byte-wise look-up of `index` (0..16) in `table`.
    unsafe fn shuffle(table: Self::I, index: Self::I) -> Self::I;
    /// Adds to each i32 lane the dot product of its four unsigned bytes of `u` with the four signed
    /// bytes at `s`, the same for all lanes. `WIDE`: bytes of `u` may exceed 127.
    unsafe fn dot<const WIDE: bool>(acc: Self::I, u: Self::I, s: *const i8) -> Self::I;
    /// Adds to each i32 lane the dot product of its two i16 of `a` with the two at `b`, the same for all lanes.
    unsafe fn dot_i16(acc: Self::I, a: Self::I, b: *const i16) -> Self::I;
    unsafe fn splat_i32(value: i32) -> Self::I;
    /// Shifts 32-bit lanes to the left.
    unsafe fn shift_lanes(a: Self::I, by: u32) -> Self::I;
    /// 32 bytes as two i16 in each lane.
    unsafe fn load_pairs_u8(from: *const u8) -> Self::I;
    unsafe fn to_f32(a: Self::I) -> Self::F;
}

/// e^a for finite lanes, relative error under 3e-7; lanes below -87 give 0.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
pub unsafe fn exp<S: Simd>(a: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set; no memory is touched.
    unsafe {
        let a = S::max(S::min(a, S::splat(88.0)), S::splat(-87.5));
        let n = S::round(S::mul(a, S::splat(std::f32::consts::LOG2_E)));
        // ln 2 in two parts, so that n * ln 2 is exact to about 40 bits.
        let r = S::fma(n, S::splat(-0.693_359_4), a);
        let r = S::fma(n, S::splat(2.121_944_4e-4), r);
        let mut p = S::splat(1.987_569_1e-4);
        for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
            p = S::fma(p, r, S::splat(c));
        }
        let p = S::add(S::fma(p, S::mul(r, r), r), S::splat(1.0));
        S::scale_by_power(p, n)
    }
}

/// 2^a for lanes that are at most 127, relative error under 4e-6: enough for what is rounded to 16 bits. Lanes below -126
/// give 2^-126.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
pub unsafe fn power_of_two<S: Simd>(a: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set; no memory is touched.
    unsafe {
        let a = S::max(a, S::splat(-126.0));
        let n = S::round(a);
        let r = S::sub(a, n);
        let mut p = S::splat(9.782_913e-3);
        for c in [5.597_688_4e-2, 0.240_207_1, 0.693_113_6, 1.0] {
            p = S::fma(p, r, S::splat(c));
        }
        S::scale_by_power(p, n)
    }
}

/// A piece of work, written once for all instruction sets.
pub trait Kernel {
    type Output;

    /// # Safety
    /// The CPU must have the instruction set `S`.
    unsafe fn run<S: Simd>(self) -> Self::Output;
}

/// The instruction set in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isa {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    #[cfg(all(target_arch = "x86_64", debug_assertions))]
    AvxVnniOf512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

impl Isa {
    /// The best that this CPU has.
    pub fn detect() -> Isa {
        Isa::available()[0]
    }

    /// All that this CPU has, best first.
    pub fn available() -> Vec<Isa> {
        let mut found = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vnni")
            {
                found.push(Isa::Avx512);
                #[cfg(debug_assertions)]
                found.push(Isa::AvxVnniOf512);
            }
            if is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c")
            {
                if is_x86_feature_detected!("avxvnni") {
                    found.push(Isa::AvxVnni);
                }
                found.push(Isa::Avx2);
            }
        }
        found.push(Isa::Portable);
        found
    }

    pub fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => "AVX-512 VNNI",
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni => "AVX-VNNI",
            #[cfg(all(target_arch = "x86_64", debug_assertions))]
            Isa::AvxVnniOf512 => "AVX-VNNI, with AVX-512's instructions",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => "AVX2",
            Isa::Portable => "portable",
        }
    }

    /// Runs the kernel with this instruction set, which must come from [`Isa::available`].
    #[inline(always)]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: an `Isa` other than `Portable` is only made by `available`, after detection.
        unsafe {
            match self {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => run_avx512(kernel),
                #[cfg(target_arch = "x86_64")]
                Isa::AvxVnni => run_avx_vnni(kernel),
                #[cfg(all(target_arch = "x86_64", debug_assertions))]
                Isa::AvxVnniOf512 => run_avx_vnni_of_512(kernel),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => run_avx2(kernel),
                Isa::Portable => kernel.run::<Portable>(),
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c,bmi1,bmi2")]
unsafe fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: this function's own features are those of `Avx512`.
    unsafe { kernel.run::<Avx512>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avxvnni,avx2,fma,f16c,bmi1,bmi2")]
unsafe fn run_avx_vnni<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: this function's own features are those of `Avx2<Vnni>`.
    unsafe { kernel.run::<Avx2<Vnni>>() }
}

#[cfg(all(target_arch = "x86_64", debug_assertions))]
#[target_feature(enable = "avx512f,avx512vl,avx512vnni,avx2,fma,f16c,bmi1,bmi2")]
unsafe fn run_avx_vnni_of_512<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: this function's own features are those of `Avx2<VnniOf512>`.
    unsafe { kernel.run::<Avx2<VnniOf512>>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2")]
unsafe fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: this function's own features are those of `Avx2<Apart>`.
    unsafe { kernel.run::<Avx2<Apart>>() }
}

/// Asks for a cache line that is needed in a microsecond: it goes into the second-level cache, which can wait for more
/// lines at a time than the first. The address need not be valid.
#[inline(always)]
pub fn prefetch<T>(line: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect but on the caches, and SSE is always there.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(line.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Asks for a cache line of weights, which are read once: it pushes nothing out of the larger caches. The address need not
/// be valid.
#[inline(always)]
pub fn prefetch_once<T>(line: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_NTA }>(line.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function of a vector; `POWER`: the power of two, else of e.
    struct Exp<'a, const POWER: bool>(&'a [f32; LANES]);

    impl<const POWER: bool> Kernel for Exp<'_, POWER> {
        type Output = [f32; LANES];

        #[inline(always)]
        unsafe fn run<S: Simd>(self) -> [f32; LANES] {
            let mut out = [0.0; LANES];
            // SAFETY: both arrays hold 16 values.
            unsafe {
                let x = S::load(self.0.as_ptr());
                S::store(out.as_mut_ptr(), if POWER { power_of_two::<S>(x) } else { exp::<S>(x) });
            }
            out
        }
    }

    #[test]
    fn exp_is_close_on_every_instruction_set() {
        for isa in Isa::available() {
            for start in -87..80 {
                let x: [f32; LANES] = std::array::from_fn(|i| start as f32 + i as f32 / 16.0);
                for (got, x) in isa.run(Exp::<false>(&x)).into_iter().zip(x) {
                    let want = x.exp();
                    assert!(
                        (got - want).abs() <= 3e-7 * want,
                        "{}: exp({x}) = {got}, not {want}",
                        isa.name()
                    );
                }
            }
        }
    }

    #[test]
    fn powers_of_two_are_close_on_every_instruction_set() {
        for isa in Isa::available() {
            for start in -130..1 {
                let x: [f32; LANES] = std::array::from_fn(|i| start as f32 - i as f32 / 16.0);
                for (got, x) in isa.run(Exp::<true>(&x)).into_iter().zip(x) {
                    let want = x.max(-126.0).exp2();
                    assert!((got - want).abs() <= 4e-6 * want, "{}: 2^{x} = {got}, not {want}", isa.name());
                }
            }
            assert_eq!(isa.run(Exp::<true>(&[0.0; LANES])), [1.0; LANES]);
            assert!(isa.run(Exp::<true>(&[f32::NEG_INFINITY; LANES]))[0] <= 2e-38);
        }
    }

    /// The largest lanes and the sums of four vectors, and two of these as words.
    struct Four<'a>(&'a [[f32; LANES]; 4]);

    impl Kernel for Four<'_> {
        type Output = ([f32; 4], [f32; 4], [i16; 2 * LANES]);

        #[inline(always)]
        unsafe fn run<S: Simd>(self) -> Self::Output {
            let mut words = [0; 2 * LANES];
            // SAFETY: 16 values each, and room for 32 words.
            unsafe {
                let [a, b, c, d] = self.0.each_ref().map(|values| values.as_ptr());
                let four = [S::load(a), S::load(b), S::load(c), S::load(d)];
                S::store_pair_i16(words.as_mut_ptr(), [four[1], four[3]]);
                (S::largest_of_four(four), S::sum_of_four(four), words)
            }
        }
    }

    #[test]
    fn four_vectors_are_folded_and_two_stored_on_every_instruction_set() {
        let four: [[f32; LANES]; 4] = std::array::from_fn(|i| {
            std::array::from_fn(|lane| ((i * 977 + lane * 613) % 401) as f32 - 200.0)
        });
        let largest = four.map(|lanes| lanes.into_iter().fold(f32::MIN, f32::max));
        let sums = four.map(|lanes| lanes.into_iter().sum());
        for isa in Isa::available() {
            let (got_largest, got_sums, words) = isa.run(Four(&four));
            assert_eq!((got_largest, got_sums), (largest, sums), "{}", isa.name());
            let want = four[1].iter().chain(&four[3]).map(|&value| value as i16);
            assert!(words.into_iter().eq(want), "{}: {words:?}", isa.name());
        }
    }

    /// The dot product of signed with unsigned bytes at their extremes, which overflow 16 bits.
    struct Dot<'a>(&'a [u8; 64], &'a [i8; 4]);

    impl Kernel for Dot<'_> {
        type Output = [f32; LANES];

        #[inline(always)]
        unsafe fn run<S: Simd>(self) -> [f32; LANES] {
            let mut out = [0.0; LANES];
            // SAFETY: 64 bytes, 4 bytes and 16 floats, as the methods want.
            unsafe {
                let acc = S::dot::<true>(S::zero_i(), S::load_i(self.0.as_ptr()), self.1.as_ptr());
                S::store(out.as_mut_ptr(), S::to_f32(acc));
            }
            out
        }
    }

    #[test]
    fn dot_does_not_overflow() {
        for isa in Isa::available() {
            for s in [[127; 4], [-127; 4], [127, -127, 127, -127], [1, 2, 3, 4]] {
                let u: [u8; 64] = std::array::from_fn(|i| 255 - (i as u8 % 7));
                let got = isa.run(Dot(&u, &s));
                for (lane, got) in got.into_iter().enumerate() {
                    let want: i32 = (0..4).map(|i| u[lane * 4 + i] as i32 * s[i] as i32).sum();
                    assert_eq!(got, want as f32, "{} lane {lane}", isa.name());
                }
            }
        }
    }
}
