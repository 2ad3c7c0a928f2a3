//! The first half of a gated MLP: gate and up products, and what becomes of each pair.

use super::input::Input;
use super::matmul::{Output, Product, Rows};
use super::pack::Packed;
use super::simd::{Isa, Kernel, LANES, Simd, exp};
use crate::device::Activation;

/// Hidden columns that a thread computes at a time.
pub const HIDDEN_UNIT: usize = 2 * LANES;

/// The first half of a gated MLP, in units of 32 hidden columns.
pub struct GatedUnits<'a> {
    pub isa: Isa,
    pub gate: &'a Packed, // (ffn, hidden)
    pub up: &'a Packed,
    pub gate_bias: Option<&'a [f32]>,
    pub up_bias: Option<&'a [f32]>,
    pub input: Input<'a>,
    pub from: Rows<'a>,
    pub to: Rows<'a>,
    pub count: usize,
    pub activation: Activation,
    pub hidden: Output,
}

impl GatedUnits<'_> {
    pub fn units(&self) -> usize {
        self.gate.rows.div_ceil(HIDDEN_UNIT)
    }

    /// Computes one unit through `raw`, (count, 2 * HIDDEN_UNIT).
    ///
    /// # Safety
    /// Nobody else computes the same unit; `hidden` has `to`'s rows.
    pub unsafe fn run(&self, unit: usize, raw: &mut [f32]) {
        let output = Output { base: raw.as_mut_ptr(), stride: 2 * HIDDEN_UNIT };
        let first = unit * HIDDEN_UNIT / LANES;
        let panels = first..self.gate.panels().min(first + HIDDEN_UNIT / LANES);
        for (at, matrix, bias) in [(0, self.gate, self.gate_bias), (HIDDEN_UNIT, self.up, self.up_bias)] {
            let product = Product {
                matrix,
                bias,
                input: self.input,
                from: self.from,
                to: Rows::From(0),
                count: self.count,
                output,
                add: false,
            };
            // SAFETY: `raw` has room for two units side by side in each row.
            unsafe { product.run(self.isa, panels.clone(), at) };
        }
        let width = HIDDEN_UNIT.min(self.gate.rows - unit * HIDDEN_UNIT);
        for (i, raw) in raw.chunks_exact(2 * HIDDEN_UNIT).take(self.count).enumerate() {
            // SAFETY: the columns of this unit are this thread's own.
            let out = unsafe {
                let at = self.hidden.base.add(self.to.get(i) * self.hidden.stride + unit * HIDDEN_UNIT);
                std::slice::from_raw_parts_mut(at, width)
            };
            let (gate, up) = raw.split_at(HIDDEN_UNIT);
            self.isa.run(Activate { activation: self.activation, gate, up, out });
        }
    }
}

/// Gate and up values of one row and unit become hidden values.
struct Activate<'a> {
    activation: Activation,
    gate: &'a [f32], // (HIDDEN_UNIT)
    up: &'a [f32],
    out: &'a mut [f32], // up to HIDDEN_UNIT
}

impl Kernel for Activate<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let mut values = [0.0; HIDDEN_UNIT];
        for at in (0..HIDDEN_UNIT).step_by(LANES) {
            // SAFETY: `gate`, `up` and `values` have HIDDEN_UNIT values.
            unsafe {
                let (gate, up) = (S::load(self.gate[at..].as_ptr()), S::load(self.up[at..].as_ptr()));
                let value = activate::<S>(self.activation, gate, up);
                S::store(values[at..].as_mut_ptr(), value);
            }
        }
        let width = self.out.len();
        self.out.copy_from_slice(&values[..width]);
    }
}

#[inline(always)]
unsafe fn activate<S: Simd>(activation: Activation, gate: S::F, up: S::F) -> S::F {
    // SAFETY: registers only.
    unsafe {
        match activation {
            Activation::Swiglu => S::mul(swish::<S>(gate, 1.0), up),
            Activation::ClampedSwiglu => {
                let up = S::max(S::min(up, S::splat(7.0)), S::splat(-7.0));
                S::mul(swish::<S>(S::min(gate, S::splat(7.0)), 1.702), S::add(up, S::splat(1.0)))
            }
        }
    }
}

/// `gate * sigmoid(slope * gate)`
#[inline(always)]
unsafe fn swish<S: Simd>(gate: S::F, slope: f32) -> S::F {
    // SAFETY: registers only.
    unsafe {
        let decay = exp::<S>(S::mul(gate, S::splat(-slope)));
        S::div(gate, S::add(S::splat(1.0), decay))
    }
}
