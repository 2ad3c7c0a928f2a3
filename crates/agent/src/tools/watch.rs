//! Files of a workspace that a confined command has no business to change: what git and agents run or obey.
//!
//! Landlock cannot say "all of this folder but that": a right to a folder is one to all that is in it. So what stands in
//! these places is remembered before a command, and put back after it when the command has changed it; nothing of the
//! command runs any more then. A repository that a command makes itself is let be until it is there, and those within
//! other folders are not looked at.

use super::Workshop;
use crate::limits::{WATCHED_BYTES_MAX, WATCHED_FILES_MAX};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError};

const GIT: &str = ".git";

/// Of a repository: they name programs, or are some.
const OF_GIT: [&str; 4] = [".git/config", ".git/config.worktree", ".git/commondir", ".git/hooks"];

/// Of agents.
const OF_AGENTS: [&str; 2] = [".flint", ".codex"];

const DEPTH_MAX: usize = 16;

#[derive(Debug, Default)]
pub struct Watched {
    running: usize, // confined commands
    known: Snapshot,
}

#[derive(Debug, Default, Clone)]
struct Snapshot {
    things: BTreeMap<PathBuf, Thing>, // a folder before what is in it
    bytes: usize,
    cut: bool, // there is more than can be remembered
}

#[derive(Debug, Clone, PartialEq)]
enum Thing {
    Folder,
    File(Vec<u8>, u32), // and its mode
    Link(PathBuf),
    Other,
}

impl Workshop {
    /// Remembers what is there now, unless another command is at work: then what was there before it counts.
    pub(super) fn watch(&self) {
        let mut watched = self.watched();
        if watched.running == 0 {
            let mut now = self.snapshot();
            // One that went may come back, and must then be as it was.
            if !now.things.contains_key(Path::new(GIT)) {
                let old = std::mem::take(&mut watched.known.things);
                now.things.extend(old.into_iter().filter(|(path, _)| path.starts_with(GIT)));
            }
            watched.known = now;
        }
        watched.running += 1;
    }

    /// Puts back what a command has changed, and says so.
    pub(super) fn unwatch(&self) -> Vec<String> {
        let mut watched = self.watched();
        watched.running = watched.running.saturating_sub(1);
        let now = self.snapshot();
        let mut notes = self.put_back(&watched.known, &now);
        if now.cut || watched.known.cut {
            notes.push(
                "there is too much in `.git/hooks`, `.flint` or `.codex` to see what was changed there"
                    .to_owned(),
            );
        }
        notes
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let Ok(root) = open(&self.folder) else { return snapshot };
        snapshot.take(&root, Path::new(GIT), DEPTH_MAX);
        for path in OF_GIT.iter().chain(&OF_AGENTS) {
            snapshot.take(&root, Path::new(path), 0);
        }
        snapshot
    }

    fn put_back(&self, known: &Snapshot, now: &Snapshot) -> Vec<String> {
        let Ok(root) = open(&self.folder) else { return Vec::new() };
        let own = |path: &Path| path.starts_with(GIT);
        let (was, is) = (known.has(GIT), now.has(GIT));
        // Without a repository there is nothing that git would run.
        let asked = |path: &Path| !own(path) || (was && is);
        let mut changed = BTreeMap::new();
        for (path, _) in now.things.iter().rev().filter(|(path, _)| asked(path)) {
            if known.things.get(path).is_none_or(|thing| !thing.is_like(now.things.get(path))) {
                changed.insert(path.clone(), remove(&root, path));
            }
        }
        for (path, thing) in known.things.iter().filter(|(path, _)| asked(path)) {
            if now.things.get(path) != Some(thing) {
                changed.insert(path.clone(), thing.make(&root, path));
            }
        }
        changed.into_iter().map(|(path, outcome)| told(&path, outcome)).collect()
    }
}

fn told(path: &Path, outcome: Result<(), Errno>) -> String {
    let path = path.to_string_lossy().escape_debug().to_string();
    match outcome {
        Ok(()) => format!(
            "`{path}` was changed by the command and is put back as it was: what must be changed there needs an \
             unconfined command, which a person is asked about"
        ),
        Err(error) => format!("`{path}` was changed by the command and could not be put back: {error}"),
    }
}

impl Snapshot {
    fn has(&self, path: &str) -> bool {
        self.things.contains_key(Path::new(path))
    }

