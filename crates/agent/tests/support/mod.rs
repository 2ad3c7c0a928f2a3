//! A workspace with a keeper, and things outside of it that are none of its business.

#![allow(dead_code)] // each test uses some of it

use flint_agent::tools::{Ran, ShellCall, ToolError, Workshop};
use flint_sandbox::{Mode, Policy};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub const KEEPER: &str = env!("CARGO_BIN_EXE_keeper");

pub struct Place {
    _base: tempfile::TempDir,
    pub work: PathBuf,
    pub outside: PathBuf,
    pub home: PathBuf,
    temporary: PathBuf,
}

impl Place {
    pub fn new() -> Place {
        let base = tempfile::tempdir().unwrap();
        let at = |path: &str| base.path().canonicalize().unwrap().join(path);
        for folder in ["work", "temporary", "outside", "home/.ssh"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        fs::write(at("outside/secret.txt"), "marmalade\n").unwrap();
        fs::write(at("home/.ssh/key"), "marmalade\n").unwrap();
        Place {
            work: at("work"),
            outside: at("outside"),
            home: at("home"),
            temporary: at("temporary"),
            _base: base,
        }
    }

    pub fn policy(&self, mode: Mode) -> Policy {
        Policy::new(mode, self.work.clone(), self.temporary.clone(), &self.home)
    }

    pub fn shop(&self, mode: Mode) -> Workshop {
        Workshop::open(self.policy(mode), KEEPER.into()).unwrap()
    }

    /// A workspace that may be written.
    pub fn open(&self) -> Workshop {
        self.shop(Mode::WorkspaceWrite)
    }

    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.work.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub fn says(&self, path: &str) -> String {
        fs::read_to_string(self.work.join(path)).unwrap()
    }

    pub fn link(&self, to: &Path, name: &str) {
        std::os::unix::fs::symlink(to, self.work.join(name)).unwrap();
    }
}

pub fn call(command: &str) -> ShellCall {
    let timeout = Duration::from_secs(60);
    ShellCall { command: command.to_owned(), workdir: None, timeout, unconfined: false }
}

pub fn run(shop: &Workshop, command: &str) -> Result<Ran, ToolError> {
    shop.shell(&call(command), &mut |_| {}, &AtomicBool::new(false))
}

/// What a command writes. Where the machine cannot confine, that is what must be said.
pub fn output(shop: &Workshop, command: &str) -> Ran {
    run(shop, command).unwrap()
}

/// Where it cannot, no command must have run.
pub fn can_confine() -> bool {
    let Err(missing) = flint_sandbox::check() else { return true };
    let place = Place::new();
    let error = run(&place.open(), "touch ran").unwrap_err().to_string();
    assert_eq!(error, format!("the command was not run: {missing}"));
    assert!(!place.work.join("ran").exists());
    false
}
