//! One command line, in a shell, at a terminal, in the sandbox.

use super::output::{Kept, Plain};
use super::terminal::{Came, Terminal};
use super::{ToolError, Workshop};
use crate::limits::{
    COMMAND_BYTES_MAX, COMMAND_END_MILLISECONDS_MAX, COMMAND_SECONDS_MAX, OUTPUT_READ_BYTES_MAX,
};
use flint_sandbox::Mode;
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A command that a model wants run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellCall {
    pub command: String,
    pub workdir: Option<String>, // beneath the workspace
    pub timeout: Duration,
    pub unconfined: bool, // with all rights of the person; a yes must have been given
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    pub code: Option<i32>, // none: it was ended from here
    pub output: String,    // with its middle left out if it is long
    pub took: Duration,
    pub timed_out: bool,
    pub stopped: bool,
    pub denied: bool,       // it looks as if the sandbox refused something
    pub notes: Vec<String>, // what the model should know besides
}

/// How a command came to its end.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Own,
    TimedOut,
    Stopped,
    Flooded,
}

/// Programs must not page, colour, ask, or open an editor.
const ENVIRONMENT: [(&str, &str); 12] = [
    ("TERM", "dumb"),
    ("NO_COLOR", "1"),
    ("CLICOLOR", "0"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("GH_PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("SYSTEMD_PAGER", "cat"),
    ("LESS", "-FRX"),
    ("GIT_EDITOR", "true"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("DEBIAN_FRONTEND", "noninteractive"),
];

/// How often it is looked whether to stop.
const TICK: Duration = Duration::from_millis(20);

impl Workshop {
    /// Runs a command to its end. What it writes goes to `out` as it comes; `stop` ends it early.
    pub fn shell(
        &self,
        call: &ShellCall,
        out: &mut dyn FnMut(&str),
        stop: &AtomicBool,
    ) -> Result<Ran, ToolError> {
        if call.command.len() > COMMAND_BYTES_MAX || call.command.contains('\0') {
            let reason = format!("a command has no NUL and at most {COMMAND_BYTES_MAX} bytes");
            return Err(ToolError::NotRun(reason));
        }
        let confined = !call.unconfined && self.mode != Mode::DangerFullAccess;
        let mut command = self.command(call)?;
        if confined && self.mode == Mode::WorkspaceWrite {
            self.watch();
        }
        let ran = run(&mut command, call.timeout, out, stop);
        let put_back = match confined && self.mode == Mode::WorkspaceWrite {
            true => self.unwatch(),
            false => Vec::new(),
        };
        let mut ran = ran?;
        ran.notes.extend(put_back);
        ran.denied = confined && refused(&ran, self.network);
        Ok(ran)
    }

    fn command(&self, call: &ShellCall) -> Result<Command, ToolError> {
        let folder = self.workdir(call.workdir.as_deref())?;
        let sandbox = if call.unconfined { &self.free } else { &self.confined };
        let mut command = sandbox.command([shell(), "-c", call.command.as_str()], &folder);
        command.envs(ENVIRONMENT);
        Ok(command)
    }

    /// A folder beneath the workspace, where links do not lead out of it.
    fn workdir(&self, path: Option<&str>) -> Result<PathBuf, ToolError> {
        let Some(name) = self.folder_name(path)? else { return Ok(self.folder.clone()) };
        let real = self.folder.join(name.path()).canonicalize();
        match real {
            Ok(real) if !real.starts_with(&self.folder) => {
                Err(ToolError::Outside { path: name.to_string(), folder: self.folder.clone() })
            }
            Ok(real) if real.is_dir() => Ok(real),
            Ok(_) => Err(crate::root::FileError::NotAFolder(name).into()),
            Err(_) => Err(ToolError::Missing { near: self.near(&name), name }),
        }
    }
}

fn shell() -> &'static str {
    match ["/bin/bash", "/usr/bin/bash"].iter().any(|path| Path::new(path).exists()) {
        true => "bash",
        false => "sh",
    }
}

fn run(
    command: &mut Command,
    timeout: Duration,
    out: &mut dyn FnMut(&str),
    stop: &AtomicBool,
) -> Result<Ran, ToolError> {
    let not_run = |error: std::io::Error| ToolError::NotRun(error.to_string());
    let begun = Instant::now();
    let terminal = Terminal::of(command).map_err(not_run)?;
    let mut child = command.spawn().map_err(not_run)?;
    // Only the command itself has the terminal open now: its end is seen.
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut kept = Kept::default();
    let deadline = begun + timeout.min(Duration::from_secs(COMMAND_SECONDS_MAX));
    let end = follow(&terminal, &mut child, deadline, &mut kept, out, stop);
    let code = finish(&mut child, end == End::Own);
    let output = kept.end();
    if let (Some(flint_sandbox::REFUSED), Some(why)) = (code, output.strip_prefix(NOT_RUN)) {
        return Err(ToolError::NotRun(why.trim().to_owned()));
    }
    let notes = match end {
        End::Flooded => vec![format!("it was ended: it wrote more than {OUTPUT_READ_BYTES_MAX} bytes")],
        End::TimedOut => {
            vec![format!("it was ended after {} s, with all that it had started", timeout.as_secs())]
        }
        End::Own | End::Stopped => Vec::new(),
    };
    let (timed_out, stopped) = (end == End::TimedOut, end == End::Stopped);
    Ok(Ran { code, output, took: begun.elapsed(), timed_out, stopped, denied: false, notes })
}

/// What a keeper says that has run nothing.
const NOT_RUN: &str = "flint: the command was not run: ";

/// Reads what the command writes until it ends, or until it is to be ended.
fn follow(
    terminal: &Terminal,
    child: &mut Child,
    deadline: Instant,
    kept: &mut Kept,
    out: &mut dyn FnMut(&str),
    stop: &AtomicBool,
) -> End {
    let (mut plain, mut bytes, mut count) = (Plain::default(), vec![0; 16 << 10], 0);
    let mut end = None;
    let mut killed = None;
    loop {
        let came = terminal.read(&mut bytes, TICK);
        let text = match came {
            Ok(Came::Bytes(read)) => {
                count += read as u64;
                plain.take(&bytes[..read])
            }
            Ok(Came::Nothing) => String::new(),
            Ok(Came::End) | Err(_) => plain.end(),
        };
        kept.add(&text);
        kept.shown(&text).into_iter().for_each(&mut *out);
        if matches!(came, Ok(Came::End) | Err(_)) {
            return end.unwrap_or(End::Own);
        }
        end = end.or_else(|| reason(deadline, count, stop));
        if let Some(killed) = end.map(|_| *killed.get_or_insert_with(|| terminate(child)))
            && killed.elapsed() > Duration::from_millis(COMMAND_END_MILLISECONDS_MAX)
        {
            return end.unwrap_or(End::Own);
        }
    }
}

fn reason(deadline: Instant, count: u64, stop: &AtomicBool) -> Option<End> {
    if stop.load(Ordering::Relaxed) {
        return Some(End::Stopped);
    }
    if count > OUTPUT_READ_BYTES_MAX {
        return Some(End::Flooded);
    }
    (Instant::now() >= deadline).then_some(End::TimedOut)
}

/// Tells the keeper to end everything. Says when.
fn terminate(child: &Child) -> Instant {
    // It fails only where the keeper has ended itself.
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
    Instant::now()
}

/// Waits for the keeper. One that does not end is killed, and what it kept dies with it.
fn finish(child: &mut Child, own: bool) -> Option<i32> {
    let patience = Instant::now() + Duration::from_millis(COMMAND_END_MILLISECONDS_MAX);
    while Instant::now() < patience {
        match child.try_wait() {
            Ok(Some(status)) => return status.code().filter(|_| own),
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            Err(_) => break,
        }
    }
    // Both fail only for one that has ended meanwhile.
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// What programs say when the kernel refuses them something. It is a guess: the kernel tells nobody else.
fn refused(ran: &Ran, network: bool) -> bool {
    const FILES: [&str; 4] =
        ["permission denied", "operation not permitted", "read-only file system", "eacces"];
    const NETWORK: [&str; 6] = [
        "could not resolve host",
        "name resolution",
        "name or service not known",
        "network is unreachable",
        "failed to lookup address",
        "getaddrinfo",
    ];
    let failed = ran.code.is_some_and(|code| code != 0);
    let said = ran.output.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    failed && (says(&FILES) || (!network && says(&NETWORK)))
}
