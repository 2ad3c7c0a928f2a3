//! Sessions of the agent on disk: new ones, and those that are taken up again.

use crate::config::Config;
use crate::error::CliError;
use flint_agent::sessions::{Session, Sessions};
use serde_json::Value;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

pub fn all(config: &Config) -> Result<Sessions, CliError> {
    Ok(Sessions::open(&config.data.join("sessions"))?)
}

/// Removes the oldest where there is too much, and says so.
pub fn trim(config: &Config, bytes: u64) -> Option<String> {
    // Those of agents that worked for others, which nobody takes up, have a quarter of it.
    let kept = |folder: fn(&Config) -> Result<Sessions, CliError>, bytes: u64| -> Result<_, CliError> {
        Ok(folder(config)?.keep_within(bytes)?)
    };
    let removed = kept(all, bytes - bytes / 4).and_then(|own| Ok([own, kept(of_hands, bytes / 4)?].concat()));
    match removed {
        Ok(removed) if removed.is_empty() => None,
        Ok(removed) => Some(format!(
            "the {} oldest sessions were removed: all of them may have {} MiB together (history.max_bytes)",
            removed.len(),
            bytes >> 20
        )),
        Err(error) => Some(error.to_string()),
    }
}

/// A new one, named by the time.
pub fn new(config: &Config) -> Result<Session, CliError> {
    Ok(all(config)?.create(&fresh_id())?)
}

/// A new one of several that begin at once.
pub fn numbered(config: &Config, number: u32) -> Result<Session, CliError> {
    Ok(all(config)?.create(&format!("{}-{number}", fresh_id()))?)
}

fn of_hands(config: &Config) -> Result<Sessions, CliError> {
    Ok(Sessions::open(&config.data.join("sessions").join("agents"))?)
}

/// A new one of an agent that works for another: not among those that a person takes up.
pub fn of_hand(config: &Config, number: u32) -> Result<Session, CliError> {
    Ok(of_hands(config)?.create(&format!("{}-{number}", fresh_id()))?)
}

/// The one of that name, or the latest.
pub fn resume(config: &Config, id: Option<&str>) -> Result<(Session, Vec<Value>), CliError> {
    let sessions = all(config)?;
    let id = match id {
        Some(id) => id.to_owned(),
        None => latest(&sessions)?,
    };
    Ok(sessions.resume(&id)?)
}

/// A new one that begins as another did.
pub fn fork(config: &Config, of: Option<&str>) -> Result<(Session, Vec<Value>), CliError> {
    let sessions = all(config)?;
    let of = match of {
        Some(id) => id.to_owned(),
        None => latest(&sessions)?,
    };
    Ok(sessions.fork(&of, usize::MAX, &fresh_id())?)
}

fn latest(sessions: &Sessions) -> Result<String, CliError> {
    let none = || CliError::Usage("there is no session to go on with".to_owned());
    sessions.list()?.into_iter().next().map(|latest| latest.id).ok_or_else(none)
}

/// Sorts by time, and no two processes have the same.
pub fn fresh_id() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis());
    format!("{now:013x}-{:05x}", std::process::id())
}

/// A folder for temporary files of commands. It is not the system's: that one holds other programs' sockets and secrets.
pub fn temporary(config: &Config) -> Result<PathBuf, CliError> {
    let path = config.cache.join("tmp");
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
    made.and_then(|()| path.canonicalize()).map_err(CliError::io(path.display().to_string()))
}
