//! Weights as the kernels of `kernels/ops` read them: levels in pieces of 16 bytes, scales beside them.
//!
//! `kernels/ops/formats.cuh` says which lane reads what. Every format is one of four layouts; levels are kept as they
//! are, scales become f16 times a power of two that is the same for the whole matrix.

use crate::load::Tensor;
use crate::quant::Format;
use crate::quant::levels::{Levels, read_levels};
use half::f16;
use std::borrow::Cow;

pub const TILE_ROWS: usize = 16;
pub const UNIT_COLS: usize = 64;
const LANES: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    Levels4, // level * scale + minimum
    Fp4,     // e2m1 * scale
    Levels8, // level * scale + minimum
    Floats,  // f16
}

/// A layout, and how many columns share a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    pub layout: Layout,
    pub group: usize, // columns: 16 or 32
}

impl Layout {
    pub const ALL: [Layout; 4] = [Layout::Levels4, Layout::Fp4, Layout::Levels8, Layout::Floats];

    /// As the kernels' names have it.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Levels4 => "levels4",
            Layout::Fp4 => "fp4",
            Layout::Levels8 => "levels8",
            Layout::Floats => "floats",
        }
    }

    /// Pieces of 16 bytes that a lane has of a unit.
    fn pieces(self) -> usize {
        match self {
            Layout::Levels4 | Layout::Fp4 => 1,
            Layout::Levels8 => 2,
            Layout::Floats => 4,
        }
    }

    /// Bytes of what scales two rows of a group.
    fn scale_bytes(self) -> usize {
        match self {
            Layout::Levels4 | Layout::Levels8 => 8,
            Layout::Fp4 => 4,
            Layout::Floats => 0,
        }
    }

    /// What the scale is raised by.
    fn raise(self) -> f32 {
        match self {
            Layout::Levels4 | Layout::Levels8 => power(24),
            Layout::Fp4 => power(14),
            Layout::Floats => 1.0,
        }
    }

    /// The largest weight, scaled, lies below this power of two.
    fn top_exponent(self) -> i32 {
        match self {
            Layout::Floats => 14,
            // Their values come as 2^-24 and 2^-14 of themselves, which the scale has to take back.
            Layout::Levels4 => -6,
            Layout::Levels8 => -3,
            Layout::Fp4 => 1,
        }
    }
}

impl Plan {
    pub fn of(format: Format) -> Plan {
        let (layout, group) = match format {
            Format::Q4_0 | Format::Q4_1 | Format::Q4K => (Layout::Levels4, 32),
            Format::Q2K => (Layout::Levels4, 16),
            Format::Q5_0 | Format::Q5_1 | Format::Q5K => (Layout::Levels8, 32),
            Format::Q8_0 | Format::Iq4Nl | Format::Iq4Xs => (Layout::Levels8, 32),
            Format::Q3K | Format::Q6K => (Layout::Levels8, 16),
            Format::Mxfp4 => (Layout::Fp4, 32),
            Format::F32 | Format::F16 | Format::Bf16 | Format::Fp8 => (Layout::Floats, 32),
        };
        Plan { layout, group }
    }

    /// Bytes of 16 rows of 64 columns, with what scales them.
    pub fn unit_bytes(self) -> usize {
        self.unit_code_bytes() + self.unit_scale_bytes()
    }

    fn unit_code_bytes(self) -> usize {
        self.layout.pieces() * LANES * 16
    }

    fn unit_scale_bytes(self) -> usize {
        self.layout.scale_bytes() * 8 * (UNIT_COLS / self.group)
    }

    /// Bytes of codes and of scales of (rows, cols).
    pub fn bytes(self, rows: usize, cols: usize) -> (usize, usize) {
        let units = rows.div_ceil(TILE_ROWS) * cols.div_ceil(UNIT_COLS);
        (units * self.unit_code_bytes(), units * self.unit_scale_bytes())
    }
}

/// A matrix, packed: just now, or when its file was made.
pub struct Packed<'a> {
    pub plan: Plan,
    pub codes: Cow<'a, [u8]>,
    pub scales: Cow<'a, [u8]>,
    pub factor: f32, // products are to be multiplied with it: a power of two
}

/// One row as level, scale and minimum, or as values.
#[derive(Default)]
struct Row {
    codes: Vec<u8>,   // (cols)
    scales: Vec<f32>, // (groups)
    minima: Vec<f32>, // (groups), or none: `zero` is the level that means 0
    zero: f32,
    values: Vec<f32>, // (cols) of `Floats`
    levels: Levels,
    bytes: Vec<u8>,
}

