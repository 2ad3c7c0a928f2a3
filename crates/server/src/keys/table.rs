//! The keys in the database.

use super::{Digest, Holder, KeyError, digest, new_key};
use crate::database;
use crate::limits::{KEY_NAME_BYTES_MAX, KEYS_MAX};
use crate::turn::now;
use flint_engine::message::Tenant;
use rusqlite::{Connection, OptionalExtension, params};
use std::path::Path;

#[derive(Debug)]
pub struct Table {
    connection: Connection,
}

/// A key as `flint key list` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub name: String,
    pub created: u64,         // unix seconds
    pub revoked: Option<u64>, // unix seconds
}

impl Table {
    pub fn open(path: &Path) -> Result<Table, KeyError> {
        Ok(Table { connection: database::open(path)? })
    }

    /// Makes a key. It is returned this once and can never be read again.
    pub fn add(&self, name: &str) -> Result<String, KeyError> {
        let key = new_key();
        self.insert(name, &digest(&key))?;
        Ok(key)
    }

    pub(super) fn insert(&self, name: &str, digest: &Digest) -> Result<(), KeyError> {
        check_name(name)?;
        if self.count()? >= KEYS_MAX {
            return Err(KeyError::TooMany);
        }
        let sql = "insert into keys (name, digest, created) values (?, ?, ?) on conflict do nothing";
        match self.connection.execute(sql, params![name, digest, now() as i64])? {
            0 => Err(KeyError::Taken(name.to_owned())),
            _ => Ok(()),
        }
    }

    pub fn revoke(&self, name: &str) -> Result<(), KeyError> {
        let sql = "update keys set revoked = ? where name = ? and revoked is null";
        match self.connection.execute(sql, params![now() as i64, name])? {
            0 => Err(KeyError::Unknown(name.to_owned())),
            _ => Ok(()),
        }
    }

    /// All keys that there have been, the oldest first.
    pub fn list(&self) -> Result<Vec<Listed>, KeyError> {
        let mut statement = self.connection.prepare("select name, created, revoked from keys order by id")?;
        let rows = statement.query_map([], |row| {
            let revoked: Option<i64> = row.get(2)?;
            let created: i64 = row.get(1)?;
            Ok(Listed { name: row.get(0)?, created: created as u64, revoked: revoked.map(|at| at as u64) })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The keys that open the server.
    pub(super) fn valid(&self) -> Result<Vec<(Digest, Holder)>, KeyError> {
        let sql = "select id, name, digest from keys where revoked is null";
        let mut statement = self.connection.prepare(sql)?;
        let rows = statement.query_map([], |row| {
            let (id, name): (i64, String) = (row.get(0)?, row.get(1)?);
            Ok((row.get(2)?, Holder { tenant: Tenant(id as u64), name: name.into() }))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Changes whenever somebody else has written to the database.
    pub(super) fn version(&self) -> Result<i64, KeyError> {
        Ok(self.connection.query_row("pragma data_version", [], |row| row.get(0))?)
    }

    pub(super) fn knows(&self, digest: &Digest) -> Result<bool, KeyError> {
        let sql = "select 1 from keys where digest = ?";
        let found = self.connection.query_row(sql, params![digest], |_| Ok(())).optional()?;
        Ok(found.is_some())
    }

    /// Gives a key that is valid another secret. Says whether there was one.
    pub(super) fn replace(&self, name: &str, digest: &Digest) -> Result<bool, KeyError> {
        let sql = "update keys set digest = ? where name = ? and revoked is null";
        Ok(self.connection.execute(sql, params![digest, name])? > 0)
    }

    pub(super) fn is_empty(&self) -> Result<bool, KeyError> {
        Ok(self.connection.query_row("select count(*) = 0 from keys", [], |row| row.get(0))?)
    }

    fn count(&self) -> Result<usize, KeyError> {
        let sql = "select count(*) from keys where revoked is null";
        let count: i64 = self.connection.query_row(sql, [], |row| row.get(0))?;
        Ok(count as usize)
    }
}

/// Names stand in logs and tables.
fn check_name(name: &str) -> Result<(), KeyError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    match (1..=KEY_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain) {
        true => Ok(()),
        false => Err(KeyError::BadName(name.escape_debug().take(KEY_NAME_BYTES_MAX).collect())),
    }
}
