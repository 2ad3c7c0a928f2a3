//! A terminal that nobody sits at: programs write to it as they would for a person, line by line.
//!
//! It is only where they write. They read from nowhere: whatever asks a question gets the end of the input instead of
//! waiting for an answer that cannot come, and whatever looks for a person at its terminal finds none.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{OptionalActions, OutputModes, Winsize, tcgetattr, tcsetattr, tcsetwinsize};
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::Duration;

pub struct Terminal {
    ours: OwnedFd,
}

/// What came within a time.
pub enum Came {
    Bytes(usize),
    Nothing,
    /// Nobody has the terminal open any more.
    End,
}

const COLUMNS: u16 = 120;
const ROWS: u16 = 50;

impl Terminal {
    /// A terminal for a command that is not started yet.
    pub fn of(command: &mut Command) -> io::Result<Terminal> {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let theirs = ioctl_tiocgptpeer(&ours, flags)?;
        let mut modes = tcgetattr(&theirs)?;
        modes.output_modes -= OutputModes::OPOST;
        tcsetattr(&theirs, OptionalActions::Now, &modes)?;
        tcsetwinsize(&theirs, Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 })?;
        rustix::fs::fcntl_setfl(&ours, OFlags::NONBLOCK)?;
        command.stdin(Stdio::null()).stdout(theirs.try_clone()?).stderr(theirs);
        Ok(Terminal { ours })
    }

    /// Waits no longer than this for something to come.
    pub fn read(&self, into: &mut [u8], at_most: Duration) -> io::Result<Came> {
        let mut files = [PollFd::new(&self.ours, PollFlags::IN)];
        let wait = Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: at_most.subsec_nanos().into() };
        match poll(&mut files, Some(&wait)) {
            Ok(0) | Err(Errno::INTR) => return Ok(Came::Nothing),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        match rustix::io::read(&self.ours, into) {
            Ok(0) | Err(Errno::IO) => Ok(Came::End),
            Ok(count) => Ok(Came::Bytes(count)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Came::Nothing),
            Err(error) => Err(error.into()),
        }
    }
}
