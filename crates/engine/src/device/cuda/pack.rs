//! Weights in the order in which the lanes of a warp read them: `kernels/pack.cuh` says why.

use super::shape::TILE_ROWS;

const BLOCK_COLS: usize = 32;
const GROUP_BLOCKS: usize = 4;
const ROW_HALVES: usize = 2;
const ROWS: usize = TILE_ROWS / ROW_HALVES; // of a half

/// How a matrix lies on the card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    Rows8,   // bytes, one scale a row elsewhere
    Mxfp4,   // 4-bit codes and a power of two for each 32 columns
    Levels4, // levels, and scale and the level that means 0, a byte each, for each 32 columns; a factor a row elsewhere
    Levels8, // levels, and scale and minimum in f16 for each 32 columns
}

impl Packing {
    /// Of 32 columns of a row.
    const fn block_bytes(self) -> usize {
        match self {
            Packing::Rows8 => 32,
            Packing::Mxfp4 => 17,
            Packing::Levels4 => 18,
            Packing::Levels8 => 36,
        }
    }

    pub const fn bytes(self, rows: usize, cols: usize) -> usize {
        rows * cols / BLOCK_COLS * self.block_bytes()
    }
}

/// The groups of a row of `cols` columns: first block, and how many.
fn groups(cols: usize) -> impl Iterator<Item = (usize, usize)> {
    let blocks = cols / BLOCK_COLS;
    (0..blocks).step_by(GROUP_BLOCKS).map(move |first| (first, GROUP_BLOCKS.min(blocks - first)))
}

/// Packs (rows, cols) bytes.
pub fn pack_8bit(values: &[i8], cols: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(values.len());
    for tile in values.chunks_exact(TILE_ROWS * cols) {
        for (first, count) in groups(cols) {
            for half in 0..ROW_HALVES {
                for part in 0..2 {
                    for g in 0..ROWS {
                        for t in 0..count {
                            let at = (half * ROWS + g) * cols + (first + t) * BLOCK_COLS + part * 16;
                            out.extend(tile[at..at + 16].iter().map(|&value| value as u8));
                        }
                    }
                }
            }
        }
    }
    out
}

/// Packs rows of MXFP4 blocks as GGUF has them: a scale, then 16 bytes whose low nibbles are columns 0 to 15.
pub fn pack_mxfp4(blocks: &[u8], cols: usize) -> Vec<u8> {
    let row_bytes = cols / BLOCK_COLS * 17;
    let mut out = Vec::with_capacity(blocks.len());
    for tile in blocks.chunks_exact(TILE_ROWS * row_bytes) {
        let block = |row: usize, index: usize| &tile[row * row_bytes + index * 17..][..17];
        for (first, count) in groups(cols) {
            for row in 0..TILE_ROWS {
                for t in 0..count {
                    out.extend(codes_in_order(&block(row, first + t)[1..]));
                }
            }
            for g in 0..ROWS {
                for t in 0..count {
                    out.extend([block(g, first + t)[0], block(ROWS + g, first + t)[0]]);
                }
            }
        }
    }
    out
}

/// A block's 32 codes as four words, eight columns each.
fn codes_in_order(bytes: &[u8]) -> impl Iterator<Item = u8> {
    let code = |col: usize| u32::from(if col < 16 { bytes[col] & 0x0F } else { bytes[col - 16] >> 4 });
    let word =
        move |first: usize| (0..8).map(|i| spread(i, code(first + i))).fold(0, |word, bits| word | bits);
    (0..4).flat_map(move |i| word(8 * i).to_le_bytes())
}

/// The bits of the code of a word's `index`-th column: sign and the other three apart.
fn spread(index: usize, code: u32) -> u32 {
    const SIGNS: [u32; 4] = [15, 12, 14, 13];
    const RESTS: [u32; 4] = [9, 6, 3, 0];
    let (pair, half) = (index / 2, 16 * (index % 2) as u32);
    ((code >> 3) << SIGNS[pair] | (code & 7) << RESTS[pair]) << half
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_matrix_has_every_value_once() {
        let cols = 5 * BLOCK_COLS; // one whole group, and a tail of one block
        let values: Vec<i8> = (0..TILE_ROWS * cols).map(|i| (i % 251) as i8).collect();
        let mut packed: Vec<i8> = pack_8bit(&values, cols).into_iter().map(|byte| byte as i8).collect();
        // Lane (g, t) = (3, 2) of the first group: 16 bytes of row 3, block 2.
        assert_eq!(packed[(3 * 4 + 2) * 16..][..16], values[3 * cols + 64..][..16]);
        let mut expected = values;
        expected.sort_unstable();
        packed.sort_unstable();
        assert_eq!(packed, expected);
    }

    #[test]
    fn a_pair_of_codes_unmasked_is_a_pair_of_f16() {
        let bytes: Vec<u8> = (0..16).map(|i| i | (15 - i) << 4).collect();
        let words: Vec<u8> = codes_in_order(&bytes).collect();
        let word = u32::from_le_bytes([words[0], words[1], words[2], words[3]]);
        let f16 = |bits: u32| half::f16::from_bits(bits as u16).to_f32() * 16384.0;
        let (signs, rest) = (0x8000_8000, 0x0E00_0E00);
        let pairs = [
            word & (signs | rest),
            word << 3 & (signs | rest),
            word << 6 & rest | word << 1 & signs,
            word << 9 & rest | word << 2 & signs,
        ];
        let values: Vec<f32> = pairs.iter().flat_map(|pair| [f16(pair & 0xFFFF), f16(pair >> 16)]).collect();
        assert_eq!(values, [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]); // codes 0 to 7 of e2m1
    }
}
