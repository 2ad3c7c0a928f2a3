//! A program in a pseudo-terminal, seen from outside.

use crate::Outcome;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Instant;

pub struct Pty {
    child: Child,
    keys: File,
    pub painted: Receiver<(Instant, Vec<u8>)>,
}

impl Pty {
    pub fn open(command: &mut Command, rows: u16, columns: u16) -> Outcome<Pty> {
        let leader = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&leader)?;
        unlockpt(&leader)?;
        tcsetwinsize(&leader, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })?;
        let follower = ioctl_tiocgptpeer(&leader, OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        command.stdin(follower.try_clone()?).stdout(follower.try_clone()?).stderr(follower);
        let child = command.env("TERM", "xterm-256color").spawn()?;
        let keys = File::from(leader);
        let mut reader = keys.try_clone()?;
        let (sender, painted) = sync_channel(100_000);
        thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while let Ok(read @ 1..) = reader.read(&mut buffer) {
                if sender.send((Instant::now(), buffer[..read].to_vec())).is_err() {
                    return;
                }
            }
        });
        Ok(Pty { child, keys, painted })
    }

    pub fn press(&mut self, keys: &str) -> Outcome {
        Ok(self.keys.write_all(keys.as_bytes())?)
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