/// IQ4's sixteen values, raised by 128.
const IQ4_TABLE: [u8; 16] = [1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241];

fn half_f32(bits: u16) -> f32 {
    f16::from_bits(bits).to_f32()
}

/// 2^exponent.
pub fn power(exponent: i32) -> f32 {
    2f32.powi(exponent)
}

impl Row {
    fn read(&mut self, tensor: &Tensor, row: usize) {
        let format = tensor.format;
        if Plan::of(format).layout == Layout::Floats {
            self.values.resize(tensor.cols(), 0.0);
            return tensor.row_f32(row, &mut self.values);
        }
        read_levels(format, tensor.row_blocks(row, &mut self.bytes), &mut self.levels);
        let Levels { levels, scales, minima, super_scales, super_minima } = &self.levels;
        let groups = scales.len() / super_scales.len().max(1); // that share a super factor
        let above = |at: usize| super_scales.get(at / groups).copied().map_or(1.0, half_f32);
        let signed = |bits: u16| f32::from(bits as u8 as i8);
        let scale = |(at, &bits): (usize, &u16)| match format {
            Format::Mxfp4 => power(i32::from(bits) - 126),
            Format::Q2K | Format::Q4K | Format::Q5K => above(at) * f32::from(bits),
            Format::Q3K | Format::Q6K | Format::Iq4Xs => above(at) * signed(bits),
            _ => half_f32(bits),
        };
        self.scales.clear();
        self.scales.extend(scales.iter().enumerate().map(scale));
        self.minima.clear();
        match format {
            Format::Q4_1 | Format::Q5_1 => self.minima.extend(minima.iter().map(|&bits| half_f32(bits))),
            _ => {
                let below = |at: usize| super_minima.get(at / groups).copied().map_or(0.0, half_f32);
                self.minima.extend(minima.iter().enumerate().map(|(at, &m)| below(at) * f32::from(m)));
            }
        }
        self.zero = match format {
            _ if !self.minima.is_empty() => 0.0,
            Format::Q4_0 => 8.0,
            Format::Mxfp4 => 0.0,
            _ => 128.0,
        };
        self.codes.clear();
        self.codes.extend(levels.iter().map(|&level| match format {
            Format::Q5_0 => level + 112,
            Format::Q3K => level + 124,
            Format::Q6K => level + 96,
            Format::Iq4Nl | Format::Iq4Xs => IQ4_TABLE[usize::from(level & 15)],
            _ => level,
        }));
    }

    /// A bound on the magnitude of the weights.
    fn largest(&self, layout: Layout) -> f32 {
        let most = |values: &[f32]| values.iter().fold(0.0f32, |most, v| most.max(v.abs()));
        match layout {
            Layout::Floats => most(&self.values),
            Layout::Fp4 => most(&self.scales),
            Layout::Levels4 => most(&self.minima).max(16.0 * most(&self.scales)),
            Layout::Levels8 => most(&self.minima).max(128.0 * most(&self.scales)),
        }
    }
}

/// Rows of tensors that lie one after the other.
#[derive(Clone, Copy)]
struct Stack<'a>(&'a [Tensor]);

impl Stack<'_> {
    fn rows(&self) -> usize {
        self.0.iter().map(Tensor::rows).sum()
    }

    fn read(&self, mut row: usize, out: &mut Row) {
        for tensor in self.0 {
            if row < tensor.rows() {
                return out.read(tensor, row);
            }
            row -= tensor.rows();
        }
    }
}

/// Packs tensors of one plan as one matrix, or as `experts` matrices one after the other.
pub fn pack(tensors: &[Tensor], experts: usize) -> Packed<'static> {
    pack_at(tensors, experts, exponent(tensors))
}

