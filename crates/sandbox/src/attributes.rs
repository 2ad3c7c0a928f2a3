//! Modes, owners and times of files, which Landlock does not guard.
//!
//! A confined process that wants to change one is halted by the kernel, and the keeper decides (`SECCOMP_RET_USER_NOTIF`). It
//! opens the file that is meant itself, looks where that really lies, and if it may be written there, makes the change
//! on what it has opened. The process's own call is never let go on, so nothing can be exchanged in between.

use crate::policy::Policy;
use seccompiler::sock_filter;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The calls that the keeper is asked about.
#[cfg(target_arch = "x86_64")]
const ASKED: [i64; 12] = [
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_utimensat,
];
#[cfg(not(target_arch = "x86_64"))]
const ASKED: [i64; 6] = [
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
];

const FCHMODAT2: i64 = 452;
const PATH_BYTES_MAX: usize = 4096;
const SETS_ID: u32 = 0o6000; // bits of a mode that give its owner's or group's rights away

/// The filter that asks.
pub fn filter() -> Vec<sock_filter> {
    const LOAD_NUMBER: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS, at offset 0
    const JUMP_IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    const ASK: u32 = 0x7fc0_0000; // SECCOMP_RET_USER_NOTIF
    const ALLOW: u32 = 0x7fff_0000;
    let step = |code, jt, k| sock_filter { code, jt, jf: 0, k };
    let count = ASKED.len() as u8;
    // Other kinds of calls than this machine's own have been refused by another filter.
    let mut program = vec![step(LOAD_NUMBER, 0, 0)];
    program.extend((0..count).zip(ASKED).map(|(at, call)| step(JUMP_IF_EQUAL, count - at, call as u32)));
    program.extend([step(RETURN, 0, ALLOW), step(RETURN, 0, ASK)]);
    program
}

/// Applies the filter to this process. The file that is returned tells what is asked.
pub fn ask(filter: &[sock_filter]) -> io::Result<OwnedFd> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut().cast() };
    let (set, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
    // SAFETY: the program is as long as it says, its steps are laid out as the kernel's, and it is only read.
    let file = unsafe { libc::syscall(libc::SYS_seccomp, set, flags, &program) as RawFd };
    // SAFETY: the kernel has just made this file, for this process alone.
    if file < 0 { Err(io::Error::last_os_error()) } else { Ok(unsafe { OwnedFd::from_raw_fd(file) }) }
}

/// Who decides.
pub struct Registrar {
    asked: OwnedFd,
    written: Vec<PathBuf>, // as they really lie
}

impl Registrar {
    pub fn new(asked: OwnedFd, policy: &Policy) -> Registrar {
        let written = policy.written().into_iter().filter_map(|path| path.canonicalize().ok()).collect();
        Registrar { asked, written }
    }

    pub fn file(&self) -> RawFd {
        self.asked.as_raw_fd()
    }

    /// Answers one question. Who asked may be gone meanwhile: then nobody wants the answer.
    pub fn answer(&self) {
        let Some(question) = self.receive() else { return };
        let outcome = self.decide(&question);
        let errno = |error: io::Error| error.raw_os_error().unwrap_or(libc::EPERM);
        let error = outcome.map_or_else(|error| -errno(error), |()| 0);
        let response = libc::seccomp_notif_resp { id: question.id, val: 0, error, flags: 0 };
        // SAFETY: the pointer is to a whole response, which the kernel reads.
        unsafe { libc::ioctl(self.file(), SEND, &response) };
    }

    fn receive(&self) -> Option<libc::seccomp_notif> {
        // SAFETY: all zeroes are a question, and the kernel wants them so; it fills a whole one.
        unsafe {
            let mut question: libc::seccomp_notif = std::mem::zeroed();
            (libc::ioctl(self.file(), RECEIVE, &mut question) == 0).then_some(question)
        }
    }

