//! Which device a model is computed on, decided before anything is loaded.

use crate::args::{DeviceName, ModelArgs};
use crate::error::CliError;
use flint_engine::device::cpu::{Isa, default_threads};
use flint_engine::device::cuda::{Card, CudaError, Listed, compiler_present};
use std::path::Path;

/// What was chosen.
#[derive(Debug, Clone)]
pub enum Chosen {
    Cpu,
    Cuda(Listed),
}

impl Chosen {
    /// As `--device` says; `auto` takes the first card that the model fits on.
    pub fn of(args: &ModelArgs, model: &Path) -> Result<Chosen, CliError> {
        if args.scripted.is_some() {
            return Ok(Chosen::Cpu);
        }
        match args.device {
            DeviceName::Cpu => Ok(Chosen::Cpu),
            DeviceName::Cuda => Ok(Chosen::Cuda(card()?)),
            DeviceName::Auto => Ok(card()
                .ok()
                .filter(|card| compiler_present() && fits(card, file_bytes(model)))
                .map_or(Chosen::Cpu, Chosen::Cuda)),
        }
    }

    /// As the worker is told.
    pub fn name(&self) -> &'static str {
        match self {
            Chosen::Cpu => "cpu",
            Chosen::Cuda(_) => "cuda",
        }
    }

    /// As responses say.
    pub fn describe(&self, args: &ModelArgs) -> String {
        let threads = args.threads.map_or_else(default_threads, usize::from);
        match self {
            Chosen::Cpu => format!("cpu ({}, {threads} threads)", Isa::detect().name()),
            Chosen::Cuda(card) => format!("cuda ({})", card.name),
        }
    }
}

/// The first card that the driver shows, if Flint can use it.
pub fn card() -> Result<Listed, CudaError> {
    let card = Card::list()?.into_iter().next().ok_or(CudaError::NoCard)?;
    card.check().map(|()| card)
}

/// Whether weights of so many bytes are likely to fit, repacked and with some KV.
pub fn fits(card: &Listed, bytes: u64) -> bool {
    bytes + bytes / 4 + (1 << 30) < card.bytes
}

/// Of a file, or of all files of a folder.
fn file_bytes(model: &Path) -> u64 {
    let length = |path: &Path| path.metadata().map_or(0, |data| data.len());
    match std::fs::read_dir(model) {
        Ok(entries) => entries.flatten().map(|entry| length(&entry.path())).sum(),
        Err(_) => length(model),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_fits_with_room_for_its_kv() {
        let card = Listed { name: "a card".into(), bytes: 16 << 30, capability: (9, 0), bandwidth: None };
        assert!(card.check().is_ok() && fits(&card, 11 << 30) && !fits(&card, 12 << 30));
    }
}
