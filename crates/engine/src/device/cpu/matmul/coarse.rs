//! The upper 3 bits of a Q6_K matrix's levels once more, without a gap: what is not read between them would be brought by the
//! processor all the same, which guesses that streams go on.
//!
//! A panel of 16 rows is its factors, 16 f16 for each 256 columns, and then for each 256 columns a stripe: 16 scales for each
//! group of 16 columns; for each group a plane of the upper 2 bits of 4 vectors; for each two groups a plane of the next bit of
//! 8 vectors. Vectors and planes are those of `quant::panels`.

use crate::device::cpu::memory::{Memory, OutOfMemory, Shared};
use crate::device::cpu::pack::{LARGE_BLOCK, Packed, Q6K, Stripe};
use crate::device::cpu::pool::Pool;
use crate::device::cpu::simd::LANES;

/// Columns under one scale.
pub const GROUP: usize = 16;
/// Of a stripe.
pub const GROUPS: usize = LARGE_BLOCK / GROUP;
const PLANE: usize = 64;

/// Where a stripe's parts begin, in bytes.
pub const PAIRS: usize = GROUPS * LANES;
pub const SINGLES: usize = PAIRS + GROUPS * PLANE;
pub const STRIPE_BYTES: usize = SINGLES + GROUPS / 2 * PLANE;

/// A matrix whose levels are rounded down to multiples of 8.
pub struct Coarse {
    pub rows: usize,
    data: Memory<u8>, // (panels, panel_bytes)
    panel_bytes: usize,
    stripes: usize,
}

impl Coarse {
    /// Bytes of what is made of a Q6_K matrix.
    pub fn bytes_of(matrix: &Packed) -> usize {
        matrix.panels() * panel_bytes(matrix.cols / LARGE_BLOCK)
    }

    pub fn of(pool: &mut Pool, matrix: &Packed) -> Result<Coarse, OutOfMemory> {
        let stripes = matrix.cols / LARGE_BLOCK;
        let panel_bytes = panel_bytes(stripes);
        let mut data = Memory::huge(Coarse::bytes_of(matrix))?;
        let shared = Shared::new(&mut data);
        pool.run(|worker| {
            while let Some(panel) = worker.take(matrix.panels()) {
                // SAFETY: each panel is taken by one thread.
                let out = unsafe { shared.range_mut(panel * panel_bytes, panel_bytes) };
                let (factors, out) = out.split_at_mut(factor_bytes(stripes));
                let parts = matrix.panel_bytes(panel).chunks_exact(Stripe::<Q6K>::BYTES);
                for ((stripe, factors), out) in
                    parts.zip(factors.chunks_exact_mut(2 * LANES)).zip(out.chunks_exact_mut(STRIPE_BYTES))
                {
                    factors.copy_from_slice(&stripe[Stripe::<Q6K>::SUPERS..][..2 * LANES]);
                    coarse_stripe(stripe, out);
                }
            }
        });
        Ok(Coarse { rows: matrix.rows, data, panel_bytes, stripes })
    }

    /// Where a panel's factors and its stripes begin.
    #[inline(always)]
    pub fn panel(&self, index: usize) -> (*const u16, *const u8) {
        let panel = self.data[index * self.panel_bytes..].as_ptr();
        (panel.cast(), panel.wrapping_add(factor_bytes(self.stripes)))
    }

    pub fn bytes(&self) -> usize {
        self.data.len()
    }
}

/// Whole cache lines.
fn factor_bytes(stripes: usize) -> usize {
    (stripes * 2 * LANES).next_multiple_of(64)
}

fn panel_bytes(stripes: usize) -> usize {
    factor_bytes(stripes) + stripes * STRIPE_BYTES
}

/// The scales as they are; of each block of 32 columns the plane of upper bits as it is, and bit 3 of each level.
fn coarse_stripe(stripe: &[u8], out: &mut [u8]) {
    out[..PAIRS].copy_from_slice(&stripe[Stripe::<Q6K>::SCALES..][..PAIRS]);
    let blocks = stripe[Stripe::<Q6K>::LEVELS..].chunks_exact(Stripe::<Q6K>::BLOCK_BYTES);
    for (block, planes) in blocks.enumerate() {
        let (nibbles, pairs) = planes.split_at(4 * PLANE);
        out[PAIRS + block * 2 * PLANE..][..2 * PLANE].copy_from_slice(pairs);
        let singles = &mut out[SINGLES + block * PLANE..][..PLANE];
        for (two, nibbles) in nibbles.chunks_exact(PLANE).enumerate() {
            for (single, nibble) in singles.iter_mut().zip(nibbles) {
                *single |= (nibble >> 3 & 1 | nibble >> 6 & 2) << (2 * two);
            }
        }
    }
}
