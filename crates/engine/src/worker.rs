//! The worker process: an engine at the other end of a link.
//!
//! One thread reads commands into a bounded queue, the other steps. With nothing to do both are blocked in
//! the kernel. The worker ends when told to, when the link closes, and when its parent dies.

use crate::limits::LINK_COMMANDS_QUEUED_MAX;
use crate::link::{FrameReader, FrameWriter, LinkError};
use crate::message::{Command, Event};
use crate::runner::RunnerError;
use crate::step::{Engine, Progress};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error(transparent)]
    Runner(#[from] RunnerError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("the worker could not be set up: {0}")]
    Io(#[from] io::Error),
}

type Queued = Result<Command, LinkError>;

/// The link that the supervisor has laid on the standard input of this process.
pub fn link_from_stdin() -> io::Result<UnixStream> {
    Ok(UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?))
}

/// Loads the model, then steps until told to shut down. The last words of a failure go over the link too.
pub fn run<F>(stream: UnixStream, make_engine: F) -> Result<(), WorkerError>
where
    F: FnOnce() -> Result<Engine, RunnerError>,
{
    die_with_parent();
    let commands = read_commands(stream.try_clone()?)?;
    let mut link = FrameWriter::new(stream);
    let outcome = load_and_serve(make_engine, &commands, &mut link);
    if let Err(error) = &outcome {
        // The link may be what failed: then nobody is there to be told.
        let _ = tell(&mut link, &[Event::Fatal { message: error.to_string() }]);
    }
    outcome
}

fn load_and_serve<F>(
    make_engine: F,
    commands: &Receiver<Queued>,
    link: &mut FrameWriter<UnixStream>,
) -> Result<(), WorkerError>
where
    F: FnOnce() -> Result<Engine, RunnerError>,
{
    let mut engine = make_engine()?;
    tell(link, &[Event::Ready(engine.facts())])?;
    let mut events = Vec::new();
    while obey(&mut engine, commands, &mut events)? {
        if engine.step(&mut events)? == Progress::Stepped && events.is_empty() {
            events.push(Event::Alive);
        }
        if !events.is_empty() {
            tell(link, &events)?;
            events.clear();
        }
    }
    Ok(())
}

/// Writes one frame with all of these events.
fn tell(link: &mut FrameWriter<UnixStream>, events: &[Event]) -> Result<(), LinkError> {
    link.write([events])
}

/// Obeys what is queued; waits for it when nothing runs. False: it is time to go.
fn obey(
    engine: &mut Engine,
    commands: &Receiver<Queued>,
    events: &mut Vec<Event>,
) -> Result<bool, WorkerError> {
    let mut next = match engine.is_idle() {
        true => Some(commands.recv().unwrap_or(Ok(Command::Shutdown))),
        false => commands.try_recv().ok(),
    };
    for _ in 0..LINK_COMMANDS_QUEUED_MAX {
        match next {
            None => break,
            Some(Ok(Command::Shutdown)) => return Ok(false),
            Some(command) => engine.command(&command?, events),
        }
        next = commands.try_recv().ok();
    }
    Ok(true)
}

fn read_commands(stream: UnixStream) -> io::Result<Receiver<Queued>> {
    let (queue, commands) = sync_channel(LINK_COMMANDS_QUEUED_MAX);
    thread::Builder::new().name("commands".into()).spawn(move || read_into(&queue, stream))?;
    Ok(commands)
}

/// Ends with the link; a closed link is an order to shut down.
fn read_into(queue: &SyncSender<Queued>, stream: UnixStream) {
    let mut reader = FrameReader::new(stream);
    loop {
        let command = match reader.read() {
            Ok(Some(command)) => Ok(command),
            Ok(None) => Ok(Command::Shutdown),
            Err(error) => Err(error),
        };
        let last = !matches!(&command, Ok(command) if *command != Command::Shutdown);
        if queue.send(command).is_err() || last {
            return;
        }
    }
}

/// A worker that is stuck in the device does not see its link close.
fn die_with_parent() {
    #[cfg(target_os = "linux")]
    // SAFETY: this call only sets which signal the kernel sends to this process; it touches no memory.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
}