    fn decide(&self, question: &libc::seccomp_notif) -> io::Result<()> {
        let asker = Asker { process: question.pid };
        let change = Change::read(&asker, &question.data)?;
        let file = asker.open(&change.target)?;
        // The process that was looked into is still the one that asks.
        // SAFETY: the pointer is to a number, which the kernel reads.
        if unsafe { libc::ioctl(self.file(), IS_VALID, &question.id) } != 0 {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        let real = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        match self.written.iter().any(|folder| real.starts_with(folder)) {
            true => change.what.make(&file),
            false => Err(io::Error::from_raw_os_error(libc::EPERM)),
        }
    }
}

// From linux/seccomp.h.
const RECEIVE: u64 = 0xc050_2100;
const SEND: u64 = 0xc018_2101;
const IS_VALID: u64 = 0x4008_2102;

/// The file that a call means, as its process would find it.
enum Target {
    Open(RawFd),
    Named { folder: RawFd, path: PathBuf, follow: bool },
}

enum What {
    Mode(u32),
    Owner(u32, u32),
    Times(Option<[libc::timespec; 2]>), // none: now
}

struct Change {
    target: Target,
    what: What,
}

impl Change {
    /// What a call wants, by its number and its arguments.
    fn read(asker: &Asker, call: &libc::seccomp_data) -> io::Result<Change> {
        let args = call.args;
        let file = |at: usize| args[at] as RawFd;
        let here = libc::AT_FDCWD;
        let named = |folder, path: usize, follow| asker.named(folder, args[path], follow);
        let at = |flags: u64| asker.named_or_open(file(0), args[1], flags as i32);
        let owner = |at: usize| What::Owner(args[at] as u32, args[at + 1] as u32);
        let (target, what) = match i64::from(call.nr) {
            libc::SYS_fchmod => (Target::Open(file(0)), What::Mode(args[1] as u32)),
            libc::SYS_fchmodat => (named(file(0), 1, true)?, What::Mode(args[2] as u32)),
            FCHMODAT2 => (at(args[3])?, What::Mode(args[2] as u32)),
            libc::SYS_fchown => (Target::Open(file(0)), owner(1)),
            libc::SYS_fchownat => (at(args[4])?, owner(2)),
            libc::SYS_utimensat => {
                let target = if args[1] == 0 { Target::Open(file(0)) } else { at(args[3])? };
                (target, What::Times(asker.times(args[2], 1)?))
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chmod => (named(here, 0, true)?, What::Mode(args[1] as u32)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chown => (named(here, 0, true)?, owner(1)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_lchown => (named(here, 0, false)?, owner(1)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_utime => (named(here, 0, true)?, What::Times(asker.seconds(args[1])?)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_utimes => (named(here, 0, true)?, What::Times(asker.times(args[1], 1_000)?)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_futimesat => (named(file(0), 1, true)?, What::Times(asker.times(args[2], 1_000)?)),
            _ => return Err(io::Error::from_raw_os_error(libc::ENOSYS)),
        };
        Ok(Change { target, what })
    }
}

impl What {
    /// On a file that is open as a place only, by its name in this process.
    fn make(&self, file: &OwnedFd) -> io::Result<()> {
        let name = format!("/proc/self/fd/{}\0", file.as_raw_fd());
        let (name, empty) = (name.as_ptr().cast(), c"".as_ptr());
        let fd = file.as_raw_fd();
        // SAFETY: both names end with a zero byte; the times are two, or none.
        let made = unsafe {
            match self {
                What::Mode(mode) if mode & SETS_ID != 0 => {
                    return Err(io::Error::from_raw_os_error(libc::EPERM));
                }
                What::Mode(mode) => libc::fchmodat(libc::AT_FDCWD, name, *mode, 0),
                What::Owner(user, group) => libc::fchownat(fd, empty, *user, *group, libc::AT_EMPTY_PATH),
                What::Times(times) => {
                    let times = times.as_ref().map_or(std::ptr::null(), |times| times.as_ptr());
                    libc::utimensat(libc::AT_FDCWD, name, times, 0)
                }
            }
        };
        if made == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// The process that asks, halted in its call.
struct Asker {
    process: u32,
}

impl Asker {
    fn named(&self, folder: RawFd, path: u64, follow: bool) -> io::Result<Target> {
        Ok(Target::Named { folder, path: self.path(path)?, follow })
    }

    /// The same for calls with flags, by which no name can mean the folder itself.
    fn named_or_open(&self, folder: RawFd, path: u64, flags: i32) -> io::Result<Target> {
        let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
        Ok(match self.named(folder, path, follow)? {
            Target::Named { path, .. } if flags & libc::AT_EMPTY_PATH != 0 && path.as_os_str().is_empty() => {
                Target::Open(folder)
            }
            target => target,
        })
    }

    /// Opens a file as a place: it can neither be read nor written through this.
    fn open(&self, target: &Target) -> io::Result<OwnedFd> {
        match target {
            Target::Open(file) => place(None, &self.proc(&format!("fd/{file}")), true, true),
            Target::Named { path, .. } if path.as_os_str().is_empty() => {
                Err(io::Error::from_raw_os_error(libc::ENOENT))
            }
            Target::Named { folder, path, follow } => {
                if let Some(file) = self.own_file(path) {
                    return place(None, &self.proc(&format!("fd/{file}")), true, true);
                }
                let folder = match *folder {
                    libc::AT_FDCWD => self.proc("cwd"),
                    folder => self.proc(&format!("fd/{folder}")),
                };
                let folder = place(None, &folder, true, true)?;
                place(Some(&folder), path, *follow, false)
            }
        }
    }

    /// `/proc/self/fd/N`, by which programs name what they have open. In this process it would be another file.
    fn own_file(&self, path: &Path) -> Option<RawFd> {
        let name = path.strip_prefix("/proc").ok()?;
        let (own, process) = (name.strip_prefix("self"), name.strip_prefix(self.process.to_string()));
        own.or(process).ok()?.strip_prefix("fd").ok()?.to_str()?.parse().ok()
    }

    fn proc(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.process))
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let fault = |_| io::Error::from_raw_os_error(libc::EFAULT);
        File::open(self.proc("mem"))?.read_at(bytes, at).map_err(fault)
    }

    fn path(&self, at: u64) -> io::Result<PathBuf> {
        let mut bytes = vec![0; PATH_BYTES_MAX];
        let read = self.read(at, &mut bytes)?;
        let end = bytes[..read].iter().position(|byte| *byte == 0);
        bytes.truncate(end.ok_or_else(|| io::Error::from_raw_os_error(libc::ENAMETOOLONG))?);
        Ok(std::ffi::OsString::from_vec(bytes).into())
    }

    fn numbers<const N: usize>(&self, at: u64) -> io::Result<[i64; N]> {
        let mut bytes = vec![0; N * 8];
        if self.read(at, &mut bytes)? < bytes.len() {
            return Err(io::Error::from_raw_os_error(libc::EFAULT));
        }
        let mut numbers = [0; N];
        for (number, bytes) in numbers.iter_mut().zip(bytes.as_chunks().0) {
            *number = i64::from_ne_bytes(*bytes);
        }
        Ok(numbers)
    }

    /// Two times, as seconds and parts of which each is so many nanoseconds.
    fn times(&self, at: u64, part_ns: i64) -> io::Result<Option<[libc::timespec; 2]>> {
        if at == 0 {
            return Ok(None);
        }
        let [a, a_parts, b, b_parts] = self.numbers(at)?;
        let time = |tv_sec, parts: i64| libc::timespec { tv_sec, tv_nsec: parts.saturating_mul(part_ns) };
        Ok(Some([time(a, a_parts), time(b, b_parts)]))
    }

    #[cfg(target_arch = "x86_64")]
    fn seconds(&self, at: u64) -> io::Result<Option<[libc::timespec; 2]>> {
        if at == 0 {
            return Ok(None);
        }
        let times: [i64; 2] = self.numbers(at)?;
        Ok(Some(times.map(|tv_sec| libc::timespec { tv_sec, tv_nsec: 0 })))
    }
}

/// Opens a path from a folder on, as a place. Only names that this program has made may lead through `/proc`'s links to
/// other processes' files.
fn place(folder: Option<&OwnedFd>, path: &Path, follow: bool, own: bool) -> io::Result<OwnedFd> {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes())?;
    // SAFETY: all zeroes are a valid `open_how`.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_PATH | libc::O_CLOEXEC | if follow { 0 } else { libc::O_NOFOLLOW }) as u64;
    how.resolve = if own { 0 } else { libc::RESOLVE_NO_MAGICLINKS };
    let folder = folder.map_or(libc::AT_FDCWD, AsRawFd::as_raw_fd);
    // SAFETY: the path ends with a zero byte, and the description is as long as is said.
    let file = unsafe {
        libc::syscall(libc::SYS_openat2, folder, path.as_ptr(), &how, size_of::<libc::open_how>()) as RawFd
    };
    // SAFETY: the kernel has just made this file, for this process alone.
    if file < 0 { Err(io::Error::last_os_error()) } else { Ok(unsafe { OwnedFd::from_raw_fd(file) }) }
}
