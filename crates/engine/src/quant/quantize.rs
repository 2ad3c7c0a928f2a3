//! f32 to a few of the formats, by rounding to nearest: for tests and synthetic models, where a search
//! for the best scales would change nothing.

use super::blocks::{pack_scales_and_minima, push_nibbles};
use super::{Format, k};
use half::{bf16, f16};

/// Appends one row in `format`; `false` and nothing appended when there is no quantiser for it.
///
/// Panics when the row is not a whole number of blocks.
pub fn quantize_row(format: Format, row: &[f32], out: &mut Vec<u8>) -> bool {
    assert_eq!(row.len() % format.block_len(), 0, "{} columns in {}", row.len(), format.name());
    let block: fn(&[f32], &mut Vec<u8>) = match format {
        Format::F32 => |x, out| out.extend(x[0].to_le_bytes()),
        Format::F16 => |x, out| push_f16(x[0], out),
        Format::Bf16 => |x, out| out.extend(bf16::from_f32(x[0]).to_le_bytes()),
        Format::Q4_0 => q4_0,
        Format::Q4_1 => q4_1,
        Format::Q8_0 => q8_0,
        Format::Q4K => q4_k,
        Format::Q6K => q6_k,
        Format::Q5_0 | Format::Q5_1 | Format::Q2K | Format::Q3K | Format::Q5K => return false,
        Format::Iq4Nl | Format::Iq4Xs | Format::Mxfp4 | Format::Fp8 => return false,
    };
    row.chunks_exact(format.block_len()).for_each(|x| block(x, out));
    true
}

fn push_f16(value: f32, out: &mut Vec<u8>) {
    out.extend(f16::from_f32(value).to_le_bytes());
}

/// The value of largest magnitude, with its sign.
fn peak(x: &[f32]) -> f32 {
    x.iter().copied().fold(0.0, |peak, x| if x.abs() > f32::abs(peak) { x } else { peak })
}

fn range(x: &[f32]) -> (f32, f32) {
    x.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(min, max), &x| (min.min(x), max.max(x)))
}

fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

/// `x` in steps of `1 / inverse`, rounded, from 0 to `max`.
fn code(x: f32, inverse: f32, max: f32) -> u8 {
    (x * inverse).round().clamp(0.0, max) as u8
}

fn q4_0(x: &[f32], out: &mut Vec<u8>) {
    let scale = peak(x) / -8.0;
    let codes: Vec<u8> = x.iter().map(|x| code(x + 8.0 * scale, inverse(scale), 15.0)).collect();
    push_f16(scale, out);
    push_nibbles(out, &codes);
}

fn q4_1(x: &[f32], out: &mut Vec<u8>) {
    let (min, max) = range(x);
    let scale = (max - min) / 15.0;
    let codes: Vec<u8> = x.iter().map(|x| code(x - min, inverse(scale), 15.0)).collect();
    push_f16(scale, out);
    push_f16(min, out);
    push_nibbles(out, &codes);
}

fn q8_0(x: &[f32], out: &mut Vec<u8>) {
    let scale = peak(x).abs() / 127.0;
    push_f16(scale, out);
    out.extend(x.iter().map(|x| (x * inverse(scale)).round() as i8 as u8));
}

/// Scale and minimum of each sub-block of 32 are 6-bit steps of the block's own largest ones.
fn q4_k(x: &[f32], out: &mut Vec<u8>) {
    let (mut scales, mut mins) = ([0f32; 8], [0f32; 8]);
    for (j, sub) in x.chunks_exact(32).enumerate() {
        let (min, max) = range(sub);
        mins[j] = -min.min(0.0);
        scales[j] = (max + mins[j]).max(0.0) / 15.0;
    }
    let (scale, min) = (f16::from_f32(range(&scales).1 / 63.0), f16::from_f32(range(&mins).1 / 63.0));
    let sub_scales = scales.map(|x| code(x, inverse(scale.to_f32()), 63.0));
    let sub_mins = mins.map(|x| code(x, inverse(min.to_f32()), 63.0));
    out.extend(scale.to_le_bytes());
    out.extend(min.to_le_bytes());
    let packed = pack_scales_and_minima(&sub_scales, &sub_mins);
    out.extend(packed);
    for pair in 0..4 {
        let codes: Vec<u8> = (pair * 64..pair * 64 + 64)
            .map(|i| {
                let (sub_scale, sub_min) = k::scale_and_min(&packed, i / 32);
                let step = scale.to_f32() * f32::from(sub_scale);
                code(x[i] + min.to_f32() * f32::from(sub_min), inverse(step), 15.0)
            })
            .collect();
        push_nibbles(out, &codes);
    }
}

/// Scales of the sub-blocks of 16 are 8-bit steps of the block's own.
fn q6_k(x: &[f32], out: &mut Vec<u8>) {
    let mut scales = [0f32; 16];
    for (j, sub) in x.chunks_exact(16).enumerate() {
        scales[j] = peak(sub) / -32.0;
    }
    let scale = f16::from_f32(peak(&scales) / -128.0);
    let sub_scales = scales.map(|x| (x * inverse(scale.to_f32())).round().clamp(-128.0, 127.0) as i8);
    let (mut low, mut high) = ([0u8; 128], [0u8; 64]);
    for (i, x) in x.iter().enumerate() {
        let step = scale.to_f32() * f32::from(sub_scales[i / 16]);
        let code = code(x + 32.0 * step, inverse(step), 63.0);
        low[i / 128 * 64 + i % 64] |= (code & 0x0F) << (i % 128 / 64 * 4);
        high[i / 128 * 32 + i % 32] |= code >> 4 << (i % 128 / 32 * 2);
    }
    out.extend(low);
    out.extend(high);
    out.extend(sub_scales.map(|s| s as u8));
    out.extend(scale.to_le_bytes());
}
