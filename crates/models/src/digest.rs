//! SHA-256 of files.

use crate::error::PullError;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The digest of a whole file, in hexadecimal. `progress` is told of the bytes read so far.
pub fn sha256_of_file(path: &Path, progress: &mut dyn FnMut(u64)) -> Result<String, PullError> {
    let mut file = File::open(path).map_err(PullError::io(path, "cannot be opened"))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    let mut done = 0;
    loop {
        let read = file.read(&mut buffer).map_err(PullError::io(path, "cannot be read"))?;
        if read == 0 {
            return Ok(hex(&hasher.finalize()));
        }
        hasher.update(&buffer[..read]);
        done += read as u64;
        progress(done);
    }
}

pub(crate) fn sha256_of_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Removes a file whose digest is not the expected one.
pub(crate) fn check(path: &Path, expected: &str, progress: &mut dyn FnMut(u64)) -> Result<(), PullError> {
    let found = sha256_of_file(path, progress)?;
    if found.eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    std::fs::remove_file(path).map_err(PullError::io(path, "has the wrong digest and cannot be removed"))?;
    Err(PullError::Digest { what: path.display().to_string(), found, expected: expected.to_string() })
}
