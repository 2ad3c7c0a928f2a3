//! Weights in the layout that the CPU's kernels read: panels of 16 rows, interleaved for 16 lanes.
//!
//! A panel of a quantised matrix is a row of *stripes*, read from front to back without a jump: memory is
//! only as fast as its prefetchers, and they follow one stream best. A stripe covers 2, 4 or 8 blocks of 32
//! columns, so that its parts fill whole cache lines:
//!
//! - *scales*: for each group of columns, 16 scales, then 16 minima if the format has them.
//! - K formats, whose stripes are 256 columns, have their *minima* after all scales: for each pair of groups, 16 pairs.
//!   Then come the *supers*: 16 f16 factors of the scales, and 16 of the minima.
//! - *levels*: for each block, `bits * 64` bytes. They unpack to 8 vectors of 64 bytes; byte
//!   `4 * row + i` of vector `j` is the level of column `4 * j + i`. Levels are stored as planes: 4 bits of
//!   two vectors in a byte, 2 bits of four, or 1 bit of eight, so that a shift and a mask unpack them.
//!
//! A weight is `scale * level + minimum`; formats without minima have a fixed zero level instead.
//! The layout takes the same bytes as the file, give or take 3%.
//!
//! A panel of unquantised weights is, for each column, the 16 values of its rows.
//!
//! The layout is the same for every instruction set, so files may hold it (`load/flint.rs`): a row can be put into a panel
//! and taken out again as it was.

use super::Format;
use super::blocks::write_blocks;
use super::levels::{Levels, read_levels};
use std::marker::PhantomData;

/// Rows of a panel.
pub const LANES: usize = 16;

/// Columns in one block of levels.
pub const BLOCK: usize = 32;

/// Columns under one factor of the K formats.
pub const LARGE_BLOCK: usize = 256;

/// How the scales of a format are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleKind {
    F16,
    E8m0,
    SuperU8, // times an f16 for each 256 columns
    SuperI8,
}

/// What the kernels need to know of a quantised format, as constants.
pub trait Packing: 'static {
    const BITS: usize;
    const SCALES: ScaleKind;
    const MINIMA: bool;
    const GROUP: usize = 32; // columns under one scale: 16 or 32
    const ZERO: u8 = 1; // level of the weight 0, where there are no minima: a power of two
    const TABLE: Option<[u8; 16]> = None; // levels of a 4-bit code
    /// Levels may exceed 127.
    const WIDE: bool = false;
}

/// Declares the packing of one format.
macro_rules! packing {
    ($name:ident, $bits:expr, $scales:ident, minima: $minima:expr $(, $key:ident = $value:expr)*) => {
        pub struct $name;
        impl Packing for $name {
            const BITS: usize = $bits;
            const SCALES: ScaleKind = ScaleKind::$scales;
            const MINIMA: bool = $minima;
            packing!(@ $($key = $value),*);
        }
    };
    (@ $($key:ident = $value:expr),*) => { $(packing!(@@ $key = $value);)* };
    (@@ GROUP = $value:expr) => { const GROUP: usize = $value; };
    (@@ ZERO = $value:expr) => { const ZERO: u8 = $value; };
    (@@ TABLE = $value:expr) => { const TABLE: Option<[u8; 16]> = Some($value); };
    (@@ WIDE = $value:expr) => { const WIDE: bool = $value; };
}

/// IQ4's sixteen values, raised by 128.
const IQ4_TABLE: [u8; 16] = [1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241];

/// FP4's sixteen values, doubled and raised by 16.
const FP4_TABLE: [u8; 16] = [16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4];

