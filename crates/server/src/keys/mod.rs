//! Who may use the server. A key is 256 random bits, shown once; what is kept of it is its digest.
//!
//! A plain SHA-256 is enough for that: there is nothing to guess in a key that is random from end to end.

mod local;
mod ring;
mod table;

pub use local::{LOCAL_NAME, Local, local};
pub use ring::Ring;
pub use table::{Listed, Table};

use crate::database::DatabaseError;
use crate::ids::{hex, random};
use crate::limits::{KEY_NAME_BYTES_MAX, KEYS_MAX};
use flint_engine::message::Tenant;
use sha2::{Digest as _, Sha256};
use std::path::PathBuf;
use std::sync::Arc;

/// Who asks. Nothing of one tenant is seen by another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub tenant: Tenant,
    pub name: Arc<str>,
}

pub type Digest = [u8; 32];

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{path} does not hold a key: delete it, and the next `flint serve` makes another")]
    NotAKey { path: PathBuf },
    #[error("`{0}` is not a name for a key: use up to {KEY_NAME_BYTES_MAX} letters, digits and . _ -")]
    BadName(String),
    #[error("there is a key `{0}` already: revoke it first, or choose another name")]
    Taken(String),
    #[error("there is no key `{0}`: `flint key list` shows those that there are")]
    Unknown(String),
    #[error("there are {KEYS_MAX} keys already: revoke some")]
    TooMany,
}

const PREFIX: &str = "flint_";

fn new_key() -> String {
    format!("{PREFIX}{}", hex(&random::<32>()))
}

/// Whether this could be one of ours: somebody's short password must not become a key.
fn is_a_key(text: &str) -> bool {
    let bits = text.strip_prefix(PREFIX).unwrap_or_default();
    bits.len() == 64 && bits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl From<rusqlite::Error> for KeyError {
    fn from(error: rusqlite::Error) -> KeyError {
        KeyError::Database(error.into())
    }
}

fn digest(key: &str) -> Digest {
    Sha256::digest(key.as_bytes()).into()
}

#[cfg(test)]
mod tests;
