//! SHA-256 of files.

use crate::error::PullError;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

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

/// The digest of a model: of its file, or of the list of its folder's files with the digest of each.
pub fn sha256_of_model(path: &Path) -> Result<String, PullError> {
    if !path.is_dir() {
        return sha256_of_file(path, &mut |_| ());
    }
    let entries = std::fs::read_dir(path).map_err(PullError::io(path, "cannot be read"))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.is_file() && !file_name(file).starts_with('.'));
    files.sort();
    let mut list = String::new();
    for file in files {
        list += &format!("{}  {}\n", sha256_of_file(&file, &mut |_| ())?, file_name(&file));
    }
    Ok(sha256_of_bytes(list.as_bytes()))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_the_list_of_its_files() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("b.json", "2"), ("a.json", "1"), (".pulled", ".")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let list = format!("{}  a.json\n{}  b.json\n", sha256_of_bytes(b"1"), sha256_of_bytes(b"2"));
        assert_eq!(sha256_of_model(folder.path()).unwrap(), sha256_of_bytes(list.as_bytes()));
        assert_eq!(sha256_of_model(&folder.path().join("a.json")).unwrap(), sha256_of_bytes(b"1"));
    }
}
