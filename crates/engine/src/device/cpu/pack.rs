//! Weights in the layout that the kernels read: panels of 16 rows, interleaved for 16 lanes.
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

use super::memory::{Arena, OutOfMemory, Piece, Shared};
use super::pool::Pool;
use super::simd::LANES;
use crate::load::Tensor;
use crate::quant::levels::{Levels, read_levels};
use crate::quant::{Format, quantize_row};
use std::marker::PhantomData;

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
        use $crate::device::cpu::pack;
        match $format {
            Format::Q4_0 => {
                type $P = pack::Q4_0;
                $body
            }
            Format::Q4_1 => {
                type $P = pack::Q4_1;
                $body
            }
            Format::Q5_0 => {
                type $P = pack::Q5_0;
                $body
            }
            Format::Q5_1 => {
                type $P = pack::Q5_1;
                $body
            }
            Format::Q8_0 => {
                type $P = pack::Q8_0;
                $body
            }
            Format::Q2K => {
                type $P = pack::Q2K;
                $body
            }
            Format::Q3K => {
                type $P = pack::Q3K;
                $body
            }
            Format::Q4K => {
                type $P = pack::Q4K;
                $body
            }
            Format::Q5K => {
                type $P = pack::Q5K;
                $body
            }
            Format::Q6K => {
                type $P = pack::Q6K;
                $body
            }
            Format::Iq4Nl => {
                type $P = pack::Iq4Nl;
                $body
            }
            Format::Iq4Xs => {
                type $P = pack::Iq4Xs;
                $body
            }
            Format::Mxfp4 => {
                type $P = pack::Mxfp4;
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

/// One tensor, packed. Rows past the last are zero.
pub struct Packed {
    pub format: Format, // FP8 becomes Q8_0, the nearest that takes no more room
    pub rows: usize,
    pub cols: usize,
    panel_bytes: usize,
    data: Piece, // (panels, panel_bytes)
}

impl Packed {
    /// Packs rows `first..first + rows` of a tensor.
    pub fn new(
        pool: &mut Pool,
        arena: &mut Arena,
        tensor: &Tensor,
        first: usize,
        rows: usize,
    ) -> Result<Packed, OutOfMemory> {
        let cols = tensor.cols();
        let format = packed_format(tensor);
        let panel_bytes = with_packing!(format, P => Stripe::<P>::panel_bytes(cols),
            otherwise => (cols * LANES * format.block_bytes()).next_multiple_of(64));
        let panels = rows.div_ceil(LANES);
        let data = arena.take(panels * panel_bytes, |data| {
            let shared = Shared::new(data);
            pool.run(|worker| {
                let mut packer = Packer { tensor, format, levels: Levels::default(), scratch: Vec::new() };
                while let Some(panel) = worker.take(panels) {
                    let begin = panel * LANES;
                    // SAFETY: each panel is taken by one thread.
                    let out = unsafe { shared.range_mut(panel * panel_bytes, panel_bytes) };
                    packer.pack(first + begin, LANES.min(rows - begin), out);
                }
            });
        })?;
        Ok(Packed { format, rows, cols, panel_bytes, data })
    }

    pub fn bytes(&self) -> usize {
        self.panels() * self.panel_bytes
    }

    pub fn panels(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    #[inline(always)]
    pub fn panel(&self, index: usize) -> *const u8 {
        self.data[index * self.panel_bytes..].as_ptr()
    }
}

/// The format that a tensor is packed in: its own, unless there is no kernel for that.
fn packed_format(tensor: &Tensor) -> Format {
    match tensor.format {
        Format::Fp8 if tensor.cols().is_multiple_of(BLOCK) => Format::Q8_0,
        Format::Fp8 => Format::Bf16,
        other => other,
    }
}

/// A row's bytes in the format that it is packed in.
fn row_in<'a>(format: Format, tensor: &'a Tensor, row: usize, scratch: &'a mut Vec<u8>) -> &'a [u8] {
    if tensor.format == format {
        return tensor.row_blocks(row, scratch);
    }
    let mut values = vec![0.0; tensor.cols()];
    tensor.row_f32(row, &mut values);
    scratch.clear();
    quantize_row(format, &values, scratch);
    scratch
}

/// Packs panels of one tensor on one thread.
struct Packer<'a> {
    tensor: &'a Tensor,
    format: Format,
    levels: Levels,
    scratch: Vec<u8>,
}

impl Packer<'_> {
    fn pack(&mut self, first: usize, rows: usize, out: &mut [u8]) {
        for lane in 0..rows {
            let row = first + lane;
            with_packing!(self.format, P => self.pack_levels::<P>(row, lane, out),
                otherwise => self.pack_floats(row, lane, out));
        }
    }

    fn pack_levels<P: Packing>(&mut self, row: usize, lane: usize, out: &mut [u8]) {
        read_levels(self.format, row_in(self.format, self.tensor, row, &mut self.scratch), &mut self.levels);
        let Levels { levels, scales, minima, super_scales, super_minima } = &self.levels;
        for (block, levels) in levels.chunks_exact(BLOCK).enumerate() {
            let (stripe, block) = (block / Stripe::<P>::BLOCKS, block % Stripe::<P>::BLOCKS);
            let at = stripe * Stripe::<P>::BYTES + Stripe::<P>::LEVELS + block * Stripe::<P>::BLOCK_BYTES;
            let planes = &mut out[at..at + Stripe::<P>::BLOCK_BYTES];
            for (column, &level) in levels.iter().enumerate() {
                put_level::<P>(planes, column / 4, 4 * lane + column % 4, level);
            }
        }
        let groups = Stripe::<P>::BLOCKS * Stripe::<P>::GROUPS;
        let bytes = Stripe::<P>::SCALE_BYTES;
        for (index, scale) in scales.iter().enumerate() {
            let stripe = &mut out[index / groups * Stripe::<P>::BYTES..];
            put(stripe, scale_at::<P>(index % groups, lane), *scale, bytes);
            if let Some(minimum) = minima.get(index) {
                put(stripe, minimum_at::<P>(index % groups, lane), *minimum, bytes);
            }
        }
        for (index, factor) in super_scales.iter().enumerate() {
            let supers = &mut out[index * Stripe::<P>::BYTES + Stripe::<P>::SUPERS..];
            put(supers, 2 * lane, *factor, 2);
            if let Some(minimum) = super_minima.get(index) {
                put(supers, 2 * (LANES + lane), *minimum, 2);
            }
        }
    }

    fn pack_floats(&mut self, row: usize, lane: usize, out: &mut [u8]) {
        let bytes = self.format.block_bytes();
        let values = row_in(self.format, self.tensor, row, &mut self.scratch);
        for (col, value) in values.chunks_exact(bytes).enumerate() {
            let at = (col * LANES + lane) * bytes;
            out[at..at + bytes].copy_from_slice(value);
        }
    }
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
