//! What the worker says, taken from the link: by a thread, or by a task of the caller's executor. A task saves the time
//! in which one thread wakes another, at every token.

use super::Shared;
use crate::link::{FrameReader, LinkError};
use crate::message::Event;
use crate::runner::RunnerFacts;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Instant;

/// Who listens to one worker after the other: it is given an ear for each, and must let go of that when the worker is
/// over.
pub type Listener = Box<dyn FnMut(Ear) -> io::Result<()> + Send>;

/// The hearing end of the link to one worker. What it hears goes to the callers; what concerns the worker itself to the
/// supervisor.
pub struct Ear {
    shared: Arc<Shared>,
    reader: FrameReader<UnixStream>,
    tell: Sender<Word>,
}

/// What the supervisor has to know.
pub(super) enum Word {
    Ready(RunnerFacts),
    /// Nothing follows, for this reason.
    Last(String),
}

impl Ear {
    /// Who writes to the link does not block either from now on.
    pub(super) fn new(shared: Arc<Shared>, link: UnixStream, tell: Sender<Word>) -> io::Result<Ear> {
        link.set_nonblocking(true)?;
        Ok(Ear { shared, reader: FrameReader::new(link), tell })
    }

    /// What becomes readable when there is something to hear.
    pub fn link(&self) -> &UnixStream {
        self.reader.source()
    }

    /// Takes all that has come so far. False when nothing more will come.
    pub fn hear(&mut self) -> bool {
        let reason = loop {
            match self.reader.read::<Vec<Event>>() {
                Ok(Some(events)) => {
                    if let Some(last_words) = self.take(events) {
                        break last_words;
                    }
                }
                Ok(None) => break "the worker ended without a word".to_owned(),
                Err(LinkError::TimedOut) => return true,
                Err(error) => break error.to_string(),
            }
        };
        // A supervisor that is no longer interested has given the worker up.
        let _ = self.tell.send(Word::Last(reason));
        false
    }

    /// Tells who is concerned; returns the worker's last words, if these are among them.
    fn take(&self, events: Vec<Event>) -> Option<String> {
        let mut state = self.shared.lock();
        state.heard = Instant::now();
        for event in events {
            match event {
                Event::Ready(facts) => drop(self.tell.send(Word::Ready(facts))),
                Event::Fatal { message } => return Some(message),
                Event::Stats(stats) => {
                    if let Some(answer) = state.stats.pop_front() {
                        // Whoever asked may have given up.
                        let _ = answer.try_send(stats);
                    }
                }
                event => state.mirror.apply(event),
            }
        }
        None
    }
}

/// Listens on a thread of its own, which waits for every word.
pub(super) fn on_a_thread() -> Listener {
    Box::new(|mut ear| {
        ear.link().set_nonblocking(false)?;
        thread::Builder::new().name("ear".into()).spawn(move || while ear.hear() {}).map(drop)
    })
}