packing!(Q4_0, 4, F16, minima: false, ZERO = 8);
packing!(Q4_1, 4, F16, minima: true);
packing!(Q5_0, 5, F16, minima: false, ZERO = 16);
packing!(Q5_1, 5, F16, minima: true);
packing!(Q8_0, 8, F16, minima: false, ZERO = 128, WIDE = true);
packing!(Iq4Nl, 4, F16, minima: false, ZERO = 128, TABLE = IQ4_TABLE, WIDE = true);
packing!(Mxfp4, 4, E8m0, minima: false, ZERO = 16, TABLE = FP4_TABLE);
packing!(Q2K, 2, SuperU8, minima: true, GROUP = 16);
packing!(Q3K, 3, SuperI8, minima: false, GROUP = 16, ZERO = 4);
packing!(Q4K, 4, SuperU8, minima: true);
packing!(Q5K, 5, SuperU8, minima: true);
packing!(Q6K, 6, SuperI8, minima: false, GROUP = 16, ZERO = 32);
packing!(Iq4Xs, 4, SuperI8, minima: false, ZERO = 128, TABLE = IQ4_TABLE, WIDE = true);

/// Runs `$body` with `$P` standing for the packing of `$format`, or `$otherwise` for a float format.
macro_rules! with_packing {
    ($format:expr, $P:ident => $body:expr, otherwise => $otherwise:expr) => {{
        use $crate::quant::panels;
        match $format {
            Format::Q4_0 => {
                type $P = panels::Q4_0;
                $body
            }
            Format::Q4_1 => {
                type $P = panels::Q4_1;
                $body
            }
            Format::Q5_0 => {
                type $P = panels::Q5_0;
                $body
            }
            Format::Q5_1 => {
                type $P = panels::Q5_1;
                $body
            }
            Format::Q8_0 => {
                type $P = panels::Q8_0;
                $body
            }
            Format::Q2K => {
                type $P = panels::Q2K;
                $body
            }
            Format::Q3K => {
                type $P = panels::Q3K;
                $body
            }
            Format::Q4K => {
                type $P = panels::Q4K;
                $body
            }
            Format::Q5K => {
                type $P = panels::Q5K;
                $body
            }
            Format::Q6K => {
                type $P = panels::Q6K;
                $body
            }
            Format::Iq4Nl => {
                type $P = panels::Iq4Nl;
                $body
            }
            Format::Iq4Xs => {
                type $P = panels::Iq4Xs;
                $body
            }
            Format::Mxfp4 => {
                type $P = panels::Mxfp4;
                $body
            }
            Format::F32 | Format::F16 | Format::Bf16 | Format::Fp8 => $otherwise,
        }
    }};
}
pub(crate) use with_packing;

/// Where the parts of a stripe lie, in bytes from its start.
pub struct Stripe<P>(PhantomData<P>);

impl<P: Packing> Stripe<P> {
    /// Blocks of 32 columns; the last stripe of a panel may have fewer in use.
    pub const BLOCKS: usize = match P::SCALES {
        ScaleKind::F16 => 2,
        ScaleKind::E8m0 => 4,
        ScaleKind::SuperU8 | ScaleKind::SuperI8 => 8,
    };
    pub const SCALE_BYTES: usize = if matches!(P::SCALES, ScaleKind::F16) { 2 } else { 1 };
    pub const HAS_SUPERS: bool = matches!(P::SCALES, ScaleKind::SuperU8 | ScaleKind::SuperI8);
    /// Vectors of scales for a group, and of supers for a stripe.
    pub const VECTORS: usize = 1 + P::MINIMA as usize;
    pub const GROUPS: usize = BLOCK / P::GROUP; // in a block

    pub const SCALES: usize = 0;
    /// Of formats with supers.
    pub const MINIMA: usize = Self::BLOCKS * Self::GROUPS * LANES;
    pub const SUPERS: usize = Self::BLOCKS * Self::GROUPS * LANES * Self::SCALE_BYTES * Self::VECTORS;
    pub const LEVELS: usize =
        (Self::SUPERS + Self::HAS_SUPERS as usize * LANES * 2 * Self::VECTORS).next_multiple_of(64);
    pub const BLOCK_BYTES: usize = P::BITS * 64;
    pub const BYTES: usize = Self::LEVELS + Self::BLOCKS * Self::BLOCK_BYTES;

    fn panel_bytes(cols: usize) -> usize {
        (cols / BLOCK).div_ceil(Self::BLOCKS) * Self::BYTES
    }
}

