//! Every format against values that the reference implementation gave (`make.py`), bit for bit.

use super::{Format, dequantize_row, quantize_row};

fn golden(format: Format) -> &'static [u8] {
    match format {
        Format::F32 => include_bytes!("F32.bin"),
        Format::F16 => include_bytes!("F16.bin"),
        Format::Bf16 => include_bytes!("BF16.bin"),
        Format::Q4_0 => include_bytes!("Q4_0.bin"),
        Format::Q4_1 => include_bytes!("Q4_1.bin"),
        Format::Q5_0 => include_bytes!("Q5_0.bin"),
        Format::Q5_1 => include_bytes!("Q5_1.bin"),
        Format::Q8_0 => include_bytes!("Q8_0.bin"),
        Format::Q2K => include_bytes!("Q2_K.bin"),
        Format::Q3K => include_bytes!("Q3_K.bin"),
        Format::Q4K => include_bytes!("Q4_K.bin"),
        Format::Q5K => include_bytes!("Q5_K.bin"),
        Format::Q6K => include_bytes!("Q6_K.bin"),
        Format::Iq4Nl => include_bytes!("IQ4_NL.bin"),
        Format::Iq4Xs => include_bytes!("IQ4_XS.bin"),
        Format::Mxfp4 => include_bytes!("MXFP4.bin"),
        Format::Fp8 => include_bytes!("FP8.bin"),
    }
}

#[test]
fn every_format_gives_the_reference_values() {
    for format in Format::ALL {
        let (count, data) = golden(format).split_first_chunk::<4>().unwrap();
        let count = u32::from_le_bytes(*count) as usize;
        let (blocks, values) = data.split_at(count * format.block_bytes());
        let mut row = vec![0.0; count * format.block_len()];
        dequantize_row(format, blocks, &mut row);
        assert_eq!(values.len(), row.len() * 4, "{}", format.name());
        for (i, (got, want)) in row.iter().zip(values.chunks_exact(4)).enumerate() {
            let want = f32::from_le_bytes(want.try_into().unwrap());
            assert_eq!(got.to_bits(), want.to_bits(), "{} [{i}]: {got} is not {want}", format.name());
        }
    }
}

/// A few hundred values between -1 and 1, none of them special.
fn wave(len: usize) -> Vec<f32> {
    (0..len).map(|i| (i as f32 * 0.37).sin() * (0.2 + (i % 97) as f32 / 120.0)).collect()
}

#[test]
fn quantised_rows_come_back_close() {
    let cases = [
        (Format::F32, 0.0),
        (Format::F16, 5e-4),
        (Format::Bf16, 4e-3),
        (Format::Q8_0, 5e-3),
        (Format::Q4_0, 0.125), // one end of the range has a step less than the other
        (Format::Q4_1, 0.07),
        (Format::Q4K, 0.08),
        (Format::Q6K, 0.02),
    ];
    let row = wave(512);
    for (format, tolerance) in cases {
        let (mut bytes, mut back) = (Vec::new(), vec![0.0; row.len()]);
        assert!(quantize_row(format, &row, &mut bytes));
        dequantize_row(format, &bytes, &mut back);
        let worst = row.iter().zip(&back).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst <= tolerance, "{}: off by {worst}", format.name());
    }
}

#[test]
fn zeros_stay_zeros() {
    for format in [Format::Q8_0, Format::Q4_0, Format::Q4_1, Format::Q4K, Format::Q6K] {
        let (mut bytes, mut back) = (Vec::new(), vec![1.0; 256]);
        assert!(quantize_row(format, &[0.0; 256], &mut bytes));
        dequantize_row(format, &bytes, &mut back);
        assert_eq!(back, [0.0; 256], "{}", format.name());
    }
}

#[test]
fn formats_without_a_quantiser_say_so() {
    let mut bytes = Vec::new();
    assert!(!quantize_row(Format::Iq4Xs, &[0.0; 256], &mut bytes));
    assert!(bytes.is_empty());
}
