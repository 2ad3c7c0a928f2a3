//! Writing to the worker. Whoever has a command writes it at once, as far as the link takes it: waking a thread for that
//! would take longer than the writing. A thread waits for room with what is left.

use super::{Phase, Shared};
use crate::link::{LinkError, encode_frame};
use crate::message::Command;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::PoisonError;

/// The writing end of the link to one worker.
pub(super) struct Pen {
    link: UnixStream,
    left: Vec<u8>, // of frames, not written yet
}

impl Pen {
    pub(super) fn new(link: UnixStream) -> Pen {
        Pen { link, left: Vec::new() }
    }

    fn take(&mut self, commands: &mut Vec<Command>) -> Result<(), LinkError> {
        commands.drain(..).try_for_each(|command| encode_frame(&command, &mut self.left))
    }

    /// Writes what the link takes at once. False: something is left.
    fn write(&mut self) -> io::Result<bool> {
        let mut done = 0;
        let outcome = loop {
            let rest = &self.left[done..];
            if rest.is_empty() {
                break Ok(true);
            }
            match send(&self.link, rest) {
                Ok(written) => done += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(false),
                Err(error) => break Err(error),
            }
        };
        self.left.drain(..done);
        outcome
    }

    /// Returns when the link has room.
    fn wait(&self) -> io::Result<()> {
        let mut room = libc::pollfd { fd: self.link.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: one entry is there, and the link is open as long as it is owned.
        let polled = unsafe { libc::poll(&raw mut room, 1, -1) };
        let error = io::Error::last_os_error();
        match polled {
            -1 if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }
}

/// Never waits, whether the link is one that does or not.
fn send(link: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the bytes are as long as is said, and the link is open as long as it is owned.
    let sent = unsafe { libc::send(link.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

impl Shared {
    pub(super) fn give_pen(&self, pen: Option<Pen>) {
        *self.pen.lock().unwrap_or_else(PoisonError::into_inner) = pen;
    }

    /// Sends what is in the outbox, unless somebody else is at it. True if nothing is left for the thread to do. A broken
    /// link is noticed, and dealt with, by the one who listens to it.
    pub(super) fn send_at_once(&self) -> bool {
        let Ok(mut pen) = self.pen.try_lock() else { return false };
        let Some(pen) = pen.as_mut() else { return true };
        if !pen.left.is_empty() {
            return false;
        }
        let mut commands = std::mem::take(&mut self.lock().outbox);
        pen.take(&mut commands).is_ok() && pen.write().unwrap_or(true)
    }
}

/// Sends what nobody could send at once, as long as the worker is up.
pub(super) fn write_commands(shared: &Shared) {
    loop {
        let mut state = shared.lock();
        while !state.stuck && state.phase == Phase::Up {
            state = shared.wait(state);
        }
        state.stuck = false;
        let up = state.phase == Phase::Up;
        drop(state);
        if write_all(shared).is_err() || !up {
            return;
        }
    }
}

/// All of the outbox, however long it takes.
fn write_all(shared: &Shared) -> Result<(), LinkError> {
    let mut pen = shared.pen.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(pen) = pen.as_mut() else { return Ok(()) };
    loop {
        let mut state = shared.lock();
        let mut commands = std::mem::take(&mut state.outbox);
        if state.phase == Phase::Stopping {
            commands.push(Command::Shutdown);
        }
        drop(state);
        pen.take(&mut commands)?;
        while !pen.write()? {
            pen.wait()?;
        }
        let state = shared.lock();
        if state.outbox.is_empty() || state.phase != Phase::Up {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::FrameReader;
    use crate::message::SequenceId;
    use std::sync::Arc;
    use std::thread;

    #[test]
    fn a_full_link_holds_nobody_up_and_loses_nothing() {
        const COMMANDS: u64 = 2_000;
        let steer = |number| Command::Steer {
            sequence: SequenceId(number),
            tokens: vec![7; 1_000], // all of them are much more than a socket holds
            max_tokens: 1,
        };
        let (ours, theirs) = UnixStream::pair().unwrap();
        let shared = Arc::new(Shared::new());
        shared.lock().phase = Phase::Up;
        shared.give_pen(Some(Pen::new(ours)));
        let writer = thread::spawn({
            let shared = shared.clone();
            move || write_commands(&shared)
        });
        for number in 0..COMMANDS {
            shared.send(shared.lock(), Some(steer(number)));
        }
        let mut reader = FrameReader::new(theirs);
        for number in 0..COMMANDS {
            assert_eq!(reader.read().unwrap(), Some(steer(number)));
        }
        shared.enter(Phase::Stopping);
        assert_eq!(reader.read().unwrap(), Some(Command::Shutdown));
        writer.join().unwrap();
    }
}