/// Bytes of one panel of rows of `cols` values.
pub fn panel_bytes(format: Format, cols: usize) -> usize {
    with_packing!(format, P => Stripe::<P>::panel_bytes(cols),
        otherwise => (cols * LANES * format.block_bytes()).next_multiple_of(64))
}

/// Bytes of a matrix; `None` where there are too many to count.
pub fn matrix_bytes(format: Format, rows: usize, cols: usize) -> Option<usize> {
    let wide = cols.checked_mul(LANES * 8)?; // more than any format has for a panel
    wide.checked_mul(rows.div_ceil(LANES))?;
    Some(rows.div_ceil(LANES) * panel_bytes(format, cols))
}

/// Puts rows into panels, and takes them out.
#[derive(Default)]
pub struct Packer {
    levels: Levels,
}

impl Packer {
    /// Writes a row, given in the blocks of its format, to a lane of a panel that is zero there.
    pub fn put(&mut self, format: Format, blocks: &[u8], lane: usize, panel: &mut [u8]) {
        with_packing!(format, P => {
            read_levels(format, blocks, &mut self.levels);
            put_levels::<P>(&self.levels, lane, panel)
        }, otherwise => {
            let bytes = format.block_bytes();
            for (col, value) in blocks.chunks_exact(bytes).enumerate() {
                let at = (col * LANES + lane) * bytes;
                panel[at..at + bytes].copy_from_slice(value);
            }
        })
    }

    /// The row of a lane, in the blocks of its format.
    pub fn take(&mut self, format: Format, cols: usize, lane: usize, panel: &[u8], blocks: &mut Vec<u8>) {
        blocks.clear();
        with_packing!(format, P => {
            take_levels::<P>(&mut self.levels, cols, lane, panel);
            write_blocks(format, &self.levels, blocks);
        }, otherwise => {
            let bytes = format.block_bytes();
            for col in 0..cols {
                let at = (col * LANES + lane) * bytes;
                blocks.extend_from_slice(&panel[at..at + bytes]);
            }
        })
    }
}

fn put_levels<P: Packing>(row: &Levels, lane: usize, panel: &mut [u8]) {
    let Levels { levels, scales, minima, super_scales, super_minima } = row;
    for (block, levels) in levels.chunks_exact(BLOCK).enumerate() {
        let planes = &mut panel[planes_at::<P>(block)..][..Stripe::<P>::BLOCK_BYTES];
        for (column, &level) in levels.iter().enumerate() {
            put_level::<P>(planes, column / 4, 4 * lane + column % 4, level);
        }
    }
    let groups = Stripe::<P>::BLOCKS * Stripe::<P>::GROUPS;
    let bytes = Stripe::<P>::SCALE_BYTES;
    for (index, scale) in scales.iter().enumerate() {
        let stripe = &mut panel[index / groups * Stripe::<P>::BYTES..];
        put(stripe, scale_at::<P>(index % groups, lane), *scale, bytes);
        if let Some(minimum) = minima.get(index) {
            put(stripe, minimum_at::<P>(index % groups, lane), *minimum, bytes);
        }
    }
    for (index, factor) in super_scales.iter().enumerate() {
        let supers = &mut panel[index * Stripe::<P>::BYTES + Stripe::<P>::SUPERS..];
        put(supers, 2 * lane, *factor, 2);
        if let Some(minimum) = super_minima.get(index) {
            put(supers, 2 * (LANES + lane), *minimum, 2);
        }
    }
}

