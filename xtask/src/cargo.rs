//! Cargo and its subcommands, called by a program that Cargo runs.

use crate::paths;
use std::ffi::OsStr;
use std::process::Command;

pub fn cargo() -> Command {
    of_cargo("cargo")
}

/// A program of Cargo's, in the repository, as if a person called it. `cargo run` says in the environment which package it
/// runs: a build script that looks there (ring's does) would run again, and all that stands on it would be built again.
pub fn of_cargo(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    let of_package = |name: &String| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(of_package).for_each(|name| _ = command.env_remove(name));
    command.current_dir(paths::repository());
    command
}
