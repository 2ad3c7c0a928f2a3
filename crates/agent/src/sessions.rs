//! Conversations on disk: one file each, to which lines are only ever added.
//!
//! A line is a record as JSON, after the checksum of its bytes. It counts when it is whole: what a crash left of the last
//! one is cut off when the session is taken up again. Whoever has a session open has it alone.

use crate::limits::{SESSION_BYTES_MAX, SESSION_RECORD_BYTES_MAX, SESSIONS_LISTED_MAX};
use rustix::fs::{FlockOperation, flock};
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The folder of all sessions.
#[derive(Debug, Clone)]
pub struct Sessions {
    folder: PathBuf,
}

/// One that is open, by this process alone.
#[derive(Debug)]
pub struct Session {
    pub id: String,
    file: File,
    bytes: u64,
    synced: bool, // all that was written
}

/// One of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub id: String,
    pub bytes: u64,
    pub changed: SystemTime,
}

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("there is no session {0:?}: `flint resume` lists those that there are")]
    Unknown(String),
    #[error("{0:?} is not a session's name: letters, digits and `-` are")]
    BadId(String),
    #[error("session {0} is open in another process: end that one, or fork the session")]
    Busy(String),
    #[error("session {0} is there already")]
    Exists(String),
    #[error(
        "session {id} has {SESSION_BYTES_MAX} bytes and is full: fork it from an earlier point, or begin another"
    )]
    Full { id: String },
    #[error("a record of {0} bytes is too large, at most {SESSION_RECORD_BYTES_MAX} are kept")]
    Large(usize),
    #[error("session {id}: line {line} is damaged; {kept} records before it are whole")]
    Damaged { id: String, line: usize, kept: usize },
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

const ENDING: &str = "jsonl";
const ID_BYTES_MAX: usize = 64;

impl Sessions {
    /// Makes the folder if it is not there; nobody else may look into it.
    pub fn open(folder: &Path) -> Result<Sessions, SessionError> {
        let sessions = Sessions { folder: folder.to_owned() };
        let made = fs::create_dir_all(folder)
            .and_then(|()| fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o700)));
        made.map_err(|source| SessionError::Io { path: folder.to_owned(), source })?;
        Ok(sessions)
    }

    /// A new session without records.
    pub fn create(&self, id: &str) -> Result<Session, SessionError> {
        let path = self.path(id)?;
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = opened.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => SessionError::Exists(id.to_owned()),
            _ => SessionError::Io { path: path.clone(), source },
        })?;
        self.lock(id, &file)?;
        // Its name has to outlast a crash as well.
        let synced = File::open(&self.folder).and_then(|folder| folder.sync_all());
        synced.map_err(|source| SessionError::Io { path, source })?;
        Ok(Session { id: id.to_owned(), file, bytes: 0, synced: true })
    }

    /// Takes a session up where it ended.
    pub fn resume(&self, id: &str) -> Result<(Session, Vec<Value>), SessionError> {
        let path = self.path(id)?;
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        let mut file = opened.map_err(|source| self.missing(id, source))?;
        self.lock(id, &file)?;
        let io = |source| SessionError::Io { path: path.clone(), source };
        let mut bytes = Vec::new();
        (&mut file).take(SESSION_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(io)?;
        let (records, whole) = read(id, &bytes)?;
        file.set_len(whole as u64).map_err(io)?;
        file.seek(SeekFrom::Start(whole as u64)).map_err(io)?;
        Ok((Session { id: id.to_owned(), file, bytes: whole as u64, synced: true }, records))
    }

    /// A new session that begins with the first `count` records of another, which may be in use.
    pub fn fork(&self, of: &str, count: usize, id: &str) -> Result<(Session, Vec<Value>), SessionError> {
        let mut records = self.look(of)?;
        records.truncate(count);
        let mut session = self.create(id)?;
        session.append_all(&records)?;
        Ok((session, records))
    }

    /// The records of a session, which may be in use.
    pub fn look(&self, id: &str) -> Result<Vec<Value>, SessionError> {
        let bytes = fs::read(self.path(id)?).map_err(|source| self.missing(id, source))?;
        records_of(id, &bytes)
    }

    /// The sessions, the latest first.
    pub fn list(&self) -> Result<Vec<Listed>, SessionError> {
        let io = |source| SessionError::Io { path: self.folder.clone(), source };
        let mut listed = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(io)?.take(SESSIONS_LISTED_MAX) {
            let entry = entry.map_err(io)?;
            let path = entry.path();
            let named = path.extension().is_some_and(|ending| ending == ENDING);
            let (Some(id), true) = (path.file_stem().and_then(|stem| stem.to_str()), named) else { continue };
            // One that has just been removed is not listed.
            let Ok(about) = entry.metadata() else { continue };
            let changed = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            listed.push(Listed { id: id.to_owned(), bytes: about.len(), changed });
        }
        listed.sort_by(|a, b| b.changed.cmp(&a.changed).then_with(|| a.id.cmp(&b.id)));
        Ok(listed)
    }

    /// Removes the oldest sessions until all of them have at most `bytes` bytes; those that are open stay. Returns which.
    pub fn keep_within(&self, bytes: u64) -> Result<Vec<String>, SessionError> {
        let mut removed = Vec::new();
        let listed = self.list()?;
        let mut surplus = listed.iter().map(|one| one.bytes).sum::<u64>().saturating_sub(bytes);
        for Listed { id, bytes, .. } in listed.into_iter().rev() {
            if surplus == 0 {
                break;
            }
            let path = self.path(&id)?;
            // One that is open, or was removed just now, is passed over.
            let Ok(file) = File::open(&path) else { continue };
            if self.lock(&id, &file).is_err() {
                continue;
            }
            fs::remove_file(&path).map_err(|source| SessionError::Io { path, source })?;
            surplus = surplus.saturating_sub(bytes);
            removed.push(id);
        }
        Ok(removed)
    }

    fn path(&self, id: &str) -> Result<PathBuf, SessionError> {
        let plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        match plain && !id.is_empty() && id.len() <= ID_BYTES_MAX {
            true => Ok(self.folder.join(id).with_extension(ENDING)),
            false => Err(SessionError::BadId(id.chars().take(ID_BYTES_MAX).collect())),
        }
    }

    fn missing(&self, id: &str, source: io::Error) -> SessionError {
        match source.kind() {
            io::ErrorKind::NotFound => SessionError::Unknown(id.to_owned()),
            _ => SessionError::Io { path: self.folder.join(id).with_extension(ENDING), source },
        }
    }

    fn lock(&self, id: &str, file: &File) -> Result<(), SessionError> {
        flock(file, FlockOperation::NonBlockingLockExclusive).map_err(|_| SessionError::Busy(id.to_owned()))
    }
}