fn take_levels<P: Packing>(row: &mut Levels, cols: usize, lane: usize, panel: &[u8]) {
    row.clear();
    for block in 0..cols / BLOCK {
        let planes = &panel[planes_at::<P>(block)..][..Stripe::<P>::BLOCK_BYTES];
        let level = |column: usize| level_at::<P>(planes, column / 4, 4 * lane + column % 4);
        row.levels.extend((0..BLOCK).map(level));
    }
    let groups = Stripe::<P>::BLOCKS * Stripe::<P>::GROUPS;
    let bytes = Stripe::<P>::SCALE_BYTES;
    for index in 0..cols / P::GROUP {
        let stripe = &panel[index / groups * Stripe::<P>::BYTES..];
        row.scales.push(factor_at(stripe, scale_at::<P>(index % groups, lane), bytes));
        if P::MINIMA {
            row.minima.push(factor_at(stripe, minimum_at::<P>(index % groups, lane), bytes));
        }
    }
    for stripe in panel.chunks_exact(Stripe::<P>::BYTES).filter(|_| Stripe::<P>::HAS_SUPERS) {
        row.super_scales.push(factor_at(stripe, Stripe::<P>::SUPERS + 2 * lane, 2));
        if P::MINIMA {
            row.super_minima.push(factor_at(stripe, Stripe::<P>::SUPERS + 2 * (LANES + lane), 2));
        }
    }
}

/// Whether every f16 factor of a panel is a number.
pub fn is_sound(format: Format, panel: &[u8]) -> bool {
    let numbers = |factors: &[u8]| factors.as_chunks::<2>().0.iter().all(|bits| bits[1] & 0x7C != 0x7C);
    with_packing!(format, P => panel.chunks_exact(Stripe::<P>::BYTES).all(|stripe| match P::SCALES {
        ScaleKind::F16 => numbers(&stripe[Stripe::<P>::SCALES..Stripe::<P>::SUPERS]),
        ScaleKind::SuperU8 | ScaleKind::SuperI8 => {
            numbers(&stripe[Stripe::<P>::SUPERS..][..2 * LANES * Stripe::<P>::VECTORS])
        }
        ScaleKind::E8m0 => true,
    }), otherwise => true)
}

/// Where a panel has the planes of a block, in bytes.
fn planes_at<P: Packing>(block: usize) -> usize {
    let (stripe, block) = (block / Stripe::<P>::BLOCKS, block % Stripe::<P>::BLOCKS);
    stripe * Stripe::<P>::BYTES + Stripe::<P>::LEVELS + block * Stripe::<P>::BLOCK_BYTES
}

/// Where a stripe has one row's scale of a group, in bytes.
fn scale_at<P: Packing>(group: usize, lane: usize) -> usize {
    let vectors = if Stripe::<P>::HAS_SUPERS { 1 } else { Stripe::<P>::VECTORS };
    Stripe::<P>::SCALES + (group * vectors * LANES + lane) * Stripe::<P>::SCALE_BYTES
}

/// Where a stripe has one row's minimum of a group, in bytes.
fn minimum_at<P: Packing>(group: usize, lane: usize) -> usize {
    if Stripe::<P>::HAS_SUPERS {
        Stripe::<P>::MINIMA + (group / 2 * LANES + lane) * 2 + group % 2
    } else {
        scale_at::<P>(group, lane) + LANES * Stripe::<P>::SCALE_BYTES
    }
}

/// Writes the low `bytes` of a factor.
fn put(out: &mut [u8], at: usize, factor: u16, bytes: usize) {
    out[at..at + bytes].copy_from_slice(&factor.to_le_bytes()[..bytes]);
}

fn factor_at(bytes: &[u8], at: usize, len: usize) -> u16 {
    let mut factor = [0; 2];
    factor[..len].copy_from_slice(&bytes[at..at + len]);
    u16::from_le_bytes(factor)
}

/// Writes one level into the planes of its block: byte `byte` of unpacked vector `vector`.
#[inline(always)]
fn put_level<P: Packing>(planes: &mut [u8], vector: usize, byte: usize, level: u8) {
    let nibble = |planes: &mut [u8]| planes[vector / 2 * 64 + byte] |= (level & 15) << (4 * (vector % 2));
    let pair = |planes: &mut [u8], bits: u8| planes[vector / 4 * 64 + byte] |= bits << (2 * (vector % 4));
    let single = |planes: &mut [u8], bit: u8| planes[byte] |= bit << vector;
    match P::BITS {
        2 => pair(planes, level & 3),
        3 => {
            pair(planes, level & 3);
            single(&mut planes[128..], level >> 2);
        }
        4 => nibble(planes),
        5 => {
            nibble(planes);
            single(&mut planes[256..], level >> 4);
        }
        6 => {
            nibble(planes);
            pair(&mut planes[256..], level >> 4);
        }
        _ => planes[vector * 64 + byte] = level,
    }
}

