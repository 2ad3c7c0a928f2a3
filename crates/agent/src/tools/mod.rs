//! What a model can do: run a command, read, search and list files, change them.
//!
//! Each tool is a plain function that blocks, bounded in time and in what it returns. Files are reached beneath one folder
//! only, commands through the sandbox only. Whether a call needs a yes is not decided here (`approve`), with one
//! exception: what a confined command has no business to change is put back after it (`watch`).

mod block;
mod copy;
mod diff;
mod edit;
mod list;
mod near;
mod output;
mod read;
mod search;
mod shell;
mod terminal;
mod walk;
mod watch;

pub use diff::{diff, diffs};
pub use edit::Edited;
pub use shell::{Ran, ShellCall};

use crate::root::{FileError, Name, NameError, Root};
use flint_sandbox::{Mode, Policy, PolicyError, Sandbox};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// One workspace and what commands may do there. There is one for each folder, whoever shares it.
#[derive(Debug)]
pub struct Workshop {
    root: Root,
    folder: PathBuf,       // the same, without links on the way
    secrets: Vec<PathBuf>, // those within it, and where they lead
    network: bool,
    confined: Sandbox,
    free: Sandbox, // for what a person has said yes to
    mode: Mode,
    watched: Mutex<watch::Watched>,
}

#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error("{0}")]
    Name(#[from] NameError),
    #[error("{0}")]
    File(#[from] FileError),
    #[error("{0}")]
    Policy(#[from] PolicyError),
    #[error(
        "{path:?} is outside of {folder:?}: files there can be read by a command, such as `cat`, and not changed"
    )]
    Outside { path: String, folder: PathBuf },
    #[error("{0} is kept secret: do without it, or ask the person for the part that you need")]
    Secret(Name),
    #[error("{name} is not there{}", likely(.near))]
    Missing { name: Name, near: Vec<String> },
    #[error("{0} is not UTF-8 text: use a command that understands it")]
    NotText(Name),
    #[error("{name}: {reason}")]
    NoPlace { name: Name, reason: String },
    #[error("the new text is the same as the old: nothing is to be changed in {0}")]
    Same(Name),
    #[error("the glob {glob:?} cannot be read: {reason}")]
    Glob { glob: String, reason: String },
    #[error("nothing was searched: the pattern is empty, or has more than {0} bytes")]
    Pattern(usize),
    #[error("the command was not run: {0}")]
    NotRun(String),
}

/// Only what lies within the folder could be reached by a name.
fn within(folder: &Path, secrets: &[PathBuf]) -> Vec<PathBuf> {
    let real = secrets.iter().filter_map(|secret| secret.canonicalize().ok());
    real.chain(secrets.iter().cloned()).filter(|secret| secret.starts_with(folder)).collect()
}

fn likely(near: &[String]) -> String {
    match near {
        [] => ": list the folder to see what is".to_owned(),
        near => format!("; did you mean {}?", near.join(" or ")),
    }
}

impl Workshop {
    /// The folder is the policy's. `program` is the keeper's, as for `Sandbox::new`.
    pub fn open(policy: Policy, program: PathBuf) -> Result<Workshop, ToolError> {
        let unreadable = |error: std::io::Error| ToolError::NotRun(format!("{:?}: {error}", policy.root));
        let folder = policy.root.canonicalize().map_err(unreadable)?;
        let free = Policy { mode: Mode::DangerFullAccess, ..policy.clone() };
        Ok(Workshop {
            root: Root::open(&folder).map_err(unreadable)?,
            secrets: within(&folder, &policy.secrets),
            folder,
            network: policy.network,
            mode: policy.mode,
            free: Sandbox::new(free, program.clone())?,
            confined: Sandbox::new(policy, program)?,
            watched: Mutex::default(),
        })
    }

    pub fn root(&self) -> &Root {
        &self.root
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A path as a model writes it: beneath the folder, be it in full.
    pub fn name(&self, path: &str) -> Result<Name, ToolError> {
        let within = Path::new(path).strip_prefix(&self.folder).ok().and_then(Path::to_str);
        Name::new(within.unwrap_or(path)).map_err(|error| match error {
            NameError::Outside(path) => ToolError::Outside { path, folder: self.folder.clone() },
            error => error.into(),
        })
    }

    /// Likewise for a folder: none is the workspace itself.
    fn folder_name(&self, path: Option<&str>) -> Result<Option<Name>, ToolError> {
        match self.name(path.unwrap_or(".")) {
            Err(ToolError::Name(NameError::Empty)) => Ok(None),
            name => name.map(Some),
        }
    }

    /// Secrets are not read, whatever links lead to them.
    fn not_secret(&self, name: &Name) -> Result<(), ToolError> {
        if self.secrets.is_empty() {
            return Ok(());
        }
        let path = self.folder.join(name.path());
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        match self.secrets.iter().any(|secret| path.starts_with(secret) || real.starts_with(secret)) {
            true => Err(ToolError::Secret(name.clone())),
            false => Ok(()),
        }
    }

    /// A file's bytes and mode, or what may have been meant by its name.
    fn content(&self, name: &Name) -> Result<(Vec<u8>, u32), ToolError> {
        self.not_secret(name)?;
        match self.root.read(name) {
            Err(FileError::Missing(name)) => Err(ToolError::Missing { near: self.near(&name), name }),
            content => Ok(content?),
        }
    }

    /// What came of a look at a folder, or what may have been meant by its name.
    fn or_near<T>(&self, outcome: Result<T, ToolError>, name: Option<Name>) -> Result<T, ToolError> {
        match (outcome, name) {
            (Err(ToolError::File(FileError::Missing(_))), Some(name)) if self.root.has(&name) => {
                Err(FileError::NotAFolder(name).into())
            }
            (Err(ToolError::File(FileError::Missing(_))), Some(name)) => {
                Err(ToolError::Missing { near: self.near(&name), name })
            }
            (outcome, _) => outcome,
        }
    }
}
