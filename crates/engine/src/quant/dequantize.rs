//! Weights back to f32, one row at a time.
//!
//! Formats with blocks of 32 are here, those with blocks of 256 in `k`. In all 4-bit formats the low
//! nibbles of a block's bytes are its first half and the high nibbles its second.

use super::floats::{bf16_at, e4m3_to_f32, e8m0_half_to_f32, f16_at, f32_at};
use super::{Format, k};

/// The values of IQ4's 16 codes.
pub(super) const IQ4_VALUES: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the values of MXFP4's 16 codes (e2m1: sign, two bits of exponent, one of mantissa).
const E2M1_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Writes the values of one row of `out.len()` columns. FP8 gives the bare e4m3 values; their scales are
/// the tensor's business.
///
/// Panics when `bytes` is not exactly `format.row_bytes(out.len())` long: tensors are checked at load.
pub fn dequantize_row(format: Format, bytes: &[u8], out: &mut [f32]) {
    assert_eq!(out.len() % format.block_len(), 0, "{} columns in {}", out.len(), format.name());
    assert_eq!(bytes.len(), format.row_bytes(out.len()), "bytes of a row in {}", format.name());
    let decode = decoder(format);
    if format.block_len() == 1 {
        return decode(bytes, out);
    }
    let blocks = bytes.chunks_exact(format.block_bytes());
    for (bytes, out) in blocks.zip(out.chunks_exact_mut(format.block_len())) {
        decode(bytes, out);
    }
}

/// What decodes a block, or a row of values that stand by themselves: a call for each would take longer than all else.
fn decoder(format: Format) -> fn(&[u8], &mut [f32]) {
    match format {
        Format::F32 => |bytes, out| values::<4>(bytes, out, |bytes| f32_at(bytes, 0)),
        Format::F16 => |bytes, out| values::<2>(bytes, out, |bytes| f16_at(bytes, 0)),
        Format::Bf16 => |bytes, out| values::<2>(bytes, out, |bytes| bf16_at(bytes, 0)),
        Format::Fp8 => |bytes, out| values::<1>(bytes, out, |bytes| e4m3_to_f32(bytes[0])),
        Format::Q4_0 => q4_0,
        Format::Q4_1 => q4_1,
        Format::Q5_0 => q5_0,
        Format::Q5_1 => q5_1,
        Format::Q8_0 => q8_0,
        Format::Iq4Nl => iq4_nl,
        Format::Mxfp4 => mxfp4,
        Format::Q2K => k::q2_k,
        Format::Q3K => k::q3_k,
        Format::Q4K => k::q4_k,
        Format::Q5K => k::q5_k,
        Format::Q6K => k::q6_k,
        Format::Iq4Xs => k::iq4_xs,
    }
}

/// Sets values of so many bytes each.
fn values<const BYTES: usize>(bytes: &[u8], out: &mut [f32], value: impl Fn(&[u8]) -> f32) {
    for (bytes, out) in bytes.chunks_exact(BYTES).zip(out) {
        *out = value(bytes);
    }
}

/// Sets a block of 32 from its 16 bytes of nibbles; `value` gets the position and the code.
fn nibbles(bytes: &[u8], out: &mut [f32], value: impl Fn(usize, u8) -> f32) {
    for (i, byte) in bytes.iter().enumerate() {
        out[i] = value(i, byte & 0x0F);
        out[i + 16] = value(i + 16, byte >> 4);
    }
}

// scale f16, 16 bytes of nibbles
fn q4_0(block: &[u8], out: &mut [f32]) {
    let scale = f16_at(block, 0);
    nibbles(&block[2..], out, |_, code| scale * (f32::from(code) - 8.0));
}

// scale f16, minimum f16, 16 bytes of nibbles
fn q4_1(block: &[u8], out: &mut [f32]) {
    let (scale, min) = (f16_at(block, 0), f16_at(block, 2));
    nibbles(&block[4..], out, |_, code| scale * f32::from(code) + min);
}

/// The fifth bit of value `i`, in place.
fn fifth_bit(bits: &[u8], i: usize) -> u8 {
    (bits[i / 8] >> (i % 8) & 1) << 4
}

// scale f16, 32 fifth bits, 16 bytes of nibbles
fn q5_0(block: &[u8], out: &mut [f32]) {
    let scale = f16_at(block, 0);
    let bits = &block[2..6];
    nibbles(&block[6..], out, |i, code| scale * (f32::from(code | fifth_bit(bits, i)) - 16.0));
}

// scale f16, minimum f16, 32 fifth bits, 16 bytes of nibbles
fn q5_1(block: &[u8], out: &mut [f32]) {
    let (scale, min) = (f16_at(block, 0), f16_at(block, 2));
    let bits = &block[4..8];
    nibbles(&block[8..], out, |i, code| scale * f32::from(code | fifth_bit(bits, i)) + min);
}

// scale f16, 32 x i8
fn q8_0(block: &[u8], out: &mut [f32]) {
    let scale = f16_at(block, 0);
    for (out, byte) in out.iter_mut().zip(&block[2..]) {
        *out = f32::from(*byte as i8) * scale;
    }
}

// scale f16, 16 bytes of nibbles that index a table
fn iq4_nl(block: &[u8], out: &mut [f32]) {
    let scale = f16_at(block, 0);
    nibbles(&block[2..], out, |_, code| scale * f32::from(IQ4_VALUES[usize::from(code)]));
}

// scale e8m0, 16 bytes of nibbles, each an e2m1
fn mxfp4(block: &[u8], out: &mut [f32]) {
    let half_scale = e8m0_half_to_f32(block[0]);
    nibbles(&block[1..], out, |_, code| half_scale * f32::from(E2M1_DOUBLED[usize::from(code)]));
}