impl Session {
    /// Adds a record. When this returns, a crash does not lose it.
    pub fn append(&mut self, record: &Value) -> Result<(), SessionError> {
        self.append_all(std::slice::from_ref(record))
    }

    /// Several with one write.
    pub fn append_all(&mut self, records: &[Value]) -> Result<(), SessionError> {
        let before = self.bytes;
        self.write(records)?;
        self.sync().inspect_err(|_| self.cut(before))
    }

    /// The same, but only the end of this process does not lose them yet: `sync`, or the next record, sees to the rest.
    pub fn write(&mut self, records: &[Value]) -> Result<(), SessionError> {
        let mut lines = String::new();
        for record in records {
            let json = record.to_string();
            if json.len() > SESSION_RECORD_BYTES_MAX {
                return Err(SessionError::Large(json.len()));
            }
            lines += &format!("{:08x} {json}\n", checksum(json.as_bytes()));
        }
        let bytes = self.bytes + lines.len() as u64;
        if bytes > SESSION_BYTES_MAX {
            return Err(SessionError::Full { id: self.id.clone() });
        }
        if let Err(source) = self.file.write_all(lines.as_bytes()) {
            self.cut(self.bytes);
            return Err(self.io(source));
        }
        (self.bytes, self.synced) = (bytes, false);
        Ok(())
    }

    /// A crash of the machine loses nothing that was written before.
    pub fn sync(&mut self) -> Result<(), SessionError> {
        if !self.synced {
            self.file.sync_data().map_err(|source| self.io(source))?;
            self.synced = true;
        }
        Ok(())
    }

    /// Half a line must not be followed by another one. If not even this can be done, reading finds it.
    fn cut(&mut self, bytes: u64) {
        let _ = self.file.set_len(bytes);
        let _ = self.file.seek(SeekFrom::Start(bytes));
        self.bytes = bytes;
    }

    fn io(&self, source: io::Error) -> SessionError {
        SessionError::Io { path: format!("session {}", self.id).into(), source }
    }
}

/// The whole records of a session's bytes.
pub fn records_of(id: &str, bytes: &[u8]) -> Result<Vec<Value>, SessionError> {
    Ok(read(id, bytes)?.0)
}

/// The whole records, and how many bytes they take. Only what comes last may be damaged: it was being written.
fn read(id: &str, bytes: &[u8]) -> Result<(Vec<Value>, usize), SessionError> {
    let (mut records, mut whole) = (Vec::new(), 0);
    for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        match record(line) {
            Some(record) => records.push(record),
            None if whole + line.len() == bytes.len() => break,
            None => {
                let kept = records.len();
                return Err(SessionError::Damaged { id: id.to_owned(), line: index + 1, kept });
            }
        }
        whole += line.len();
    }
    Ok((records, whole))
}

fn record(line: &[u8]) -> Option<Value> {
    let line = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let (sum, json) = line.split_at_checked(8)?;
    let json = json.strip_prefix(' ')?;
    let same = u32::from_str_radix(sum, 16).ok()? == checksum(json.as_bytes());
    same.then(|| serde_json::from_str(json).ok()).flatten()
}

/// CRC-32, as in zip files.
fn checksum(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        let bit = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
        (0..8).fold(crc ^ u32::from(*byte), bit)
    };
    !bytes.iter().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_zips() {
        assert_eq!(checksum(b"123456789"), 0xCBF4_3926);
        assert_eq!(checksum(b""), 0);
    }
}
