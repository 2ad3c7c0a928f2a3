//! A file on its way: beside its place, under another name, until it is whole.

use crate::error::PullError;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Bytes of an ETag that are kept, at most.
const TAG_BYTES_MAX: usize = 1024;

/// The beginning of a file, and the ETag that says of which. While it lives no other process writes to it.
pub(crate) struct Partial {
    path: PathBuf,
    file: File,
}

impl Partial {
    pub(crate) fn open(path: &Path) -> Result<Partial, PullError> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path);
        let file = file.map_err(PullError::io(path, "cannot be written"))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Err(PullError::Busy { path: path.into() }),
            // Not every file system has locks.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Partial { path: path.into(), file }),
        }
    }

    pub(crate) fn len(&self) -> Result<u64, PullError> {
        let metadata = self.file.metadata().map_err(PullError::io(&self.path, "cannot be read"))?;
        Ok(metadata.len())
    }

    /// The ETag of the file that this is the beginning of, if that is known.
    pub(crate) fn tag(&self) -> Option<String> {
        fs::read_to_string(self.tag_path()).ok().filter(|tag| !tag.is_empty())
    }

    /// Empties it; what comes next is of a file with this ETag.
    pub(crate) fn restart(&mut self, tag: Option<String>) -> Result<(), PullError> {
        self.set_len(0)?;
        let path = self.tag_path();
        match tag.filter(|tag| tag.len() <= TAG_BYTES_MAX) {
            Some(tag) => fs::write(&path, tag).map_err(PullError::io(&path, "cannot be written")),
            None => remove(&path),
        }
    }

    /// Cuts off what comes after the first `len` bytes.
    pub(crate) fn set_len(&mut self, len: u64) -> Result<(), PullError> {
        self.file.set_len(len).map_err(PullError::io(&self.path, "cannot be written"))
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), PullError> {
        let written = self.file.seek(SeekFrom::End(0)).and_then(|_| self.file.write_all(bytes));
        written.map_err(PullError::io(&self.path, "cannot be written"))
    }

    /// Everything that was appended is on the disk.
    pub(crate) fn sync(&self) -> Result<(), PullError> {
        self.file.sync_all().map_err(PullError::io(&self.path, "cannot be written"))
    }

    /// Leaves no file behind that holds nothing.
    pub(crate) fn remove_if_empty(&self) -> Result<(), PullError> {
        match self.len()? {
            0 => remove(&self.tag_path()).and_then(|()| remove(&self.path)),
            _ => Ok(()),
        }
    }

    /// All of the file is here, and on the disk.
    pub(crate) fn finish(&mut self) -> Result<(), PullError> {
        remove(&self.tag_path())?;
        self.sync()
    }

    fn tag_path(&self) -> PathBuf {
        with_suffix(&self.path, ".etag")
    }
}

/// Where the file for a place grows; its folder exists after this.
pub(crate) fn partial_of(place: &Path) -> Result<PathBuf, PullError> {
    let folder = place.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(PullError::io(folder, "cannot be made"))?;
    Ok(with_suffix(place, ".partial"))
}

/// In one step: nobody sees half of it.
pub(crate) fn into_place(partial: &Path, place: &Path) -> Result<(), PullError> {
    fs::rename(partial, place).map_err(PullError::io(place, "cannot be moved into place"))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(suffix);
    path.with_file_name(name)
}

fn remove(path: &Path) -> Result<(), PullError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(PullError::io(path, "cannot be removed")(error))
        }
        _ => Ok(()),
    }
}
