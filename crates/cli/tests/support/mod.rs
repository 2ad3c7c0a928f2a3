//! The real binary, the real small model, and a real pseudo-terminal.
#![allow(dead_code)]

pub mod gpt_oss;
pub mod served;
pub mod server;
pub mod vendor;

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

pub const MODEL: &str = "smollm2-135m";

/// Longer than anything here takes, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub fn flint() -> Command {
    Command::new(env!("CARGO_BIN_EXE_flint"))
}

/// Whether programs can be traced here; says so where they cannot.
pub fn can_trace() -> bool {
    let tracer = Command::new("strace").arg("-V").stdout(Stdio::null()).status();
    let can = tracer.is_ok_and(|status| status.success());
    if !can {
        eprintln!("strace is not here: nothing is shown");
    }
    can
}

/// A file in Flint's cache; the tests need it and do not fetch it themselves.
pub fn fetched(name: &str) -> PathBuf {
    let home = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let path = home.unwrap().join("flint").join(name);
    assert!(path.exists(), "{} is missing: run `cargo xtask test`, which fetches it", path.display());
    path
}

/// The small model's file.
pub fn model_file() -> PathBuf {
    fetched(&format!("models/{MODEL}.gguf"))
}

/// Where `cargo xtask test` installs the clients.
pub fn clients() -> PathBuf {
    fetched("clients")
}

/// Runs to the end without any input, which is a good one.
pub fn succeeds(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let (out, err) = (stdout(&output), stderr(&output));
    assert!(output.status.success(), "{command:?}\n{out}\n{err}");
    output
}

/// Runs to the end with this standard input.
pub fn run(command: &mut Command, input: &str) -> Output {
    model_file();
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Processes that `pid` started, from any of its threads.
pub fn children(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let lists = threads.flatten().map(|thread| std::fs::read_to_string(thread.path().join("children")));
    let pids = lists
        .flat_map(|list| list.unwrap_or_default().split_whitespace().map(str::to_string).collect::<Vec<_>>());
    pids.map(|pid| pid.parse().unwrap()).collect()
}

/// What all threads of a process have used; the system tells it in hundredths of a second.
pub fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(10 * ticks)
}

/// Bytes of a process that are in memory.
pub fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Those that are not of the program itself and its libraries, which all of its processes share.
pub fn resident_bytes_besides_code(pid: u32) -> u64 {
    let code = |path: &str| path.ends_with("/flint") || path.contains(".so");
    let maps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let (mut bytes, mut counts) = (0, true);
    for line in maps.lines() {
        match line.strip_prefix("Rss:") {
            Some(size) if counts => {
                bytes += size.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
            }
            Some(_) => {}
            // A mapping begins with its addresses, in small letters, and ends with its file.
            None if line.starts_with(|c: char| c.is_ascii_digit() || c.is_ascii_lowercase()) => {
                counts = !code(line)
            }
            None => {}
        }
    }
    bytes
}

/// A program in a terminal of its own.
pub struct Terminal {
    child: Child,
    keys: File,
    painted: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    pub seen: String,
}

const ROWS: NonZeroU16 = NonZeroU16::new(30).unwrap();
const COLUMNS: NonZeroU16 = NonZeroU16::new(100).unwrap();

impl Terminal {
    pub fn open(command: &mut Command) -> Terminal {
        model_file();
        let (mut leader, mut follower) = (0, 0);
        let size = libc::winsize { ws_row: ROWS.get(), ws_col: COLUMNS.get(), ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: openpty fills in the two descriptors and reads the size; no name or settings are asked for.
        let made = unsafe {
            libc::openpty(&mut leader, &mut follower, std::ptr::null_mut(), std::ptr::null(), &size)
        };
        assert_eq!(made, 0);
        // SAFETY: both were just made and belong to nobody else.
        let (leader, follower) = unsafe { (File::from_raw_fd(leader), OwnedFd::from_raw_fd(follower)) };
        command.stdin(follower.try_clone().unwrap()).stdout(follower.try_clone().unwrap()).stderr(follower);
        // SAFETY: setsid and ioctl are safe to call between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let (sender, painted) = sync_channel(1024);
        let mut reader = leader.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read) = reader.read(&mut buffer) {
                if read == 0 || sender.send(buffer[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        let screen = vt100::Parser::new(ROWS, COLUMNS, 0);
        Terminal { child, keys: leader, painted, screen, seen: String::new() }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until `text` appears after what was waited for before; returns what came up to its end.
    pub fn wait_for(&mut self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.seen.find(text) {
                let rest = self.seen.split_off(at + text.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            self.receive(text, deadline);
        }
    }

    /// Waits until something holds for what stands on the screen: only the cells that change are sent.
    pub fn wait_to_see(&mut self, what: &str, holds: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(&self.screen.screen().contents()) {
            self.receive(what, deadline);
        }
    }

    fn receive(&mut self, wanted: &str, deadline: Instant) {
        match self.painted.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(bytes) => {
                self.screen.process(&bytes);
                self.seen.push_str(&String::from_utf8_lossy(&bytes));
            }
            Err(error) => {
                panic!("{error} before {wanted:?}: {:?}\n{}", self.seen, self.screen.screen().contents())
            }
        }
    }

    /// Lets an answer begin, stops it with Ctrl-C if it has not ended by itself, and returns it with its times.
    pub fn stop_answer(&mut self) -> String {
        let echo = self.wait_for("\r\n");
        let begin = self.wait_for_any();
        self.press("\x03");
        echo + &begin + &self.wait_for("cached)")
    }

    /// Waits for anything at all.
    fn wait_for_any(&mut self) -> String {
        if self.seen.is_empty() {
            self.receive("anything", Instant::now() + PATIENCE);
        }
        std::mem::take(&mut self.seen)
    }

    pub fn wait(mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        // The screen closes when the program ends.
        loop {
            match self.painted.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return self.child.wait().unwrap(),
                Err(RecvTimeoutError::Timeout) => panic!("it does not end"),
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A failed test leaves no program behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
