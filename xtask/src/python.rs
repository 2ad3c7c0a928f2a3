//! A Python environment of our own, with the packages that the reference comes from.

use crate::{Outcome, paths};
use std::path::{Path, PathBuf};
use std::process::Command;

/// All of these there: the environment is whole.
const PACKAGES: &str = "import accelerate, gguf, numpy, safetensors, torch, transformers";

/// The interpreter of the environment, which is made when it is not there.
pub fn interpreter() -> Outcome<PathBuf> {
    let folder = paths::cache()?.join("venv");
    let python = folder.join("bin/python");
    let whole = Command::new(&python).args(["-c", PACKAGES]).output();
    if whole.is_ok_and(|output| output.status.success()) {
        return Ok(python);
    }
    eprintln!("installing torch and transformers into {} (some gigabytes, once)", folder.display());
    must(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    must(
        Command::new(&python).args(["-m", "pip", "install", "--quiet", "-r"]).arg(script("requirements.txt")),
    )?;
    Ok(python)
}

/// A file of `xtask/python`.
pub fn script(name: &str) -> PathBuf {
    paths::repository().join("xtask/python").join(name)
}

/// A command that runs one of our scripts. It never asks a model hub.
pub fn command(python: &Path, name: &str) -> Command {
    let mut command = Command::new(python);
    command.arg("-B").args(["-W", "ignore"]).arg(script(name)).env("HF_HUB_OFFLINE", "1");
    command
}

/// Runs a command to its end; anything but success is an error.
pub fn must(command: &mut Command) -> Outcome {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|error| format!("cannot run {program}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{program} failed ({status})").into()) }
}
