//! Which device a model is computed on, decided before anything is loaded.

use crate::args::{DeviceName, ModelArgs};
use crate::config::Config;
use crate::error::CliError;
use crate::models::gigabytes;
use flint_engine::device::cpu::{Isa, default_threads};
use flint_engine::device::cuda::{Card, CudaError, Listed, find_compiler};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What was chosen.
#[derive(Debug, Clone)]
pub enum Chosen {
    Cpu { instead: Option<String> }, // of a card: why it is not used
    Cuda(Listed),
}

impl Chosen {
    /// As `--device` says; `auto` takes the first card, if the model fits on it.
    pub fn of(config: &Config, args: &ModelArgs, model: &Path) -> Result<Chosen, CliError> {
        if args.scripted.is_some() {
            return Ok(Chosen::Cpu { instead: None });
        }
        match args.device {
            DeviceName::Cpu => Ok(Chosen::Cpu { instead: None }),
            DeviceName::Cuda => Ok(Chosen::Cuda(card()?)),
            DeviceName::Auto => Ok(match card() {
                Ok(card) => match unusable(config, &card, model) {
                    None => Chosen::Cuda(card),
                    instead => Chosen::Cpu { instead },
                },
                Err(CudaError::NoDriver | CudaError::NoCard) => Chosen::Cpu { instead: None },
                Err(error) => Chosen::Cpu { instead: Some(error.to_string()) },
            }),
        }
    }

    /// Says on standard error what a person would not expect.
    pub fn tell(&self) {
        if let Chosen::Cpu { instead: Some(why) } = self {
            eprintln!("flint: the CPU is used instead of the card: {why}");
        }
    }

    /// What took the place of what, as responses say.
    pub fn fallback(&self) -> Option<String> {
        match self {
            Chosen::Cpu { instead: Some(why) } => Some(format!("cpu instead of cuda: {why}")),
            Chosen::Cpu { instead: None } | Chosen::Cuda(_) => None,
        }
    }

    /// As the worker is told.
    pub fn name(&self) -> &'static str {
        match self {
            Chosen::Cpu { .. } => "cpu",
            Chosen::Cuda(_) => "cuda",
        }
    }

    /// As responses say.
    pub fn describe(&self, args: &ModelArgs) -> String {
        let threads = args.threads.map_or_else(default_threads, usize::from);
        match self {
            Chosen::Cpu { .. } => format!("cpu ({}, {threads} threads)", Isa::detect().name()),
            Chosen::Cuda(card) => format!("cuda ({})", card.name),
        }
    }
}

/// The first card that the driver shows, if Flint can use it.
pub fn card() -> Result<Listed, CudaError> {
    let card = Card::list()?.into_iter().next().ok_or(CudaError::NoCard)?;
    card.check().map(|()| card)
}

/// Why a model cannot run on a card.
fn unusable(config: &Config, card: &Listed, model: &Path) -> Option<String> {
    if !compiler_found(config) {
        return Some(CudaError::NoCompiler.to_string());
    }
    let bytes = file_bytes(model);
    (!fits(card, bytes)).then(|| {
        format!(
            "{} of weights do not fit into the {} of the {}",
            gigabytes(bytes),
            gigabytes(card.bytes),
            card.name
        )
    })
}

/// Whether kernels can be compiled: by NVRTC as the system finds it, in the toolkit's folder, or where pip put it.
pub fn compiler_found(config: &Config) -> bool {
    find_compiler(&config.toolkits) || find_compiler(&python_folders(&config.endpoints.python))
}

/// Where this Python's packages of NVIDIA have their libraries.
fn python_folders(python: &Path) -> Vec<PathBuf> {
    const FOLDERS: &str =
        "import site; print(*site.getsitepackages(), site.getusersitepackages(), sep='\\n')";
    let output =
        Command::new(python).args(["-c", FOLDERS]).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let Ok(output) = output else { return Vec::new() };
    let text = String::from_utf8_lossy(&output.stdout);
    let packages = text.lines().filter_map(|folder| std::fs::read_dir(Path::new(folder).join("nvidia")).ok());
    packages.flat_map(|entries| entries.flatten().map(|entry| entry.path().join("lib"))).collect()
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

    /// What pip installs into an environment of its own is found through its Python.
    #[test]
    fn libraries_among_pythons_packages_are_found() {
        let home = tempfile::tempdir().unwrap();
        let made =
            Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(home.path()).status().unwrap();
        assert!(made.success());
        let python = home.path().join("bin/python3");
        assert_eq!(
            python_folders(&python).iter().filter(|folder| folder.starts_with(home.path())).count(),
            0
        );
        let versions = std::fs::read_dir(home.path().join("lib")).unwrap();
        let packages = versions.flatten().next().unwrap().path().join("site-packages");
        let libraries = packages.join("nvidia/cu13/lib");
        std::fs::create_dir_all(&libraries).unwrap();
        assert!(python_folders(&python).contains(&libraries));
        assert!(python_folders(&home.path().join("none")).is_empty());
    }

    #[test]
    fn a_card_that_is_not_used_is_told_of() {
        let why = Chosen::Cpu { instead: Some("it is too small".into()) };
        assert_eq!(why.fallback().unwrap(), "cpu instead of cuda: it is too small");
        assert_eq!(Chosen::Cpu { instead: None }.fallback(), None);
    }

    #[test]
    fn a_model_fits_with_room_for_its_kv() {
        let card = Listed { name: "a card".into(), bytes: 16 << 30, capability: (9, 0), bandwidth: None };
        assert!(card.check().is_ok() && fits(&card, 11 << 30) && !fits(&card, 12 << 30));
    }
}
