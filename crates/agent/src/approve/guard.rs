//! Files that tell git and agents what to run and whom to obey. They are not changed by the way.

use crate::root::Name;
use std::path::{Component, Path, PathBuf};

/// Folders, wherever they stand.
const FOLDERS: [&str; 5] = [".git", ".flint", ".codex", ".claude", ".cursor"];

/// Files, wherever they stand.
const FILES: [&str; 8] = [
    "agents.md",
    "agents.override.md",
    "claude.md",
    "gemini.md",
    "copilot-instructions.md",
    ".cursorrules",
    ".mcp.json",
    ".gitmodules",
];

/// Whether a file beneath a folder is one of them, whatever links lead to it.
pub fn guarded(folder: &Path, name: &Name) -> bool {
    let path = folder.join(name.path());
    named(name.path()) || named(real(&path).strip_prefix(folder).unwrap_or(name.path()))
}

fn named(path: &Path) -> bool {
    // As a file system may that does not tell capitals from others.
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(part) => Some(part.to_string_lossy().to_lowercase()),
        _ => None,
    });
    let parts: Vec<String> = parts.collect();
    let file = parts.last().is_some_and(|file| FILES.contains(&file.as_str()));
    file || parts.iter().any(|part| FOLDERS.contains(&part.as_str()))
}

/// Where a path leads; what is not there yet stands in the folder that is.
fn real(path: &Path) -> PathBuf {
    for above in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (above.canonicalize(), path.strip_prefix(above)) {
            return real.join(rest);
        }
    }
    path.to_owned()
}