/// The level that `put_level` wrote.
fn level_at<P: Packing>(planes: &[u8], vector: usize, byte: usize) -> u8 {
    let nibble = |planes: &[u8]| planes[vector / 2 * 64 + byte] >> (4 * (vector % 2)) & 15;
    let pair = |planes: &[u8]| planes[vector / 4 * 64 + byte] >> (2 * (vector % 4)) & 3;
    let single = |planes: &[u8]| planes[byte] >> vector & 1;
    match P::BITS {
        2 => pair(planes),
        3 => pair(planes) | single(&planes[128..]) << 2,
        4 => nibble(planes),
        5 => nibble(planes) | single(&planes[256..]) << 4,
        6 => nibble(planes) | pair(&planes[256..]) << 4,
        _ => planes[vector * 64 + byte],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::dequantize_row;

    /// Any bytes are a row, but for the scale 0 of MXFP4, which is as good as 1.
    fn rows(format: Format, cols: usize, seed: u32) -> Vec<Vec<u8>> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let row = |_| {
            let mut row: Vec<u8> = (0..format.row_bytes(cols)).map(|_| next()).collect();
            if format == Format::Mxfp4 {
                row.chunks_exact_mut(17).for_each(|block| block[0] = block[0].max(1));
            }
            row
        };
        (0..LANES).map(row).collect()
    }

    #[test]
    fn a_row_comes_out_of_a_panel_as_it_went_in() {
        let mut packer = Packer::default();
        for format in Format::ALL.into_iter().filter(|format| *format != Format::Fp8) {
            for cols in [256, 768] {
                let rows = rows(format, cols, 7);
                let mut panel = vec![0; panel_bytes(format, cols)];
                for (lane, row) in rows.iter().enumerate() {
                    packer.put(format, row, lane, &mut panel);
                }
                let mut blocks = Vec::new();
                for (lane, row) in rows.iter().enumerate() {
                    packer.take(format, cols, lane, &panel, &mut blocks);
                    assert_eq!(&blocks, row, "{} of {cols}, lane {lane}", format.name());
                }
            }
        }
    }

    #[test]
    fn the_last_stripe_may_be_short() {
        let mut packer = Packer::default();
        for format in [Format::Q8_0, Format::Q4_1, Format::Q5_0, Format::Mxfp4, Format::Bf16] {
            let row = &rows(format, 96, 3)[0];
            let mut panel = vec![0; panel_bytes(format, 96)];
            packer.put(format, row, 5, &mut panel);
            let mut blocks = Vec::new();
            packer.take(format, 96, 5, &panel, &mut blocks);
            assert_eq!(&blocks, row, "{}", format.name());
        }
    }

    #[test]
    fn a_scale_that_is_no_number_is_found() {
        let mut packer = Packer::default();
        for (format, at) in [(Format::Q8_0, 0), (Format::Q4_1, 2), (Format::Q4K, 2), (Format::Q6K, 208)] {
            let mut row = vec![0; format.row_bytes(512)];
            let mut panel = vec![0; panel_bytes(format, 512)];
            packer.put(format, &row, 3, &mut panel);
            assert!(is_sound(format, &panel), "{}", format.name());
            let last = row.len() - format.block_bytes();
            row[last + at..last + at + 2].copy_from_slice(&0x7E00u16.to_le_bytes());
            let mut values = vec![0.0; 512];
            dequantize_row(format, &row, &mut values);
            assert!(values[511].is_nan(), "{}", format.name());
            packer.put(format, &row, 3, &mut panel);
            assert!(!is_sound(format, &panel), "{}", format.name());
        }
    }

    #[test]
    fn sizes_that_no_file_has_are_none() {
        assert_eq!(matrix_bytes(Format::F32, usize::MAX / 2, usize::MAX / 2), None);
        assert_eq!(matrix_bytes(Format::Bf16, 17, 32), Some(2 * 32 * 16 * 2));
    }
}
