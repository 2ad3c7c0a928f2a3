//! A folder that nothing leaves: names from outside are looked up by the kernel, which does not follow them out of it.

use crate::limits::{FILE_BYTES_MAX, FOLDER_ENTRIES_MAX, PATH_BYTES_MAX};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// An open folder.
#[derive(Debug)]
pub struct Root {
    folder: OwnedFd,
}

/// A path beneath a root, as a model or a person writes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(PathBuf);

/// One of what stands in a folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub name: OsString,
    pub kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    File,
    Folder,
    Link,
    /// A pipe, a socket, a device.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("a path is missing")]
    Empty,
    #[error("{0:?} has more than {PATH_BYTES_MAX} bytes")]
    Long(String),
    #[error("{0:?} leads out of the folder: give a path beneath it, without `..`")]
    Outside(String),
    #[error("{0:?} is git's own: use git for it")]
    Git(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    #[error("{0} is not there")]
    Missing(Name),
    #[error("{0} is there already")]
    Exists(Name),
    #[error(
        "{0} is a link, or there is one on the way to it that leads out of the folder: name the file itself"
    )]
    Link(Name),
    #[error("{0} is not a file")]
    NotAFile(Name),
    #[error("{0} is not a folder")]
    NotAFolder(Name),
    #[error("{name} has more than {bytes_max} bytes")]
    Large { name: Name, bytes_max: u64 },
    #[error("{name}: {reason}")]
    Io { name: Name, reason: String },
}

impl std::fmt::Display for Name {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // No escape sequence reaches a terminal by a file's name.
        write!(out, "{}", self.0.to_string_lossy().escape_debug())
    }
}

impl Name {
    pub fn new(text: &str) -> Result<Name, NameError> {
        let said = || text.escape_debug().to_string().chars().take(100).collect::<String>();
        if text.len() > PATH_BYTES_MAX {
            return Err(NameError::Long(said()));
        }
        let mut path = PathBuf::new();
        for part in Path::new(text).components() {
            match part {
                Component::CurDir => {}
                Component::Normal(part) if part.eq_ignore_ascii_case(".git") => {
                    return Err(NameError::Git(said()));
                }
                Component::Normal(part) => path.push(part),
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(NameError::Outside(said()));
                }
            }
        }
        if path.as_os_str().is_empty() {
            return Err(NameError::Empty);
        }
        match text.contains('\0') {
            true => Err(NameError::Outside(said())),
            false => Ok(Name(path)),
        }
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The folder that it stands in, and its name there.
    fn split(&self) -> (&Path, &Path) {
        let folder = self.0.parent().filter(|folder| !folder.as_os_str().is_empty());
        (folder.unwrap_or(Path::new(".")), self.0.file_name().map_or(Path::new("."), Path::new))
    }
}

