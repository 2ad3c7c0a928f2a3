//! The directory that holds what must outlive the process. One server at a time has it.

use crate::database::DatabaseError;
use crate::store::Sqlite;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Why the data cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{path} is in use by another flint serve: stop it, or give this one another --data")]
    InUse { path: PathBuf },
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

/// A directory that no other server uses as long as this lives.
#[derive(Debug)]
pub struct Data {
    pub path: PathBuf,
    _lock: File,
}

impl Data {
    /// Makes the directory, for nobody else to read, if it is not there. The kernel gives the lock back however
    /// the process ends.
    pub fn claim(path: &Path) -> Result<Data, DataError> {
        let io = |source| DataError::Io { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io)?;
        let mut options = OpenOptions::new();
        let lock = options.write(true).create(true).truncate(false).open(path.join("lock")).map_err(io)?;
        match lock.try_lock() {
            Ok(()) => Ok(Data { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(DataError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(io(source)),
        }
    }

    pub fn database(&self) -> PathBuf {
        self.path.join("flint.db")
    }

    pub(crate) fn store(&self, bytes_max: u64) -> Result<Sqlite, DataError> {
        Ok(Sqlite::open(&self.database(), bytes_max)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_is_claimed_once_at_a_time() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("a/b");
        let claimed = Data::claim(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(matches!(Data::claim(&path), Err(DataError::InUse { .. })));
        drop(claimed);
        Data::claim(&path).unwrap();
    }
}