/// The same, with weights times this power of two.
pub fn pack_at(tensors: &[Tensor], experts: usize, exponent: i32) -> Packed<'static> {
    let plan = plan_of(tensors);
    let (stack, cols) = (Stack(tensors), tensors.first().map_or(0, Tensor::cols));
    let rows = stack.rows() / experts.max(1); // of one matrix
    let tiles = rows.div_ceil(TILE_ROWS);
    let (code_bytes, scale_bytes) = plan.bytes(TILE_ROWS, cols);
    let mut codes = vec![0u8; experts * tiles * code_bytes];
    let mut scales = vec![0u8; experts * tiles * scale_bytes];
    let tile = |index: usize, codes: &mut [u8], scales: &mut [u8], row: &mut Row| {
        let (expert, first) = (index / tiles, index % tiles * TILE_ROWS);
        for r in 0..TILE_ROWS.min(rows - first) {
            stack.read(expert * rows + first + r, row);
            put_row(plan, row, r, power(exponent), codes, scales);
        }
    };
    let (share, tile) = ((experts * tiles).div_ceil(threads()).max(1), &tile);
    std::thread::scope(|scope| {
        let mut scales = scales.chunks_mut((share * scale_bytes).max(1));
        for (index, codes) in codes.chunks_mut(share * code_bytes).enumerate() {
            let scales = scales.next().unwrap_or_default();
            scope.spawn(move || {
                let mut row = Row::default();
                for (i, codes) in codes.chunks_mut(code_bytes).enumerate() {
                    let scales = scales.get_mut(i * scale_bytes..(i + 1) * scale_bytes).unwrap_or_default();
                    tile(index * share + i, codes, scales, &mut row);
                }
            });
        }
    });
    Packed { plan, codes: codes.into(), scales: scales.into(), factor: power(-exponent) }
}

fn plan_of(tensors: &[Tensor]) -> Plan {
    Plan::of(tensors.first().map_or(Format::F32, |tensor| tensor.format))
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The power of two that brings the largest weight below the layout's top.
pub fn exponent(tensors: &[Tensor]) -> i32 {
    let (layout, stack) = (plan_of(tensors).layout, Stack(tensors));
    let share = stack.rows().div_ceil(threads()).max(1);
    let largest = std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..stack.rows())
            .step_by(share)
            .map(|first| {
                scope.spawn(move || {
                    let mut row = Row::default();
                    (first..stack.rows().min(first + share)).fold(0.0f32, |most, index| {
                        stack.read(index, &mut row);
                        most.max(row.largest(layout))
                    })
                })
            })
            .collect();
        jobs.into_iter().map(|job| job.join().unwrap_or(0.0)).fold(0.0f32, f32::max)
    });
    if !(largest > 0.0 && largest.is_finite()) {
        return 0;
    }
    (layout.top_exponent() - largest.log2().ceil() as i32).clamp(-100, 100)
}

/// Where the sign of each of four codes stands in half a word; the other three bits stand at 9, 6, 3 and 0.
const FP4_SIGNS: [usize; 4] = [15, 12, 14, 13];

/// The `index`-th code of half a word.
fn spread(index: usize, code: u16) -> u16 {
    (code >> 3) << FP4_SIGNS[index] | (code & 7) << (9 - 3 * index)
}

/// Writes row `r` of a tile.
fn put_row(plan: Plan, row: &Row, r: usize, size: f32, codes: &mut [u8], scales: &mut [u8]) {
    let (g, second) = (r % 8, r / 8);
    let unit_bytes = plan.unit_code_bytes();
    let lane_at = |col: usize| (4 * g + col % UNIT_COLS / 16) * 16;
    match plan.layout {
        Layout::Levels4 | Layout::Fp4 => {
            for (col, &code) in row.codes.iter().enumerate() {
                let (pair, half) = (col % 8 / 2, 2 * (col % 2)); // in a word: pairs share a place in its two halves
                let at = col / UNIT_COLS * unit_bytes + lane_at(col) + 8 * second + 4 * (col % 16 / 8) + half;
                let bits = match plan.layout {
                    Layout::Fp4 => spread(pair, u16::from(code)),
                    _ => u16::from(code) << (4 * pair),
                };
                let [low, high] = bits.to_le_bytes();
                codes[at] |= low;
                codes[at + 1] |= high;
            }
        }
        Layout::Levels8 => {
            for (col, &code) in row.codes.iter().enumerate() {
                codes[col / UNIT_COLS * unit_bytes + second * LANES * 16 + lane_at(col) + col % 16] = code;
            }
        }
        Layout::Floats => {
            for (col, &value) in row.values.iter().enumerate() {
                let piece = 2 * second + col % 16 / 8;
                let at = col / UNIT_COLS * unit_bytes + piece * LANES * 16 + lane_at(col) + col % 8 * 2;
                codes[at..at + 2].copy_from_slice(&f16::from_f32(value * size).to_le_bytes());
            }
        }
    }
    put_scales(plan, row, g, second, size, scales);
}

