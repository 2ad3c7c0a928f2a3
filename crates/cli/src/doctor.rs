//! `flint doctor`: what was found, what is missing, and how to get it.

use crate::config::Config;
use crate::device::compiler_found;
use crate::error::CliError;
use crate::estimate::{Place, Verdict};
use crate::models::places;
use crate::progress::Spinner;
use flint_engine::device::cpu::{Isa, default_threads};
use flint_engine::device::cuda::{Card, CudaError, Listed};
use flint_models::ModelName;
use flint_models::catalogue;
use std::path::Path;
use std::process::{Command, Stdio};

pub fn doctor(config: &Config) -> Result<(), CliError> {
    let spinner = Spinner::new("looking around");
    let places = places();
    let mut checks = vec![processor(), memory(&places), huge_pages(), gpu(config)];
    checks.extend(speeds(&places));
    checks.extend([python(config), folder(config), models(config)]);
    drop(spinner);
    for Check { ok, name, found, advice } in checks {
        println!("{} {name:<12} {found}", if ok { "ok  " } else { "note" });
        if let Some(advice) = advice {
            println!("{:18}{advice}", "");
        }
    }
    Ok(())
}

struct Check {
    ok: bool,
    name: &'static str,
    found: String,
    advice: Option<String>,
}

fn found(name: &'static str, found: impl Into<String>) -> Check {
    Check { ok: true, name, found: found.into(), advice: None }
}

fn note(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
    Check { ok: false, name, found: found.into(), advice: Some(advice.into()) }
}

fn processor() -> Check {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let name = name.trim_start_matches(['\t', ' ', ':']);
    let isa = Isa::detect();
    let text = format!("{name}, {} threads, kernels: {}", default_threads(), isa.name());
    if isa == Isa::Portable {
        return note("processor", text, "No AVX2 or AVX-512 was found: Flint runs, but slowly.");
    }
    found("processor", text)
}

fn memory(places: &[Place]) -> Check {
    let known = places.iter().find(|place| matches!(place, Place::Cpu { .. }));
    let text = known.map_or_else(String::new, Place::describe);
    match known {
        Some(Place::Cpu { read: Some(_), .. }) => found("memory", text),
        _ => note("memory", text, "Its bandwidth could not be measured: too little of it is free."),
    }
}

fn huge_pages() -> Check {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    let setting = std::fs::read_to_string(path).unwrap_or_default();
    let chosen = setting.split(['[', ']']).nth(1).unwrap_or("not available").to_string();
    if matches!(chosen.as_str(), "always" | "madvise") {
        return found("huge pages", chosen);
    }
    note("huge pages", chosen, format!("A third more bandwidth: echo madvise | sudo tee {path}"))
}

fn gpu(config: &Config) -> Check {
    let cards = match Card::list() {
        Ok(cards) if !cards.is_empty() => cards,
        Err(error @ CudaError::Driver { .. }) => return note("gpu", error.to_string(), "The CPU is used."),
        _ if Path::new("/proc/driver/nvidia/version").exists() => {
            return note("gpu", "an NVIDIA driver, but no card", CudaError::NoCard.to_string());
        }
        _ => return found("gpu", "none; the CPU is used"),
    };
    let shown: Vec<String> = cards.iter().map(describe).collect();
    if !cards.iter().any(|card| card.check().is_ok()) {
        return note("gpu", shown.join("; "), "Flint needs sm_80 or later; the CPU is used.");
    }
    if !compiler_found(config) {
        return note("gpu", shown.join("; "), CudaError::NoCompiler.to_string());
    }
    found("gpu", shown.join("; "))
}

/// What each device could run, and how fast: a line for each.
fn speeds(places: &[Place]) -> Vec<Check> {
    places.iter().map(|place| found("runs", runs(place))).collect()
}

fn runs(place: &Place) -> String {
    let of = |entry: &catalogue::Entry| match place.verdict(entry) {
        Verdict::Fits(Some(rate)) => Some(format!("{} at about {}", entry.name, Verdict::Fits(Some(rate)))),
        Verdict::Fits(None) => Some(entry.name.clone()),
        Verdict::TooLarge | Verdict::Unusable => None,
    };
    let models: Vec<String> = catalogue::entries().iter().filter_map(of).collect();
    match models.as_slice() {
        [] => format!("{}: none of `flint models`", place.short_name()),
        models => format!("{}: {}", place.short_name(), models.join(", ")),
    }
}

fn describe(card: &Listed) -> String {
    let (major, minor) = card.capability;
    format!("{} (sm_{major}{minor}, {:.0} GB)", card.name, card.bytes as f64 / 1e9)
}

fn python(config: &Config) -> Check {
    let python = &config.endpoints.python;
    let output = Command::new(python).args(["-m", "pip", "--version"]).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            found("pip", text.split(" from ").next().unwrap_or("found").trim().to_string())
        }
        _ => note(
            "pip",
            format!("{} -m pip does not run", python.display()),
            "Only needed to pull models where the hub is out of reach, and for `flint bench --peer`. \
             Install Python 3 with pip, or set FLINT_PYTHON.",
        ),
    }
}

fn folder(config: &Config) -> Check {
    let models = &config.store.models;
    match std::fs::create_dir_all(models) {
        Ok(()) => found("models in", models.display().to_string()),
        Err(error) => note(
            "models in",
            models.display().to_string(),
            format!("{error}. Set FLINT_CACHE to a folder that you may write."),
        ),
    }
}

fn models(config: &Config) -> Check {
    let here = |entry: &&'static catalogue::Entry| config.store.find(&ModelName::Known(entry)).is_some();
    let names: Vec<&str> =
        catalogue::entries().iter().filter(here).map(|entry| entry.name.as_str()).collect();
    if names.is_empty() {
        return note("models", "none yet", format!("Run: flint pull {}", catalogue::default_entry().name));
    }
    found("models", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_told_with_what_it_runs() {
        let card =
            Listed { name: "NVIDIA L4".into(), bytes: 8 << 30, capability: (8, 9), bandwidth: Some(3e11) };
        assert_eq!(describe(&card), "NVIDIA L4 (sm_89, 9 GB)");
        assert_eq!(
            runs(&Place::Card(card.clone())),
            "L4: qwen2.5-coder-1.5b at about 200 tok/s, smollm2-135m at about 540 tok/s, qwen2.5-coder-7b at about 59 tok/s"
        );
        let old = Listed { capability: (7, 0), ..card };
        assert_eq!(runs(&Place::Card(old)), "L4: none of `flint models`");
    }
}
