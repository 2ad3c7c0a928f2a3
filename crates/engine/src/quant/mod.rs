//! How weights are stored: block formats, their sizes, and the plain way to f32 and back.
//!
//! `dequantize_row` is the oracle: every fast kernel is tested against it, so it is written to be read,
//! one block at a time, with each format's layout spelled out beside it.

mod blocks;
mod dequantize;
mod fit;
mod floats;
mod k;
pub mod levels;
pub mod panels;
mod quantize;

#[cfg(test)]
mod golden;

pub use dequantize::dequantize_row;
pub use fit::fit_row;
pub use floats::{e4m3_to_f32, e8m0_half_to_f32};
pub use quantize::quantize_row;

/// A storage format of weights: `block_len` values in `block_bytes` bytes.
///
/// The block layouts are ggml's. `Fp8` is e4m3 with a separate scale for each 128 x 128 tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    Iq4Nl,
    Iq4Xs,
    Mxfp4,
    Fp8,
}

impl Format {
    pub const ALL: [Format; 17] = [
        Format::F32,
        Format::F16,
        Format::Bf16,
        Format::Q4_0,
        Format::Q4_1,
        Format::Q5_0,
        Format::Q5_1,
        Format::Q8_0,
        Format::Q2K,
        Format::Q3K,
        Format::Q4K,
        Format::Q5K,
        Format::Q6K,
        Format::Iq4Nl,
        Format::Iq4Xs,
        Format::Mxfp4,
        Format::Fp8,
    ];

    /// Values in one block.
    pub fn block_len(self) -> usize {
        match self {
            Format::F32 | Format::F16 | Format::Bf16 | Format::Fp8 => 1,
            Format::Q4_0 | Format::Q4_1 | Format::Q5_0 | Format::Q5_1 | Format::Q8_0 => 32,
            Format::Iq4Nl | Format::Mxfp4 => 32,
            Format::Q2K | Format::Q3K | Format::Q4K | Format::Q5K | Format::Q6K => 256,
            Format::Iq4Xs => 256,
        }
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> usize {
        match self {
            Format::F32 => 4,
            Format::F16 | Format::Bf16 => 2,
            Format::Fp8 => 1,
            Format::Q4_0 | Format::Iq4Nl => 18,
            Format::Q4_1 => 20,
            Format::Q5_0 => 22,
            Format::Q5_1 => 24,
            Format::Q8_0 => 34,
            Format::Mxfp4 => 17,
            Format::Q2K => 84,
            Format::Q3K => 110,
            Format::Q4K => 144,
            Format::Q5K => 176,
            Format::Q6K => 210,
            Format::Iq4Xs => 136,
        }
    }

    /// The number that GGUF files give this format; `None`: it does not occur there.
    pub fn ggml_type(self) -> Option<u32> {
        match self {
            Format::F32 => Some(0),
            Format::F16 => Some(1),
            Format::Q4_0 => Some(2),
            Format::Q4_1 => Some(3),
            Format::Q5_0 => Some(6),
            Format::Q5_1 => Some(7),
            Format::Q8_0 => Some(8),
            Format::Q2K => Some(10),
            Format::Q3K => Some(11),
            Format::Q4K => Some(12),
            Format::Q5K => Some(13),
            Format::Q6K => Some(14),
            Format::Iq4Nl => Some(20),
            Format::Iq4Xs => Some(23),
            Format::Bf16 => Some(30),
            Format::Mxfp4 => Some(39),
            Format::Fp8 => None,
        }
    }

    pub fn from_ggml_type(id: u32) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.ggml_type() == Some(id))
    }

    /// One value a block: norms, biases and unquantised matrices.
    pub fn is_float(self) -> bool {
        matches!(self, Format::F32 | Format::F16 | Format::Bf16)
    }

    /// Bytes of a row of `cols` values; `cols` must be a multiple of `block_len`.
    pub fn row_bytes(self, cols: usize) -> usize {
        cols / self.block_len() * self.block_bytes()
    }

    pub fn name(self) -> &'static str {
        match self {
            Format::F32 => "F32",
            Format::F16 => "F16",
            Format::Bf16 => "BF16",
            Format::Q4_0 => "Q4_0",
            Format::Q4_1 => "Q4_1",
            Format::Q5_0 => "Q5_0",
            Format::Q5_1 => "Q5_1",
            Format::Q8_0 => "Q8_0",
            Format::Q2K => "Q2_K",
            Format::Q3K => "Q3_K",
            Format::Q4K => "Q4_K",
            Format::Q5K => "Q5_K",
            Format::Q6K => "Q6_K",
            Format::Iq4Nl => "IQ4_NL",
            Format::Iq4Xs => "IQ4_XS",
            Format::Mxfp4 => "MXFP4",
            Format::Fp8 => "FP8",
        }
    }
}
