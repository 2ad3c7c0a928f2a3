//! What a command may do.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// How much a command may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    ReadOnly,
    WorkspaceWrite,
    /// No rights are taken away; its processes are still ended with it.
    DangerFullAccess,
}

/// All paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    pub mode: Mode,
    pub root: PathBuf,            // the workspace
    pub writable: Vec<PathBuf>,   // besides it, with `WorkspaceWrite`
    pub temporary: PathBuf,       // a folder for temporary files, writable with `WorkspaceWrite`
    pub secrets: Vec<PathBuf>,    // that cannot be read, nor listed
    pub network: bool,            // TCP and UDP; never sockets of this machine
    pub environment: Vec<String>, // variables that are kept besides the harmless ones
    pub limits: Limits,
}

/// Of each process. None: what the caller has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub cpu_seconds: Option<u64>,
    pub memory_bytes: Option<u64>, // of address space
    pub file_bytes: Option<u64>,   // of a file that is written
    pub open_files: Option<u64>,
    pub processes: Option<u64>, // of this user; root has no such limit
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("{0}: a path of a sandbox must be absolute, without `..`")]
    Relative(PathBuf),
    #[error("{0:?}: a path of a sandbox must be UTF-8: the keeper is told it as text")]
    NotText(PathBuf),
    #[error("{folder} holds {secret}, which must stay unreadable: work in a folder of its own")]
    HoldsSecret { folder: PathBuf, secret: PathBuf },
    #[error("{folder} lies within {secret}, which must stay unreadable: work in another folder")]
    WithinSecret { folder: PathBuf, secret: PathBuf },
}

impl Policy {
    /// A policy for a workspace, with the usual secrets of the user whose home is `home`.
    pub fn new(mode: Mode, root: PathBuf, temporary: PathBuf, home: &Path) -> Policy {
        Policy {
            mode,
            root,
            writable: Vec::new(),
            temporary,
            secrets: default_secrets(home),
            network: false,
            environment: Vec::new(),
            limits: Limits::default(),
        }
    }

    /// What may be written. Landlock can only add rights on the way down a tree: what lies within these is writable too.
    pub fn written(&self) -> Vec<&Path> {
        match self.mode {
            Mode::ReadOnly => Vec::new(),
            Mode::WorkspaceWrite => {
                let more = self.writable.iter().map(PathBuf::as_path);
                [self.root.as_path(), self.temporary.as_path()].into_iter().chain(more).collect()
            }
            Mode::DangerFullAccess => vec![Path::new("/")],
        }
    }

    pub(crate) fn check(&self) -> Result<(), PolicyError> {
        let all = || [&self.root, &self.temporary].into_iter().chain(&self.writable).chain(&self.secrets);
        if let Some(path) = all().find(|path| path.to_str().is_none()) {
            return Err(PolicyError::NotText(path.clone()));
        }
        if self.mode == Mode::DangerFullAccess {
            return Ok(());
        }
        for path in all() {
            let plain = path.components().all(|part| part != std::path::Component::ParentDir);
            if !path.is_absolute() || !plain {
                return Err(PolicyError::Relative(path.clone()));
            }
        }
        self.written().into_iter().chain([self.root.as_path()]).try_for_each(|folder| self.apart(folder))
    }

    /// A folder that is granted must not have a secret in it, whatever links lead there.
    fn apart(&self, folder: &Path) -> Result<(), PolicyError> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let within = real(folder);
        for secret in self.secrets.iter().filter(|secret| secret.symlink_metadata().is_ok()) {
            let (folder, named) = (folder.to_owned(), secret.clone());
            let secret = real(secret);
            if secret.starts_with(&within) {
                return Err(PolicyError::HoldsSecret { folder, secret: named });
            }
            if within.starts_with(&secret) {
                return Err(PolicyError::WithinSecret { folder, secret: named });
            }
        }
        Ok(())
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// What nobody who writes code has to read: keys, tokens, histories, and other programs' passwords.
pub fn default_secrets(home: &Path) -> Vec<PathBuf> {
    const OF_HOME: [&str; 44] = [
        ".ssh",
        ".gnupg",
        ".aws",
        ".azure",
        ".config/gcloud",
        ".config/flint",
        ".config/gh",
        ".config/hub",
        ".config/op",
        ".config/git/credentials",
        ".config/containers/auth.json",
        ".config/google-chrome",
        ".config/chromium",
        ".config/github-copilot",
        ".config/doctl",
        ".config/rclone",
        ".config/sops",
        ".config/age",
        ".kube",
        ".docker",
        ".netrc",
        ".git-credentials",
        ".npmrc",
        ".yarnrc.yml",
        ".pypirc",
        ".cargo/credentials",
        ".cargo/credentials.toml",
        ".codex/auth.json",
        ".claude/.credentials.json",
        ".local/share/keyrings",
        ".local/share/kwalletd",
        ".local/share/flint",
        ".password-store",
        ".mozilla",
        ".thunderbird",
        ".terraform.d/credentials.tfrc.json",
        ".vault-token",
        ".fly",
        ".pgpass",
        ".my.cnf",
        ".bash_history",
        ".zsh_history",
        ".python_history",
        ".node_repl_history",
    ];
    const OF_ALL: [&str; 9] = [
        "/etc/shadow",
        "/etc/shadow-",
        "/etc/gshadow",
        "/etc/gshadow-",
        "/etc/sudoers",
        "/etc/ssl/private",
        "/etc/ssh",
        "/run/secrets",
        "/var/run/secrets",
    ];
    let own = OF_HOME.iter().map(|path| home.join(path));
    own.chain(OF_ALL.iter().map(PathBuf::from)).collect()
}
