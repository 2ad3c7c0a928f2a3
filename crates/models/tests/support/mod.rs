//! A place for models that is gone after the test, and someone who watches pulls.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use super::loopback::Loopback;
use flint_models::catalogue::{Entry, Source, default_entry};
use flint_models::{Endpoints, ModelName, Progress, PullError, Store, pull, sha256_of_file};
use std::cell::Cell;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Bytes without a pattern that a wrong offset could hide in.
pub fn bytes(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(next).collect()
}

pub fn sha256(bytes: &[u8]) -> String {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    sha256_of_file(file.path(), &mut |_| ()).unwrap()
}

/// A model of the catalogue with these bytes.
pub fn entry(model: &[u8], sources: Vec<Source>) -> ModelName {
    let (bytes, sha256) = (model.len() as u64, sha256(model));
    let entry = Entry { name: "tiny".into(), bytes, sha256, sources, ..default_entry().clone() };
    ModelName::Known(Box::leak(Box::new(entry)))
}

pub struct Home {
    pub folder: TempDir,
    pub store: Store,
    pub hub: String,
    pub token: Option<String>,
    pub python: PathBuf,
}

impl Home {
    /// Where `server` is the hub.
    pub fn new(server: &Loopback) -> Home {
        let folder = tempfile::tempdir().unwrap();
        let store = Store { models: folder.path().join("models"), hub_cache: folder.path().join("hub") };
        Home { store, folder, hub: server.url(""), token: None, python: "python3".into() }
    }

    /// Where `server` is the package index too.
    pub fn with_pip(server: &Loopback) -> Home {
        let home = Home::new(server);
        Home { python: install_python(home.folder.path(), &server.url("/simple/")), ..home }
    }

    pub fn pull(&self, name: &ModelName) -> Result<PathBuf, PullError> {
        self.pull_watched(name, &mut Watch::default())
    }

    /// Pulls, and sees to it that nothing is in the model's place before all of it is.
    pub fn pull_whole(&self, name: &ModelName) -> Result<PathBuf, PullError> {
        self.pull_watched(name, &mut Watch { unseen: Some(self.store.place(name)), ..Watch::default() })
    }

    pub fn pull_watched(&self, name: &ModelName, watch: &mut Watch) -> Result<PathBuf, PullError> {
        let (hub, hub_token) = (self.hub.clone(), self.token.clone());
        let endpoints = Endpoints { hub, hub_token, python: self.python.clone() };
        pull(name, &self.store, &endpoints, watch)
    }

    pub fn models(&self, path: &str) -> PathBuf {
        self.store.models.join(path)
    }

    pub fn partial(&self, name: &ModelName) -> PathBuf {
        self.store.place(name).with_added_extension("partial")
    }

    /// Leaves the beginning of a model, as an earlier pull would have.
    pub fn begin(&self, name: &ModelName, bytes: &[u8], tag: &str) -> PathBuf {
        let partial = self.partial(name);
        fs::create_dir_all(partial.parent().unwrap()).unwrap();
        fs::write(&partial, bytes).unwrap();
        fs::write(partial.with_added_extension("etag"), tag).unwrap();
        partial
    }

    /// Everything in the store.
    pub fn files(&self) -> Vec<PathBuf> {
        files_in(&self.store.models)
    }
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_in(&path) } else { vec![path] }).collect()
}

/// Python whose pip knows one index only, whatever this machine's settings are. Another process writes the
/// program: a file that is open for writing, even in a process that was just forked here, cannot be run.
fn install_python(folder: &Path, index: &str) -> PathBuf {
    let (text, program) = (folder.join("python.sh"), folder.join("python"));
    let script = format!(
        "#!/bin/sh\nunset PIP_FIND_LINKS PIP_EXTRA_INDEX_URL PIP_NO_INDEX\n\
         PIP_CONFIG_FILE=/dev/null PIP_INDEX_URL={index} PIP_NO_CACHE_DIR=1 exec python3 \"$@\"\n"
    );
    fs::write(&text, script).unwrap();
    let installed = Command::new("install").args(["-m", "755"]).args([&text, &program]).status().unwrap();
    assert!(installed.success());
    program
}

/// Watches a pull; stops it where it is told to.
#[derive(Default)]
pub struct Watch {
    pub unseen: Option<PathBuf>, // must not exist as long as something is going on
    pub stop_at: Option<u64>,    // bytes
    pub stop_in: Option<&'static str>, // a file whose address contains this
    pub stop_on: Option<u32>,    // how often it was asked whether to stop
    pub asked: Cell<u32>,
    pub notes: Vec<String>,
    pub stopped: bool,
}

impl Watch {
    fn look(&self) {
        let unseen = self.unseen.as_ref();
        assert!(unseen.is_none_or(|path| !path.exists()), "seen before it was whole");
    }
}

impl Progress for Watch {
    fn begin(&mut self, what: &str, _: Option<u64>, _: u64) {
        self.look();
        self.stopped |= self.stop_in.is_some_and(|text| what.contains(text));
    }

    fn at(&mut self, done: u64) {
        self.look();
        self.stopped |= self.stop_at.is_some_and(|at| done >= at);
    }

    fn note(&mut self, text: &str) {
        self.look();
        self.notes.push(text.into());
    }

    fn stop(&self) -> bool {
        self.asked.set(self.asked.get() + 1);
        self.stopped || self.stop_on.is_some_and(|asked| self.asked.get() >= asked)
    }
}
