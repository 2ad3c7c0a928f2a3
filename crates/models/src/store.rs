//! Where models lie on this machine.

use crate::catalogue::{Entry, Source};
use crate::digest::sha256_of_bytes;
use crate::name::{ModelName, is_plain_path};
use std::path::{Path, PathBuf};

/// The note in a repository's folder: the path in it that `hf:REPO` means.
pub(crate) const PULLED: &str = ".pulled";
pub(crate) const WHOLE_FOLDER: &str = ".";

/// Flint's own folder of models, and the hub's cache, which is read where it has a file already.
#[derive(Debug, Clone)]
pub struct Store {
    pub models: PathBuf,
    pub hub_cache: PathBuf, // `hub` in HF_HOME
}

/// Whom to ask for bytes.
#[derive(Debug, Clone)]
pub struct Endpoints {
    pub hub: String, // such as https://huggingface.co
    pub hub_token: Option<String>,
    pub python: PathBuf, // runs pip
}

impl Store {
    /// The file or folder of a model, if it is here.
    pub fn find(&self, name: &ModelName) -> Option<PathBuf> {
        if let ModelName::Known(entry) = name
            && let Some(listed) = entry.listed_name()
        {
            return self.find(&listed);
        }
        let own = match name {
            ModelName::Path(path) => path.clone(),
            ModelName::Hub { file: None, .. } => return self.find_repository(&self.place(name)),
            other => self.place(other),
        };
        if own.exists() {
            return Some(own);
        }
        match name {
            ModelName::Known(entry) => self.find_in_hub_cache(entry),
            ModelName::Hub { repository, file: Some(file) } => self.hub_file(repository, file, None),
            ModelName::Hub { file: None, .. }
            | ModelName::Package(_)
            | ModelName::Url(_)
            | ModelName::Path(_) => None,
        }
    }

    /// Where a pulled model goes.
    pub fn place(&self, name: &ModelName) -> PathBuf {
        match name {
            ModelName::Known(entry) => match entry.listed_name() {
                Some(listed) => self.place(&listed),
                None => self.models.join(format!("{}.gguf", entry.name)),
            },
            ModelName::Hub { repository, file: Some(file) } => self.repository(repository).join(file),
            ModelName::Hub { repository, file: None } => self.repository(repository),
            ModelName::Package(package) => self.models.join("pypi").join(format!("{package}.gguf")),
            ModelName::Url(url) => self.models.join("url").join(short_digest(url)).join(plain_file_name(url)),
            ModelName::Path(path) => self.models.join(path.file_name().unwrap_or_default()),
        }
    }

    /// A folder may hold half a repository, or another model of it: the note in it says what was pulled whole.
    fn find_repository(&self, folder: &Path) -> Option<PathBuf> {
        let note = std::fs::read_to_string(folder.join(PULLED)).ok()?;
        let path = if note == WHOLE_FOLDER { folder.to_path_buf() } else { folder.join(&note) };
        let ours = note == WHOLE_FOLDER || is_plain_path(&note);
        (ours && path.exists()).then_some(path)
    }

    pub(crate) fn repository(&self, repository: &str) -> PathBuf {
        self.models.join("hub").join(repository)
    }

    fn find_in_hub_cache(&self, entry: &Entry) -> Option<PathBuf> {
        entry.sources.iter().find_map(|source| match source {
            Source::Hub { repository, file } => self.hub_file(repository, file, Some(&entry.sha256)),
            Source::Wheels { .. } => None,
        })
    }

    /// A file of any snapshot in the hub's cache. With a digest, only a blob of that name will do.
    fn hub_file(&self, repository: &str, file: &str, sha256: Option<&str>) -> Option<PathBuf> {
        let folder = self.hub_cache.join(format!("models--{}", repository.replace('/', "--")));
        let snapshots = std::fs::read_dir(folder.join("snapshots")).ok()?;
        snapshots
            .flatten()
            .map(|snapshot| snapshot.path().join(file))
            .find(|path| path.is_file() && sha256.is_none_or(|sha256| is_blob(path, sha256)))
    }
}

/// The hub's cache names large files by their digest and links to them.
fn is_blob(path: &Path, sha256: &str) -> bool {
    path.canonicalize().is_ok_and(|blob| blob.file_name().is_some_and(|name| name == sha256))
}

/// Tells apart addresses that end alike.
fn short_digest(text: &str) -> String {
    let mut digest = sha256_of_bytes(text.as_bytes());
    digest.truncate(16);
    digest
}

pub(crate) fn plain_file_name(url: &str) -> String {
    let path = url.split(['?', '#']).next().unwrap_or(url);
    let name = path.rsplit('/').find(|part| !part.is_empty()).unwrap_or("model.gguf");
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect()
}
