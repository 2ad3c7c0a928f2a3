//! Rotary frequencies with the scaling of long-context models worked in, in the f32 steps that the
//! models were trained with: at position 100,000 a last digit of a frequency is visible.

use super::error::Fault;
use crate::model::config::{Rope, RopePairs};
use std::f64::consts::PI;

/// How a model that was trained on short texts is stretched to long ones.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Scaling {
    None,
    /// All frequencies are slower by a factor.
    Linear(f64),
    /// A factor for each frequency, as GGUF files carry it.
    Factors(Vec<f32>), // (head_dim / 2)
    Llama3(Llama3),
    Yarn(Yarn),
}

/// Slow frequencies are slowed, fast ones kept, and those between blended.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Llama3 {
    pub(super) factor: f64,
    pub(super) low: f64,  // wavelengths above context / low are slowed
    pub(super) high: f64, // wavelengths below context / high are kept
    pub(super) context: f64,
}

/// As Llama 3, but blended along the index of the frequency, and with sharper attention.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Yarn {
    pub(super) factor: f64,
    pub(super) context: f64,
    pub(super) fast: f64,      // turns within the context from which a frequency is kept
    pub(super) slow: f64,      // turns below which it is slowed
    pub(super) truncate: bool, // the blend begins and ends at whole indices
    pub(super) magnitude: Option<f64>,
}

pub(super) fn rope(base: f64, head_dim: usize, scaling: &Scaling, pairs: RopePairs) -> Result<Rope, Fault> {
    let plain = plain(base, head_dim);
    let (frequencies, magnitude) = match scaling {
        Scaling::None => (plain, 1.0),
        Scaling::Linear(factor) => (plain.iter().map(|f| f / *factor as f32).collect(), 1.0),
        Scaling::Factors(factors) => (plain.iter().zip(factors).map(|(f, factor)| f / factor).collect(), 1.0),
        Scaling::Llama3(llama3) => (plain.iter().map(|f| llama3.scale(*f)).collect(), 1.0),
        Scaling::Yarn(yarn) => (yarn.frequencies(base, head_dim), yarn.magnitude()),
    };
    let odd = frequencies.iter().chain([&magnitude]).find(|value| !(value.is_finite() && **value > 0.0));
    match odd {
        Some(value) => Err(Fault::damaged("a rotary frequency", value, "a number above 0")),
        None => Ok(Rope { frequencies, magnitude, pairs }),
    }
}

/// Wavelengths, in radians, from 1 up to almost `base`.
fn periods(base: f64, head_dim: usize) -> impl Iterator<Item = f32> {
    (0..head_dim / 2).map(move |i| (base as f32).powf((2 * i) as f32 / head_dim as f32))
}

fn plain(base: f64, head_dim: usize) -> Vec<f32> {
    periods(base, head_dim).map(|period| 1.0 / period).collect()
}

impl Llama3 {
    fn scale(&self, frequency: f32) -> f32 {
        let wavelength = (2.0 * PI) as f32 / frequency;
        let factor = self.factor as f32;
        if wavelength < (self.context / self.high) as f32 {
            return frequency;
        }
        if wavelength > (self.context / self.low) as f32 {
            return frequency / factor;
        }
        let kept = (self.context as f32 / wavelength - self.low as f32) / (self.high - self.low) as f32;
        (1.0 - kept) * frequency / factor + kept * frequency
    }
}

impl Yarn {
    fn frequencies(&self, base: f64, head_dim: usize) -> Vec<f32> {
        let (low, high) = self.blend(base, head_dim as f64);
        let frequency = |(i, period): (usize, f32)| {
            let slowed = ((i as f32 - low as f32) / (high - low) as f32).clamp(0.0, 1.0);
            let kept = 1.0 - slowed;
            1.0 / (self.factor as f32 * period) * (1.0 - kept) + 1.0 / period * kept
        };
        periods(base, head_dim).enumerate().map(frequency).collect()
    }

    /// The indices between which frequencies go from kept to slowed.
    fn blend(&self, base: f64, head_dim: f64) -> (f64, f64) {
        let index = |turns: f64| head_dim * (self.context / (turns * 2.0 * PI)).ln() / (2.0 * base.ln());
        let (mut low, mut high) = (index(self.fast), index(self.slow));
        if self.truncate {
            (low, high) = (low.floor(), high.ceil());
        }
        (low, high) = (low.max(0.0), high.min(head_dim - 1.0));
        if low == high { (low, high + 0.001) } else { (low, high) }
    }

    fn magnitude(&self) -> f32 {
        let usual = if self.factor <= 1.0 { 1.0 } else { 0.1 * self.factor.ln() + 1.0 };
        self.magnitude.unwrap_or(usual) as f32
    }
}
