//! The files of `corpus`, for the tests that replay them.

use std::path::PathBuf;
use std::{fs, panic};

fn folder(target: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("fuzz/corpus").join(target)
}

/// Gives every file of the target's corpus to `promise`, and names those that break it.
pub fn corpus(target: &str, promise: fn(&[u8])) {
    let folder = folder(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let files: Vec<PathBuf> = entries.map(|entry| entry.expect("a seed").path()).collect();
    assert!(files.len() >= 10, "{} has {} seeds only", folder.display(), files.len());
    let breaks = |file: &PathBuf| {
        let bytes = fs::read(file).expect("a seed");
        panic::catch_unwind(|| promise(&bytes)).is_err()
    };
    let broken: Vec<PathBuf> = files.into_iter().filter(breaks).collect();
    assert!(broken.is_empty(), "promises are broken by {broken:#?}");
}

/// The corpus has this file. `UPDATE_CORPUS=1` writes it.
#[allow(dead_code)] // only some seeds are made by code
pub fn has(target: &str, name: &str, bytes: &[u8]) {
    let file = folder(target).join(name);
    if std::env::var_os("UPDATE_CORPUS").is_some() {
        fs::create_dir_all(folder(target)).and_then(|()| fs::write(&file, bytes)).expect("a seed");
    }
    let found = fs::read(&file);
    let found =
        found.unwrap_or_else(|error| panic!("{}: {error}; UPDATE_CORPUS=1 writes it", file.display()));
    assert!(found == bytes, "{} is not what the test makes; UPDATE_CORPUS=1 writes it", file.display());
}
