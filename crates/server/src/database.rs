//! The SQLite file that holds what must outlive the process.

use rusqlite::{Connection, OpenFlags};
use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// What brings a file from each version to the next. Entries are never changed once released, only added.
const MIGRATIONS: [&str; 3] = [
    include_str!("migrations/1_responses.sql"),
    include_str!("migrations/2_keys.sql"),
    include_str!("migrations/3_usage.sql"),
];

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    #[error("{path}: {source}")]
    Io { path: String, source: std::io::Error },
    #[error("{path}: {source}")]
    Sqlite { path: String, source: rusqlite::Error },
    #[error("the database cannot be read or written: {0}")]
    Query(#[from] rusqlite::Error),
    #[error("{path} was written by a newer Flint (version {found}, this one knows {known}): update Flint")]
    Newer { path: String, found: i64, known: i64 },
}

/// The file's name in the data directory.
pub const FILE: &str = "flint.db";

/// Opens the file, makes it if it is not there, and brings it up to date.
pub fn open(path: &Path) -> Result<Connection, DatabaseError> {
    make_private(path).map_err(|source| DatabaseError::Io { path: path.display().to_string(), source })?;
    let wrap = |source| DatabaseError::Sqlite { path: path.display().to_string(), source };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let mut connection = Connection::open_with_flags(path, flags).map_err(wrap)?;
    connection.busy_timeout(Duration::from_secs(5)).map_err(wrap)?;
    // Takes hold only while the file is empty, so it comes first.
    connection.pragma_update(None, "auto_vacuum", "incremental").map_err(wrap)?;
    connection.pragma_update(None, "journal_mode", "wal").map_err(wrap)?;
    connection.pragma_update(None, "synchronous", "normal").map_err(wrap)?;
    connection.pragma_update(None, "foreign_keys", true).map_err(wrap)?;
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate);
    let transaction = transaction.map_err(wrap)?;
    let found: i64 = transaction.query_row("pragma user_version", [], |row| row.get(0)).map_err(wrap)?;
    let known = MIGRATIONS.len() as i64;
    if found > known {
        return Err(DatabaseError::Newer { path: path.display().to_string(), found, known });
    }
    for migration in MIGRATIONS.iter().skip(found as usize) {
        transaction.execute_batch(migration).map_err(wrap)?;
    }
    transaction.pragma_update(None, "user_version", known).map_err(wrap)?;
    transaction.commit().map_err(wrap)?;
    Ok(connection)
}

/// Makes the file and its folder, if they are not there, for nobody else to read. SQLite gives its other files
/// the mode of this one.
fn make_private(path: &Path) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    Ok(())
}
