//! The files of the repository, as git tracks them.

use crate::{Outcome, paths};
use std::fs;
use std::process::Command;

/// Doc comments that begin with this are programs.
const DOCTEST: [&str; 2] = [concat!("/// `", "``"), concat!("//! `", "``")];

/// Whether any crate has tests in its doc comments.
pub fn has_doctests() -> Outcome<bool> {
    let starts = |line: &str| DOCTEST.iter().any(|start| line.trim_start().starts_with(start));
    for name in tracked()?.iter().filter(|name| name.ends_with(".rs")) {
        if read(name)?.lines().any(starts) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Names of all tracked files, from the root.
pub fn tracked() -> Outcome<Vec<String>> {
    let output = Command::new("git").current_dir(paths::repository()).arg("ls-files").output()?;
    if !output.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let names = String::from_utf8(output.stdout)?;
    // A file may be gone from the tree and not yet from the index.
    let there = |name: &&str| paths::repository().join(name).is_file();
    Ok(names.lines().filter(there).map(str::to_owned).collect())
}

pub fn read(name: &str) -> Outcome<String> {
    fs::read_to_string(paths::repository().join(name)).map_err(|error| format!("{name}: {error}").into())
}
