//! The small float formats that weights and their scales are stored in.

use half::{bf16, f16};

/// The f16 at the start of `bytes`, little-endian.
pub(super) fn f16_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

pub(super) fn bf16_at(bytes: &[u8], at: usize) -> f32 {
    bf16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

pub(super) fn f32_at(bytes: &[u8], at: usize) -> f32 {
    f32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// An 8-bit float with 4 exponent bits (bias 7) and 3 of mantissa; it has no infinity, and NaN is all ones.
pub fn e4m3_to_f32(byte: u8) -> f32 {
    let sign = if byte & 0x80 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from(byte >> 3 & 0x0F);
    let mantissa = f32::from(byte & 0x07);
    let magnitude = match (exponent, byte & 0x07) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa * 2f32.powi(-9),
        _ => (8.0 + mantissa) * 2f32.powi(exponent - 10),
    };
    sign * magnitude
}

/// Half of an 8-bit power of two (bias 127), which goes with e2m1 values stored doubled.
pub fn e8m0_half_to_f32(byte: u8) -> f32 {
    match byte {
        0 => f32::from_bits(0x0020_0000),
        1 => f32::from_bits(0x0040_0000),
        _ => f32::from_bits(u32::from(byte - 1) << 23),
    }
}

#[cfg(test)]
mod tests {
    use super::{e4m3_to_f32, e8m0_half_to_f32};

    #[test]
    fn e4m3_has_the_values_of_its_specification() {
        let cases = [
            (0x00, 0.0),
            (0x01, 0.001953125),
            (0x08, 0.015625),
            (0x38, 1.0),
            (0x3C, 1.5),
            (0xB8, -1.0),
            (0x7E, 448.0),
            (0xFE, -448.0),
        ];
        for (byte, value) in cases {
            assert_eq!(e4m3_to_f32(byte), value, "{byte:#x}");
        }
        assert!(e4m3_to_f32(0x7F).is_nan() && e4m3_to_f32(0xFF).is_nan());
    }

    #[test]
    fn e8m0_is_a_halved_power_of_two() {
        for byte in 0..=254u8 {
            assert_eq!(f64::from(e8m0_half_to_f32(byte)), 2f64.powi(i32::from(byte) - 128), "{byte}");
        }
    }
}