    /// Remembers what stands at a path, and below it as long as it is not too deep.
    fn take(&mut self, root: &OwnedFd, path: &Path, depth: usize) {
        let Ok(about) = about(root, path) else { return };
        if self.things.len() >= WATCHED_FILES_MAX {
            self.cut = true;
            return;
        }
        let thing = match about.0 {
            FileType::Directory => Thing::Folder,
            FileType::RegularFile => match self.content(root, path) {
                Some(content) => Thing::File(content, about.1),
                None => Thing::Other,
            },
            FileType::Symlink => target(root, path).map_or(Thing::Other, Thing::Link),
            _ => Thing::Other,
        };
        let folder = thing == Thing::Folder;
        self.things.insert(path.to_owned(), thing);
        if folder && depth < DEPTH_MAX {
            for name in names(root, path).unwrap_or_default() {
                self.take(root, &path.join(name), depth + 1);
            }
        }
    }

    fn content(&mut self, root: &OwnedFd, path: &Path) -> Option<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(beneath(root, path, flags).ok()?);
        let room = WATCHED_BYTES_MAX - self.bytes;
        let mut content = Vec::new();
        file.take(room as u64 + 1).read_to_end(&mut content).ok()?;
        if content.len() > room {
            self.cut = true;
            return None;
        }
        self.bytes += content.len();
        Some(content)
    }
}

impl Thing {
    /// Whether one can become the other without being taken away first.
    fn is_like(&self, other: Option<&Thing>) -> bool {
        match (self, other) {
            (Thing::Folder, Some(Thing::Folder)) | (Thing::Other, Some(Thing::Other)) => true,
            (Thing::File(..) | Thing::Link(_), other) => other == Some(self),
            (Thing::Folder | Thing::Other, _) => false,
        }
    }

    /// Makes it where nothing is, in a folder that is one.
    fn make(&self, root: &OwnedFd, path: &Path) -> Result<(), Errno> {
        let (folder, last) = parent(root, path)?;
        match self {
            Thing::Folder => rustix::fs::mkdirat(&folder, last, Mode::from_raw_mode(0o755)),
            Thing::Link(to) => rustix::fs::symlinkat(to, &folder, last),
            Thing::File(content, mode) => {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = rustix::fs::openat(&folder, last, flags, Mode::from_raw_mode(0o600))?;
                rustix::fs::fchmod(&file, Mode::from_raw_mode(mode & 0o777))?;
                let written = File::from(file).write_all(content);
                written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            }
            Thing::Other => Err(Errno::NOTSUP),
        }
    }
}

/// Takes away what is there, with all that is in it.
fn remove(root: &OwnedFd, path: &Path) -> Result<(), Errno> {
    let (folder, last) = parent(root, path)?;
    match rustix::fs::unlinkat(&folder, last, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        outcome => return outcome,
    }
    drop(folder); // a deep tree must not take all files that can be open
    for name in names(root, path)? {
        remove(root, &path.join(name))?;
    }
    let (folder, last) = parent(root, path)?;
    rustix::fs::unlinkat(&folder, last, AtFlags::REMOVEDIR)
}

fn open(folder: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// No link is followed at all: what is put back must not land elsewhere.
fn beneath(root: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)
}

fn parent<'a>(root: &OwnedFd, path: &'a Path) -> Result<(OwnedFd, &'a Path), Errno> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let last = path.file_name().map(Path::new).ok_or(Errno::INVAL)?;
    Ok((beneath(root, folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC)?, last))
}

fn about(root: &OwnedFd, path: &Path) -> Result<(FileType, u32), Errno> {
    let (folder, last) = parent(root, path)?;
    let about = rustix::fs::statat(&folder, last, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok((FileType::from_raw_mode(about.st_mode), about.st_mode & 0o777))
}

fn target(root: &OwnedFd, path: &Path) -> Option<PathBuf> {
    let (folder, last) = parent(root, path).ok()?;
    let target = rustix::fs::readlinkat(&folder, last, Vec::new()).ok()?;
    Some(PathBuf::from(OsString::from_vec(target.into_bytes())))
}

fn names(root: &OwnedFd, path: &Path) -> Result<Vec<OsString>, Errno> {
    let folder =
        beneath(root, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
    let mut names = Vec::new();
    for entry in Dir::read_from(&folder)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name));
        }
    }
    Ok(names)
}
