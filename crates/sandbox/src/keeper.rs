//! The process between who asks for a command and the command. It is not confined, and does nothing but wait.

use crate::attributes::Registrar;
use crate::confine::Confinement;
use crate::policy::{Mode, Policy};
use crate::{check, hand_over, tree};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

/// The exit code of a keeper that has run nothing: what it says on standard error is its own.
pub const REFUSED: i32 = 125;

const NOT_ALLOWED: i32 = 126;
const NOT_FOUND: i32 = 127;
const ENDED: i32 = 128 + libc::SIGTERM;

/// Keeps the command that these words after `KEEPER` describe. Returns the exit code: the command's own, or 128 and the
/// signal that ended it.
pub fn keep(words: impl Iterator<Item = OsString>) -> i32 {
    match keep_words(words) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("flint: the command was not run: {error}");
            REFUSED
        }
    }
}

/// Why nothing was run.
type Refusal = Box<dyn std::error::Error>;

fn keep_words(mut words: impl Iterator<Item = OsString>) -> Result<i32, Refusal> {
    let policy = words.next().unwrap_or_default();
    let policy: Policy = serde_json::from_slice(policy.as_encoded_bytes())
        .map_err(|error| format!("its policy cannot be read: {error}"))?;
    let (Some(dashes), Some(program)) = (words.next(), words.next()) else {
        return Err("there is no command".into());
    };
    if dashes != OsStr::new("--") {
        return Err("the command must follow `--`".into());
    }
    policy.check()?;
    let mut command = Command::new(&program);
    command.args(words);
    let caller = open_process(std::os::unix::process::parent_id())?;
    tree::adopt_orphans()?;
    let (asked, asks) = UnixStream::pair()?;
    let confinement = confinement(&policy, asks)?;
    let stop = signals()?;
    let confined = confinement.is_some();
    match spawn(command, confinement) {
        Ok(child) => {
            let registrar = confined.then(|| hand_over::receive(&asked)).transpose();
            let code = registrar.and_then(|asked| {
                let registrar = asked.map(|asked| Registrar::new(asked, &policy));
                wait(child, registrar, caller, stop)
            });
            tree::end();
            Ok(code?)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            eprintln!("flint: {}: there is no such program", program.display());
            Ok(NOT_FOUND)
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            eprintln!("flint: {}: it may not be run", program.display());
            Ok(NOT_ALLOWED)
        }
        Err(error) => Err(format!("{}: {error}", program.display()).into()),
    }
}

fn confinement(policy: &Policy, keeper: UnixStream) -> Result<Option<Confinement>, Refusal> {
    if policy.mode == Mode::DangerFullAccess {
        return Ok(None);
    }
    check()?;
    Ok(Some(Confinement::new(policy, keeper)?))
}

fn spawn(mut command: Command, mut confinement: Option<Confinement>) -> io::Result<Child> {
    let start = move || {
        own_session()?;
        close_files()?;
        unblock_signals();
        confinement.as_mut().map_or(Ok(()), Confinement::apply)
    };
    // SAFETY: this process has one thread, so its child may do all that it could do itself.
    unsafe { command.pre_exec(start) };
    command.spawn()
}

/// A session of its own, with the terminal that it reads from, if it does.
fn own_session() -> io::Result<()> {
    // SAFETY: these take numbers only. The third makes the parent's death the command's, however that comes.
    unsafe {
        if libc::setsid() < 0 {
            return Err(io::Error::last_os_error());
        }
        if libc::isatty(0) == 1 {
            libc::ioctl(0, libc::TIOCSCTTY, 0);
        }
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
    Ok(())
}

/// Leaves the standard streams, and marks all other files to be closed when the command begins.
fn close_files() -> io::Result<()> {
    // SAFETY: this takes numbers only; files stay open as long as this program's own code runs.
    match unsafe { libc::close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC as i32) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A process that can be waited for by `poll`.
fn open_process(process: u32) -> io::Result<i32> {
    // SAFETY: this takes numbers only.
    match unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) as i32 } {
        -1 => Err(io::Error::last_os_error()),
        file => Ok(file),
    }
}

/// A file that can be read when this process is told to end.
fn signals() -> io::Result<i32> {
    // SAFETY: the set is filled before it is read, and lives as long as these calls.
    let file = unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(&mut set, signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        libc::signalfd(-1, &set, libc::SFD_CLOEXEC)
    };
    if file < 0 { Err(io::Error::last_os_error()) } else { Ok(file) }
}

fn unblock_signals() {
    // SAFETY: the set is filled before it is read.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
    }
}

/// Until the command ends, its caller does, or this process is told to.
fn wait(mut child: Child, registrar: Option<Registrar>, caller: i32, stop: i32) -> io::Result<i32> {
    let ended = open_process(child.id())?;
    let asked = registrar.as_ref().map_or(-1, Registrar::file); // a number that `poll` passes over
    let mut files =
        [ended, caller, stop, asked].map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    loop {
        // SAFETY: the pointer and the count are those of the array.
        if unsafe { libc::poll(files.as_mut_ptr(), files.len() as u64, -1) } < 0 {
            match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => continue,
                error => return Err(error),
            }
        }
        let [ended, caller, stop, asked] = files.map(|file| file.revents);
        match registrar.as_ref().filter(|_| asked & libc::POLLIN != 0) {
            _ if ended != 0 => return Ok(code(child.wait()?)),
            _ if caller != 0 || stop != 0 => return Ok(ENDED),
            Some(registrar) => registrar.answer(),
            // Nobody is left who could ask.
            None => files[3].fd = -1,
        }
    }
}

fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}
