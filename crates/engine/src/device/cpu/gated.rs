//! The first half of a gated MLP: gate and up products, and what becomes of each pair.

use super::input::Input;
use super::matmul::{Output, Product, Rows, Units, run_by_turns};
use super::pack::Packed;
use super::simd::{Isa, Kernel, LANES, Simd, exp};
use crate::device::Activation;

/// The first half of a gated MLP, in units of some panels of hidden columns.
pub struct GatedUnits<'a> {
    pub isa: Isa,
    pub units: Units,
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
    /// Units for `count` rows, when a thread has room for `raw` values.
    pub fn split(gate: &Packed, threads: usize, count: usize, raw: usize) -> Units {
        gate.units(threads, count, raw / (count.max(1) * 2 * LANES))
    }

    /// Computes one unit. `raw` has room for its gate and up values: (count, 2 * panels * LANES).
    ///
    /// # Safety
    /// Nobody else computes the same unit; `hidden` has `to`'s rows.
    pub unsafe fn run(&self, unit: usize, raw: &mut [f32]) {
        let panels = self.units.panels(unit);
        let width = panels.len() * LANES;
        let output = Output { base: raw[..self.count * 2 * width].as_mut_ptr(), stride: 2 * width };
        let half = |matrix, bias| Product {
            matrix,
            bias,
            input: self.input,
            from: self.from,
            to: Rows::From(0),
            count: self.count,
            output,
            add: false,
        };
        let (gate, up) = (half(self.gate, self.gate_bias), half(self.up, self.up_bias));
        // SAFETY: `raw` has room for two units side by side in each row.
        unsafe { run_by_turns([(&gate, 0), (&up, width)], self.isa, panels.clone()) };
        let column = panels.start * LANES;
        for (i, raw) in raw.chunks_exact(2 * width).take(self.count).enumerate() {
            // SAFETY: the columns of this unit are this thread's own.
            let out = unsafe {
                let at = self.hidden.base.add(self.to.get(i) * self.hidden.stride + column);
                std::slice::from_raw_parts_mut(at, width.min(self.gate.rows - column))
            };
            let (gate, up) = raw.split_at(width);
            self.isa.run(Activate { activation: self.activation, gate, up, out });
        }
    }
}

/// Gate and up values of one row and unit become hidden values.
struct Activate<'a> {
    activation: Activation,
    gate: &'a [f32], // whole vectors
    up: &'a [f32],
    out: &'a mut [f32], // as long, or shorter in the last unit
}

impl Kernel for Activate<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let inputs = self.gate.chunks_exact(LANES).zip(self.up.chunks_exact(LANES));
        for ((gate, up), out) in inputs.zip(self.out.chunks_mut(LANES)) {
            let mut values = [0.0; LANES];
            // SAFETY: chunks of 16 values.
            unsafe {
                let value = activate::<S>(self.activation, S::load(gate.as_ptr()), S::load(up.as_ptr()));
                S::store(values.as_mut_ptr(), value);
            }
            out.copy_from_slice(&values[..out.len()]);
        }
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