impl Root {
    pub fn open(path: &Path) -> std::io::Result<Root> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Root { folder: rustix::fs::open(path, flags, Mode::empty())? })
    }

    /// What a file says, and its mode.
    pub fn read(&self, name: &Name) -> Result<(Vec<u8>, u32), FileError> {
        self.read_within(name, FILE_BYTES_MAX)
    }

    /// Likewise, of a file that has no more bytes than that.
    pub fn read_within(&self, name: &Name, bytes_max: u64) -> Result<(Vec<u8>, u32), FileError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut file = File::from(self.beneath(name, name.path(), flags)?);
        let about = file.metadata().map_err(|error| failed(name, error))?;
        if !about.is_file() {
            return Err(FileError::NotAFile(name.clone()));
        }
        let mut content = Vec::new();
        let read = (&mut file).take(bytes_max + 1).read_to_end(&mut content);
        read.map_err(|error| failed(name, error))?;
        match content.len() as u64 > bytes_max {
            true => Err(FileError::Large { name: name.clone(), bytes_max }),
            false => Ok((content, std::os::unix::fs::PermissionsExt::mode(&about.permissions()))),
        }
    }

    /// What stands in a folder (none: in this one), by name, and whether that is all.
    pub fn entries(&self, name: Option<&Name>) -> Result<(Vec<Entry>, bool), FileError> {
        let here = Name(PathBuf::from("."));
        let name = name.unwrap_or(&here);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = self.beneath(name, name.path(), flags)?;
        let failed = |error: Errno| failed(name, error.into());
        let mut entries = Vec::new();
        for entry in Dir::read_from(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let file = OsStr::from_bytes(entry.file_name().to_bytes());
            if file == "." || file == ".." {
                continue;
            }
            if entries.len() >= FOLDER_ENTRIES_MAX {
                return Ok((entries, false));
            }
            let kind = match entry.file_type() {
                FileType::Unknown => kind(&folder, file),
                known => known.into(),
            };
            entries.push(Entry { name: file.to_owned(), kind });
        }
        entries.sort();
        Ok((entries, true))
    }

    /// Whether something has this name, be it a link.
    pub fn has(&self, name: &Name) -> bool {
        self.beneath(name, name.path(), OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC).is_ok()
    }

    /// Opens the folder of a file, and makes it if it is not there. Tells which folders were made, the outermost first.
    pub fn folder(&self, name: &Name, made: &mut Vec<Name>) -> Result<OwnedFd, FileError> {
        let (folder, _) = name.split();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match self.beneath(name, folder, flags) {
            Err(FileError::Missing(_)) => {}
            found => return found,
        }
        let above = Name(folder.to_owned());
        let parent = self.folder(&above, made)?;
        let mode = Mode::from_raw_mode(0o777);
        rustix::fs::mkdirat(&parent, above.split().1, mode).map_err(|error| match error {
            Errno::EXIST => FileError::NotAFolder(above.clone()),
            error => failed(&above, error.into()),
        })?;
        made.push(above);
        self.beneath(name, folder, flags)
    }

    /// Makes a file in a folder of this root, which must be new there, and sees that it is on the disk.
    pub fn create(&self, folder: &OwnedFd, file: &str, content: &[u8], mode: u32) -> std::io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(mode & 0o777);
        let open = rustix::fs::openat(folder, file, flags, Mode::from_raw_mode(0o600))?;
        let mut open = File::from(open);
        open.write_all(content)?;
        rustix::fs::fchmod(&open, mode)?;
        open.sync_all()
    }

    /// Gives a file in a folder another name there; what had that name before must have been taken away.
    pub fn rename(&self, folder: &OwnedFd, from: &Path, to: &Path) -> std::io::Result<()> {
        Ok(rustix::fs::renameat_with(folder, from, folder, to, rustix::fs::RenameFlags::NOREPLACE)?)
    }

    pub fn remove(&self, folder: &OwnedFd, file: &Path) -> std::io::Result<()> {
        Ok(rustix::fs::unlinkat(folder, file, AtFlags::empty())?)
    }

    /// Removes a folder if it is empty.
    pub fn remove_folder(&self, name: &Name) {
        let (folder, last) = name.split();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if let Ok(folder) = self.beneath(name, folder, flags) {
            // One that somebody else has put something into stays.
            let _ = rustix::fs::unlinkat(folder, last, AtFlags::REMOVEDIR);
        }
    }

    /// The last part of a name, in its folder.
    pub fn last<'a>(&self, name: &'a Name) -> &'a Path {
        name.split().1
    }

    fn beneath(&self, name: &Name, path: &Path, flags: OFlags) -> Result<OwnedFd, FileError> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&self.folder, path, flags, Mode::empty(), resolve).map_err(|error| match error {
            Errno::NOENT | Errno::NOTDIR => FileError::Missing(name.clone()),
            Errno::LOOP | Errno::XDEV => FileError::Link(name.clone()),
            error => failed(name, error.into()),
        })
    }
}

impl From<FileType> for Kind {
    fn from(kind: FileType) -> Kind {
        match kind {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Folder,
            FileType::Symlink => Kind::Link,
            _ => Kind::Other,
        }
    }
}

/// For file systems that do not say it with the name. What is gone since is nothing that could be opened.
fn kind(folder: &OwnedFd, file: &OsStr) -> Kind {
    let about = rustix::fs::statat(folder, file, AtFlags::SYMLINK_NOFOLLOW);
    about.map_or(Kind::Other, |about| FileType::from_raw_mode(about.st_mode).into())
}

pub(crate) fn failed(name: &Name, error: std::io::Error) -> FileError {
    FileError::Io { name: name.clone(), reason: error.to_string() }
}
