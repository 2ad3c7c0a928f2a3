//! Rows put together again from their levels and scales: what `levels::read_levels` took apart.

use super::Format;
use super::levels::Levels;

/// Appends a row of a quantised format, block by block.
pub fn write_blocks(format: Format, row: &Levels, out: &mut Vec<u8>) {
    let blocks = row.levels.len() / format.block_len();
    let groups = row.scales.len() / blocks.max(1); // of a block
    for index in 0..blocks {
        let block = Block {
            levels: &row.levels[index * format.block_len()..][..format.block_len()],
            scales: &row.scales[index * groups..][..groups],
            minima: row.minima.get(index * groups..(index + 1) * groups).unwrap_or_default(),
            super_scale: row.super_scales.get(index).copied().unwrap_or(0),
            super_minimum: row.super_minima.get(index).map_or(0, |bits| bits ^ 0x8000),
        };
        block.write(format, out);
    }
}

/// One block, taken apart.
struct Block<'a> {
    levels: &'a [u8],
    scales: &'a [u16],
    minima: &'a [u16],
    super_scale: u16,
    super_minimum: u16,
}

impl Block<'_> {
    fn write(&self, format: Format, out: &mut Vec<u8>) {
        match format {
            Format::Q4_0 | Format::Iq4Nl => {
                push_halves(out, self.scales);
                push_nibbles(out, self.levels);
            }
            Format::Q4_1 => {
                push_halves(out, self.scales);
                push_halves(out, self.minima);
                push_nibbles(out, self.levels);
            }
            Format::Q5_0 | Format::Q5_1 => {
                push_halves(out, self.scales);
                push_halves(out, self.minima);
                out.extend(self.levels.chunks_exact(8).map(|eight| bits(eight, 4)));
                push_nibbles(out, self.levels);
            }
            Format::Q8_0 => {
                push_halves(out, self.scales);
                out.extend(self.levels.iter().map(|level| level ^ 0x80));
            }
            Format::Mxfp4 => {
                out.push((self.scales[0] as u8).saturating_add(1));
                push_nibbles(out, self.levels);
            }
            Format::Q2K => {
                out.extend(self.scales.iter().zip(self.minima).map(|(s, m)| *s as u8 | (*m as u8) << 4));
                push_pairs(out, self.levels, 0);
                push_halves(out, &[self.super_scale, self.super_minimum]);
            }
            Format::Q3K => {
                out.extend(self.bits_of_columns(2));
                push_pairs(out, self.levels, 0);
                out.extend(q3_scales(self.scales));
                push_halves(out, &[self.super_scale]);
            }
            Format::Q4K => {
                self.push_k_scales(out);
                push_nibbles_of_64(out, self.levels);
            }
            Format::Q5K => {
                self.push_k_scales(out);
                out.extend(self.bits_of_columns(4));
                push_nibbles_of_64(out, self.levels);
            }
            Format::Q6K => {
                for half in self.levels.chunks_exact(128) {
                    out.extend((0..64).map(|i| half[i] & 15 | half[i + 64] << 4));
                }
                push_pairs(out, self.levels, 4);
                out.extend(self.scales.iter().map(|scale| *scale as u8));
                push_halves(out, &[self.super_scale]);
            }
            Format::Iq4Xs => {
                let scale = |j: usize| (self.scales[j] as u8).wrapping_add(32);
                let high = (0..8).fold(0, |high, j| high | u16::from(scale(j) >> 4) << (2 * j));
                push_halves(out, &[self.super_scale, high]);
                out.extend((0..4).map(|j| scale(2 * j) & 15 | scale(2 * j + 1) << 4));
                self.levels.chunks_exact(32).for_each(|levels| push_nibbles(out, levels));
            }
            Format::F32 | Format::F16 | Format::Bf16 | Format::Fp8 => {}
        }
    }

    fn push_k_scales(&self, out: &mut Vec<u8>) {
        push_halves(out, &[self.super_scale, self.super_minimum]);
        let eight = |factors: &[u16]| std::array::from_fn(|j| factors[j] as u8);
        out.extend(pack_scales_and_minima(&eight(self.scales), &eight(self.minima)));
    }

    /// 32 bytes: byte `i` has this bit of the levels `i`, `i + 32` and so on.
    fn bits_of_columns(&self, bit: u8) -> impl Iterator<Item = u8> {
        (0..32).map(move |i| (0..8).fold(0, |byte, j| byte | (self.levels[32 * j + i] >> bit & 1) << j))
    }
}

/// Eight scales and minima of 6 bits, as Q4_K and Q5_K have them.
pub(super) fn pack_scales_and_minima(scales: &[u8; 8], minima: &[u8; 8]) -> [u8; 12] {
    let mut packed = [0; 12];
    for j in 0..4 {
        packed[j] = scales[j] | scales[j + 4] >> 4 << 6;
        packed[j + 4] = minima[j] | minima[j + 4] >> 4 << 6;
        packed[j + 8] = scales[j + 4] & 0x0F | minima[j + 4] << 4;
    }
    packed
}

/// Sixteen scales of 6 bits: the low four in 8 bytes, the high two in 4.
fn q3_scales(scales: &[u16]) -> [u8; 12] {
    let scale = |j: usize| (scales[j] as u8).wrapping_add(32);
    let mut packed = [0; 12];
    for j in 0..16 {
        packed[j % 8] |= (scale(j) & 15) << (j / 8 * 4);
        packed[8 + j % 4] |= (scale(j) >> 4 & 3) << (j / 4 * 2);
    }
    packed
}

fn push_halves(out: &mut Vec<u8>, halves: &[u16]) {
    out.extend(halves.iter().flat_map(|half| half.to_le_bytes()));
}

/// The first half of the levels in low nibbles, the second in high ones.
pub(super) fn push_nibbles(out: &mut Vec<u8>, levels: &[u8]) {
    let (low, high) = levels.split_at(levels.len() / 2);
    out.extend(low.iter().zip(high).map(|(low, high)| low & 15 | high << 4));
}

fn push_nibbles_of_64(out: &mut Vec<u8>, levels: &[u8]) {
    levels.chunks_exact(64).for_each(|levels| push_nibbles(out, levels));
}

/// Two bits of each level, from `bit` on: 128 levels in 32 bytes.
fn push_pairs(out: &mut Vec<u8>, levels: &[u8], bit: u8) {
    for half in levels.chunks_exact(128) {
        let byte = |i: usize| (0..4).fold(0, |byte, j| byte | (half[32 * j + i] >> bit & 3) << (2 * j));
        out.extend((0..32).map(byte));
    }
}

/// This bit of eight levels, the first one lowest.
fn bits(eight: &[u8], bit: u8) -> u8 {
    eight.iter().enumerate().fold(0, |byte, (i, level)| byte | (level >> bit & 1) << i)
}