fn put_scales(plan: Plan, row: &Row, g: usize, second: usize, size: f32, out: &mut [u8]) {
    let groups = UNIT_COLS / plan.group; // of a unit
    let both = plan.layout.scale_bytes();
    for (index, &scale) in row.scales.iter().enumerate().filter(|_| both > 0) {
        let unit = index / groups * plan.unit_scale_bytes();
        let at = unit + both * (g * groups + index % groups) + both / 2 * second;
        let raise = plan.layout.raise();
        let scale = f16::from_f32(scale * size * raise);
        out[at..at + 2].copy_from_slice(&scale.to_le_bytes());
        if plan.layout != Layout::Fp4 {
            // Of the scale as it was rounded: then the level that means 0 is 0.
            let zero = -row.zero * scale.to_f32() / raise;
            let minimum = row.minima.get(index).map_or(zero, |minimum| minimum * size);
            out[at + 2..at + 4].copy_from_slice(&f16::from_f32(minimum).to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::quantize_row;

    /// Weight (row, col) as a kernel takes it from the packed bytes.
    fn weight(packed: &Packed, cols: usize, row: usize, col: usize) -> f32 {
        let Packed { plan, codes, scales, factor } = packed;
        let unit = row / TILE_ROWS * cols.div_ceil(UNIT_COLS) + col / UNIT_COLS;
        let (g, second, t, c) = (row % 8, row % 16 / 8, col % UNIT_COLS / 16, col % 16);
        let codes = &codes[unit * plan.unit_code_bytes()..][..plan.unit_code_bytes()];
        let lane = (4 * g + t) * 16;
        let half_at = |bytes: &[u8], at: usize| f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32();
        let word = |at: usize| u32::from_le_bytes(codes[at..at + 4].try_into().unwrap());
        let group = t * 16 / plan.group;
        let at = unit * plan.unit_scale_bytes()
            + plan.layout.scale_bytes() * (g * (UNIT_COLS / plan.group) + group)
            + plan.layout.scale_bytes() / 2 * second;
        let (half, pair) = (word(lane + 8 * second + 4 * (c / 8)) >> (16 * (c % 2)), c % 8 / 2);
        let e2m1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        let value = match plan.layout {
            Layout::Levels4 => {
                (half >> (4 * pair) & 15) as f32 * power(-24) * half_at(scales, at) + half_at(scales, at + 2)
            }
            Layout::Fp4 => {
                let sign = if half >> FP4_SIGNS[pair] & 1 == 0 { 1.0 } else { -1.0 };
                sign * e2m1[(half >> (9 - 3 * pair)) as usize & 7] * power(-14) * half_at(scales, at)
            }
            Layout::Levels8 => {
                let level = codes[second * LANES * 16 + lane + c];
                f32::from(level) * power(-24) * half_at(scales, at) + half_at(scales, at + 2)
            }
            Layout::Floats => half_at(codes, (2 * second + c / 8) * LANES * 16 + lane + c % 8 * 2),
        };
        value * factor
    }

    #[test]
    fn packed_weights_are_the_stored_ones() {
        let (rows, cols) = (21, 256);
        for format in Format::ALL.into_iter().filter(|format| *format != Format::Fp8) {
            let mut bytes = Vec::new();
            let mut seed = 7u32;
            let mut next = || {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 8) as f32 / (1 << 24) as f32 - 0.5
            };
            for _ in 0..rows {
                let values: Vec<f32> = (0..cols).map(|_| next() * 0.1).collect();
                if !quantize_row(format, &values, &mut bytes) {
                    let own = format.row_bytes(cols);
                    // Any bytes are a row; exponents of scales that would be huge are taken away.
                    bytes.extend((0..own).map(|_| ((next() + 0.5) * 256.0) as u8 & 0x3B));
                }
            }
            let tensor = Tensor::in_memory("t", &[rows, cols], format, &bytes).unwrap();
            let packed = pack(std::slice::from_ref(&tensor), 1);
            let mut want = vec![0.0; rows * cols];
            want.chunks_mut(cols).enumerate().for_each(|(row, want)| tensor.row_f32(row, want));
            let size = want.iter().fold(0.0f32, |most, v| most.max(v.abs()));
            for (at, want) in want.iter().enumerate() {
                let (row, col) = (at / cols, at % cols);
                let got = weight(&packed, cols, row, col);
                let off = (got - want).abs();
                assert!(off <= 1e-3 * size, "{} ({row}, {col}): {got} for {want}", format.name());
            }
        }
    }
}
