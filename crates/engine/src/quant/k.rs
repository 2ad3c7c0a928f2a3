//! The formats with blocks of 256 values: sub-blocks of 16 or 32 with small integer scales of their own,
//! which one or two f16 scale in turn.

use super::dequantize::IQ4_VALUES;
use super::floats::f16_at;

// 16 x (scale 4 bits, minimum 4 bits), 64 bytes of 2-bit codes, scale f16, minimum f16; sub-blocks of 16
pub(super) fn q2_k(block: &[u8], out: &mut [f32]) {
    let (scales, codes) = (&block[..16], &block[16..80]);
    let (scale, min) = (f16_at(block, 80), f16_at(block, 82));
    for (i, out) in out.iter_mut().enumerate() {
        let sub = scales[i / 16];
        let code = two_bits(codes, i);
        *out = scale * f32::from(sub & 0x0F) * f32::from(code) - min * f32::from(sub >> 4);
    }
}

// 256 third bits, 64 bytes of 2-bit codes, 16 x scale of 6 bits, scale f16; sub-blocks of 16
pub(super) fn q3_k(block: &[u8], out: &mut [f32]) {
    let (bits, codes, scales) = (&block[..32], &block[32..96], &block[96..108]);
    let scale = f16_at(block, 108);
    for (i, out) in out.iter_mut().enumerate() {
        let third = bits[i % 32] >> (i / 32) & 1;
        let code = f32::from(two_bits(codes, i)) - if third == 1 { 0.0 } else { 4.0 };
        *out = scale * (f32::from(q3_scale(scales, i / 16)) - 32.0) * code;
    }
}

/// The two bits of value `i`: each run of 32 bytes holds 128 values, the first 32 in the lowest bits.
fn two_bits(codes: &[u8], i: usize) -> u8 {
    codes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3
}

/// Scale `j` of 16: four low bits in the first 8 bytes, two high bits in the last 4.
fn q3_scale(scales: &[u8], j: usize) -> u8 {
    let low = scales[j % 8] >> (j / 8 * 4) & 0x0F;
    let high = scales[8 + j % 4] >> (j / 4 * 2) & 3;
    low | high << 4
}

// scale f16, minimum f16, 8 x (scale, minimum) of 6 bits, 128 bytes of nibbles; sub-blocks of 32
pub(super) fn q4_k(block: &[u8], out: &mut [f32]) {
    let (scale, min) = (f16_at(block, 0), f16_at(block, 2));
    let (scales, codes) = (&block[4..16], &block[16..]);
    for (i, out) in out.iter_mut().enumerate() {
        let (sub_scale, sub_min) = scale_and_min(scales, i / 32);
        let code = nibble(codes, i);
        *out = scale * f32::from(sub_scale) * f32::from(code) - min * f32::from(sub_min);
    }
}

// as q4_k, with 256 fifth bits before the nibbles
pub(super) fn q5_k(block: &[u8], out: &mut [f32]) {
    let (scale, min) = (f16_at(block, 0), f16_at(block, 2));
    let (scales, bits, codes) = (&block[4..16], &block[16..48], &block[48..]);
    for (i, out) in out.iter_mut().enumerate() {
        let (sub_scale, sub_min) = scale_and_min(scales, i / 32);
        let fifth = bits[i % 32] >> (i / 32) & 1;
        let code = nibble(codes, i) | fifth << 4;
        *out = scale * f32::from(sub_scale) * f32::from(code) - min * f32::from(sub_min);
    }
}

/// The nibble of value `i`: each run of 32 bytes holds 64 values, the first 32 in the low nibbles.
fn nibble(codes: &[u8], i: usize) -> u8 {
    codes[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 0x0F
}

/// Scale and minimum `j` of 8, 6 bits each. The first four lie whole in bytes 0-3 and 4-7; of the last
/// four the low bits share bytes 8-11 and the high bits are the spare ones of bytes 0-7.
pub(super) fn scale_and_min(scales: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        return (scales[j] & 0x3F, scales[j + 4] & 0x3F);
    }
    let low = scales[j + 4];
    (low & 0x0F | scales[j - 4] >> 6 << 4, low >> 4 | scales[j] >> 6 << 4)
}

// 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 x scale i8, scale f16; sub-blocks of 16
pub(super) fn q6_k(block: &[u8], out: &mut [f32]) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let scale = f16_at(block, 208);
    for (i, out) in out.iter_mut().enumerate() {
        let nibble = low[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 0x0F;
        let code = nibble | two_bits(high, i) << 4;
        *out = scale * f32::from(scales[i / 16] as i8) * (f32::from(code) - 32.0);
    }
}

// scale f16, 8 x two high bits of a scale, 8 x four low bits of it, 128 bytes of nibbles that index a
// table; sub-blocks of 32, each with its first half in the low nibbles
pub(super) fn iq4_xs(block: &[u8], out: &mut [f32]) {
    let scale = f16_at(block, 0);
    let high = u16::from_le_bytes([block[2], block[3]]);
    let (low, codes) = (&block[4..8], &block[8..]);
    for (i, out) in out.iter_mut().enumerate() {
        let j = i / 32;
        let sub_scale = low[j / 2] >> (j % 2 * 4) & 0x0F | ((high >> (2 * j) & 3) << 4) as u8;
        let code = codes[j * 16 + i % 16] >> (i % 32 / 16 * 4) & 0x0F;
        *out = scale * (f32::from(sub_scale) - 32.0) * f32::from(IQ4_VALUES[usize::from(code)]);
    }
}
