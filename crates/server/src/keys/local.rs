//! The key of the person whose machine this is: made by the first start, in a file that only they can read.

use super::{KeyError, Table, digest, is_a_key, new_key};
use crate::limits::KEY_FILE_BYTES_MAX;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

pub const LOCAL_NAME: &str = "local";

/// What there is for the local user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Local {
    /// A key, made just now.
    Made,
    /// The key that was there.
    Found,
    /// None: somebody else was given keys, or this one was revoked.
    Nothing,
}

/// Makes sure that the key in the file opens the server. One that was revoked stays so.
pub fn local(table: &Table, path: &Path) -> Result<Local, KeyError> {
    match read(path)? {
        Some(key) => adopt(table, &digest(&key)),
        None if table.is_empty()? => {
            let key = new_key();
            write(path, &key)?;
            table.insert(LOCAL_NAME, &digest(&key))?;
            Ok(Local::Made)
        }
        None => Ok(Local::Nothing),
    }
}

/// The file is older than this database, or another server has made it.
fn adopt(table: &Table, digest: &super::Digest) -> Result<Local, KeyError> {
    if table.knows(digest)? {
        return Ok(Local::Found);
    }
    let revoked = table.list()?.iter().any(|key| key.name == LOCAL_NAME && key.revoked.is_some());
    if table.replace(LOCAL_NAME, digest)? {
        return Ok(Local::Found);
    }
    if revoked {
        return Ok(Local::Nothing);
    }
    table.insert(LOCAL_NAME, digest)?;
    Ok(Local::Found)
}

fn read(path: &Path) -> Result<Option<String>, KeyError> {
    let io = |source| KeyError::Io { path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    // Copied or restored files lose their mode; a key that others can read is no secret.
    file.set_permissions(std::fs::Permissions::from_mode(0o600)).map_err(io)?;
    let mut text = String::new();
    file.take(KEY_FILE_BYTES_MAX).read_to_string(&mut text).map_err(io)?;
    let key = text.trim();
    match is_a_key(key) {
        true => Ok(Some(key.to_owned())),
        false => Err(KeyError::NotAKey { path: path.to_owned() }),
    }
}

fn write(path: &Path, key: &str) -> Result<(), KeyError> {
    let io = |source| KeyError::Io { path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(io)?;
    writeln!(file, "{key}").and_then(|()| file.sync_all()).map_err(io)
}
