//! Quantised rows taken apart: whole-number levels, scales and minima, each in reading order.
//!
//! Devices repack weights from these. A weight is `scale * (level - zero)` or `scale * level + minimum`,
//! times the super factors where the format has them; `quant::dequantize_row` is the plain meaning.

use super::Format;

/// One row. Scales and minima are the stored bits: f16, u8, i8 or e8m0 as the format has it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Levels {
    pub levels: Vec<u8>,        // (cols)
    pub scales: Vec<u16>,       // (groups)
    pub minima: Vec<u16>,       // (groups), or none. Of K formats: to be subtracted
    pub super_scales: Vec<u16>, // (cols / 256) f16, or none
    pub super_minima: Vec<u16>, // (cols / 256) f16, or none. Negated: to be added
}

impl Levels {
    pub fn clear(&mut self) {
        let Levels { levels, scales, minima, super_scales, super_minima } = self;
        levels.clear();
        [scales, minima, super_scales, super_minima].into_iter().for_each(Vec::clear);
    }
}

/// Takes apart a row of a quantised format. `bytes` holds whole blocks.
pub fn read_levels(format: Format, bytes: &[u8], out: &mut Levels) {
    out.clear();
    let Levels { levels, scales, minima, super_scales, super_minima } = out;
    for block in bytes.chunks_exact(format.block_bytes()) {
        match format {
            Format::Q4_0 | Format::Iq4Nl => {
                scales.push(half_at(block, 0));
                push_nibbles(levels, &block[2..18]);
            }
            Format::Q4_1 => {
                scales.push(half_at(block, 0));
                minima.push(half_at(block, 2));
                push_nibbles(levels, &block[4..20]);
            }
            Format::Q5_0 => {
                scales.push(half_at(block, 0));
                push_nibbles_and_bits(levels, &block[6..22], &block[2..6]);
            }
            Format::Q5_1 => {
                scales.push(half_at(block, 0));
                minima.push(half_at(block, 2));
                push_nibbles_and_bits(levels, &block[8..24], &block[4..8]);
            }
            Format::Q8_0 => {
                scales.push(half_at(block, 0));
                levels.extend(block[2..34].iter().map(|&q| q ^ 0x80));
            }
            Format::Mxfp4 => {
                // The table of levels is doubled, so the power of two is halved.
                scales.push(block[0].saturating_sub(1) as u16);
                push_nibbles(levels, &block[1..17]);
            }
            Format::Q2K => {
                super_scales.push(half_at(block, 80));
                super_minima.push(half_at(block, 82) ^ 0x8000);
                scales.extend(block[..16].iter().map(|s| (s & 15) as u16));
                minima.extend(block[..16].iter().map(|s| (s >> 4) as u16));
                levels.extend((0..256).map(|i| two_bits(&block[16..80], i)));
            }
            Format::Q3K => {
                super_scales.push(half_at(block, 108));
                scales.extend((0..16).map(|i| q3_scale(&block[96..108], i)));
                levels.extend((0..256).map(|i| {
                    let high = block[i % 32] >> (i / 32) & 1;
                    two_bits(&block[32..96], i) | high << 2
                }));
            }
            Format::Q4K => {
                push_k_scales(block, scales, minima, super_scales, super_minima);
                for pair in block[16..144].chunks_exact(32) {
                    levels.extend(pair.iter().map(|q| q & 15));
                    levels.extend(pair.iter().map(|q| q >> 4));
                }
            }
            Format::Q5K => {
                push_k_scales(block, scales, minima, super_scales, super_minima);
                for (j, pair) in block[48..176].chunks_exact(32).enumerate() {
                    let high = |l: usize, bit: usize| (block[16 + l] >> bit & 1) << 4;
                    levels.extend(pair.iter().enumerate().map(|(l, q)| q & 15 | high(l, 2 * j)));
                    levels.extend(pair.iter().enumerate().map(|(l, q)| q >> 4 | high(l, 2 * j + 1)));
                }
            }
            Format::Q6K => {
                super_scales.push(half_at(block, 208));
                scales.extend(block[192..208].iter().map(|&s| s as u16));
                levels.extend((0..256).map(|i| six_bits(&block[..128], &block[128..192], i)));
            }
            Format::Iq4Xs => {
                super_scales.push(half_at(block, 0));
                scales.extend((0..8).map(|i| iq4_xs_scale(block, i)));
                block[8..136].chunks_exact(16).for_each(|codes| push_nibbles(levels, codes));
            }
            Format::F32 | Format::F16 | Format::Bf16 | Format::Fp8 => {}
        }
    }
}

fn half_at(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

/// 16 bytes: the low halves are the first 16 levels, the high halves the next.
fn push_nibbles(levels: &mut Vec<u8>, codes: &[u8]) {
    levels.extend(codes.iter().map(|q| q & 15));
    levels.extend(codes.iter().map(|q| q >> 4));
}

/// As [`push_nibbles`], with a fifth bit for each level.
fn push_nibbles_and_bits(levels: &mut Vec<u8>, codes: &[u8], bits: &[u8]) {
    let start = levels.len();
    push_nibbles(levels, codes);
    for (i, level) in levels[start..].iter_mut().enumerate() {
        *level |= (bits[i / 8] >> (i % 8) & 1) << 4;
    }
}

/// Level `i` of the 2-bit plane of Q2_K and Q3_K: 128 levels lie in 32 bytes.
fn two_bits(plane: &[u8], i: usize) -> u8 {
    plane[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3
}

/// Level `i` of Q6_K: 128 levels lie in 64 bytes of low and 32 bytes of high bits.
fn six_bits(low: &[u8], high: &[u8], i: usize) -> u8 {
    let (part, quarter, l) = (i / 128, i % 128 / 32, i % 32);
    let nibble = low[part * 64 + quarter % 2 * 32 + l] >> (quarter / 2 * 4) & 15;
    let pair = high[part * 32 + l] >> (quarter * 2) & 3;
    nibble | pair << 4
}

fn q3_scale(packed: &[u8], i: usize) -> u16 {
    let low = packed[i % 8] >> (i / 8 * 4) & 15;
    let high = packed[8 + i % 4] >> (i / 4 * 2) & 3;
    (low | high << 4).wrapping_sub(32) as u16
}

fn iq4_xs_scale(block: &[u8], i: usize) -> u16 {
    let low = block[4 + i / 2] >> (i % 2 * 4) & 15;
    let high = (half_at(block, 2) >> (2 * i) & 3) as u8;
    (low | high << 4).wrapping_sub(32) as u16
}

/// The 6-bit scales and minima at the head of Q4_K and Q5_K.
fn push_k_scales(
    block: &[u8],
    scales: &mut Vec<u16>,
    minima: &mut Vec<u16>,
    super_scales: &mut Vec<u16>,
    super_minima: &mut Vec<u16>,
) {
    super_scales.push(half_at(block, 0));
    super_minima.push(half_at(block, 2) ^ 0x8000);
    let packed = &block[4..16];
    for i in 0..8 {
        let (scale, minimum) = match i {
            0..4 => (packed[i] & 63, packed[i + 4] & 63),
            _ => (packed[i + 4] & 15 | packed[i - 4] >> 6 << 4, packed[i + 4] >> 4 | packed[i] >> 6 << 4),
        };
        scales.push(scale as u16);
        minima.push(minimum as u16);
    }
}
