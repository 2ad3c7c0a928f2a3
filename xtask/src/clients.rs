//! The clients that judge the server, unmodified: the Codex CLI, Continue and OpenAI's SDKs, at pinned versions.

use crate::{Outcome, must, paths};
use std::fs;
use std::path::Path;
use std::process::Command;

const NPM: [&str; 3] = ["@openai/codex@0.166.0", "@continuedev/cli@1.5.47", "openai@6.49.0"];
const PIP: [&str; 3] = ["openai==3.49.0", "jsonschema==4.26.0", "schemathesis==4.32.5"];

/// Installs what is not there yet, under `clients` in Flint's cache.
pub fn install() -> Outcome {
    let folder = paths::cache()?.join("clients");
    fs::create_dir_all(&folder)?;
    once(&folder.join("npm.installed"), &NPM, || npm(&folder))?;
    once(&folder.join("pip.installed"), &PIP, || pip(&folder))
}

/// Runs `install` unless the mark says that exactly these versions are there.
pub fn once(mark: &Path, versions: &[&str], install: impl FnOnce() -> Outcome) -> Outcome {
    let wanted = versions.join("\n");
    if fs::read_to_string(mark).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    eprintln!("installing {}", versions.join(", "));
    install()?;
    Ok(fs::write(mark, wanted)?)
}

fn npm(folder: &Path) -> Outcome {
    fs::write(folder.join("package.json"), "{\"private\": true}\n")?;
    let mut install = Command::new("npm");
    must(install.current_dir(folder).args(["install", "--no-audit", "--no-fund", "--silent"]).args(NPM))
}

fn pip(folder: &Path) -> Outcome {
    let venv = folder.join("python");
    must(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    let mut install = Command::new(venv.join("bin/pip"));
    must(install.args(["install", "--quiet", "--disable-pip-version-check"]).args(PIP))
}
