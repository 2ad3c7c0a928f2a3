//! `flint pull` and `flint models`, and finding the model that a command needs.

use crate::config::Config;
use crate::error::CliError;
use crate::interrupt;
use crate::progress::{PullBar, Spinner};
use flint_engine::device::cpu::{default_threads, read_bandwidth};
use flint_engine::model::available_bytes;
use flint_models::catalogue::{self, Entry};
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
    let bandwidth = read_bandwidth(default_threads()).ok();
    let free = available_bytes();
    drop(spinner);
    println!("{:<22} {:>8}  {:<7} {:<14} {:<13} what it is", "name", "size", "quant", "here", "speed, about");
    for entry in catalogue::entries() {
        let here = config.store.find(&ModelName::Known(entry)).is_some();
        println!(
            "{:<22} {:>8}  {:<7} {:<14} {:<13} {}, {}{}",
            entry.name,
            gigabytes(entry.bytes),
            entry.quantisation,
            if here { "yes" } else { "to be pulled" },
            speed(entry, bandwidth, free),
            entry.title,
            entry.note,
            if entry.default { " (the default)" } else { "" },
        );
    }
    if let (Some(bandwidth), Some(free)) = (bandwidth, free) {
        println!(
            "\nThis machine reads {:.0} GB/s and has {} of memory free. Speed is what that bandwidth allows.",
            bandwidth / 1e9,
            gigabytes(free)
        );
    }
    println!("Others: hf:REPO[:FILE], pypi:PACKAGE, a URL or a path.");
    Ok(())
}

/// Tokens a second if every weight is read once a token; or that it does not fit.
fn speed(entry: &Entry, bandwidth: Option<f64>, free: Option<u64>) -> String {
    let need = entry.bytes + entry.bytes / 20 + entry.kv_bytes_a_token * 4096;
    match (bandwidth, free) {
        (_, Some(free)) if need > free => "does not fit".into(),
        (Some(bandwidth), _) => format!("{:.0} tok/s", bandwidth / entry.bytes as f64),
        (None, _) => "unknown".into(),
    }
}

fn gigabytes(bytes: u64) -> String {
    match bytes {
        0..1_000_000_000 => format!("{:.0} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}
