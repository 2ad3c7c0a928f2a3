//! All processes that a command has started, and their end.
//!
//! The keeper is the parent of every process below it that has lost its own: none can hide by letting its parent die.

use std::collections::HashMap;
use std::fs;
use std::io;

/// Makes orphans below this process its children.
pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: this takes numbers only.
    match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Kills everything below this process, and returns when nothing is left.
pub fn end() {
    loop {
        // Stopped first: what is stopped starts nothing more while the others are found.
        for signal in [libc::SIGSTOP, libc::SIGKILL] {
            for process in descendants() {
                // SAFETY: this takes numbers only. The process is a descendant: its number is not given to another before
                // its death was waited for, and its parents are either stopped or this process.
                unsafe { libc::kill(process, signal) };
            }
        }
        if !reap() {
            return;
        }
    }
}

/// Waits for the death of one child. False: there is none.
fn reap() -> bool {
    // SAFETY: a null pointer says that nobody wants to know how it ended.
    let waited = unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) };
    waited > 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
}

fn descendants() -> Vec<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(parent) = parent(process) {
            children.entry(parent).or_default().push(process);
        }
    }
    let mut found = children.remove(&(std::process::id() as i32)).unwrap_or_default();
    let mut next = 0;
    while let Some(&process) = found.get(next) {
        found.extend(children.remove(&process).unwrap_or_default());
        next += 1;
    }
    found
}

fn parent(process: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may hold anything; its state and its parent follow.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}
