//! The life of one worker after the other, on the supervisor's thread.

use super::ear::{Ear, Listener, Word};
use super::pen::{Pen, write_commands};
use super::{Options, Phase, Shared};
use crate::message::{Command, Failure};
use crate::runner::RunnerFacts;
use std::collections::VecDeque;
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{self, Child, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub(super) struct Life<C> {
    shared: Arc<Shared>,
    command: C,
    options: Options,
    listener: Listener,
    deaths: VecDeque<Instant>, // within the window
    loaded: bool,              // some worker has been ready once
}

struct Worker {
    child: Child,
    link: UnixStream,
}

/// How often the supervisor looks whether the worker still speaks.
const TICK_MAX: Duration = Duration::from_millis(100);

/// How long a worker whose link has ended may take to be gone by itself.
const EXIT_LIMIT: Duration = Duration::from_millis(200);

impl<C: FnMut() -> process::Command> Life<C> {
    pub(super) fn new(shared: Arc<Shared>, command: C, options: Options, listener: Listener) -> Life<C> {
        Life { shared, command, options, listener, deaths: VecDeque::new(), loaded: false }
    }

    pub(super) fn run(mut self) {
        loop {
            let reason = match Worker::spawn((self.command)()) {
                Ok(worker) => self.live(worker),
                Err(error) => format!("the worker process could not be started: {error}"),
            };
            let down = self.count_death();
            if !self.bury(&reason, down) {
                return;
            }
        }
    }

    /// Serves one worker until it is gone, and says why it went.
    fn live(&mut self, mut worker: Worker) -> String {
        self.shared.lock().pid = Some(worker.child.id());
        let reason = match worker.link.try_clone().and_then(|link| self.listen(link)) {
            Ok(reason) => reason,
            Err(error) => format!("the link could not be set up: {error}"),
        };
        let status = worker.end();
        match status {
            Ok(status) => format!("{reason} ({status})"),
            Err(error) => format!("{reason} (its exit status is unknown: {error})"),
        }
    }

    fn listen(&mut self, link: UnixStream) -> io::Result<String> {
        let (tell, told) = channel();
        (self.listener)(Ear::new(self.shared.clone(), link.try_clone()?, tell)?)?;
        let tick = (self.options.hang_limit / 4).clamp(Duration::from_millis(1), TICK_MAX);
        let (mut writer, started) = (None, Instant::now());
        let reason = loop {
            match told.recv_timeout(tick) {
                Ok(Word::Ready(facts)) => writer = Some(self.take_up(facts, link.try_clone()?)?),
                Ok(Word::Last(reason)) => break reason,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break self.unheard(),
            }
            if let Some(reason) = self.overdue(started, writer.is_some()) {
                break reason;
            }
        };
        // Shutting down first wakes the writer, which may wait for a worker that reads no more, and the ear.
        let _ = link.shutdown(Shutdown::Both);
        // While there is an ear, callers may still be told of this worker.
        while told.recv().is_ok() {}
        self.leave();
        writer.into_iter().for_each(|writer: JoinHandle<()>| drop(writer.join()));
        self.shared.give_pen(None);
        Ok(reason)
    }

    /// Who listened has let go without a word. When a program ends, that comes shortly before the engine is stopped.
    fn unheard(&self) -> String {
        let deadline = Instant::now() + self.options.stop_limit;
        let mut state = self.shared.lock();
        while state.phase != Phase::Stopping && Instant::now() < deadline {
            state = self.shared.wait_for(state, TICK_MAX);
        }
        "nobody listens to the worker any more".to_owned()
    }

    /// The worker is ready: everything that runs is sent to it, then whatever comes.
    fn take_up(&mut self, facts: RunnerFacts, link: UnixStream) -> io::Result<JoinHandle<()>> {
        self.loaded = true;
        // Before there is anything to write: what is in the outbox is for this worker.
        self.shared.give_pen(Some(Pen::new(link)));
        let mut state = self.shared.lock();
        state.facts = facts;
        state.mirror.set_facts(facts);
        state.outbox = state.mirror.resume();
        let asked = state.stats.len();
        state.outbox.extend(std::iter::repeat_n(Command::Stats, asked));
        state.stuck = true;
        if state.phase == Phase::Loading {
            state.phase = Phase::Up;
        }
        drop(state);
        self.shared.changed.notify_all();
        let shared = self.shared.clone();
        thread::Builder::new().name("commands".into()).spawn(move || write_commands(&shared))
    }

    /// The worker is gone: nothing more can be sent to it.
    fn leave(&self) {
        let mut state = self.shared.lock();
        if state.phase == Phase::Up {
            state.phase = Phase::Loading;
        }
        state.pid = None;
        state.outbox.clear();
        state.mirror.forget_worker();
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Why the worker should have spoken by now, if so.
    fn overdue(&self, started: Instant, ready: bool) -> Option<String> {
        let Options { load_limit, hang_limit, stop_limit, .. } = self.options;
        let state = self.shared.lock();
        let silent = state.heard.elapsed();
        match ready {
            false if state.phase == Phase::Stopping => Some("it was stopped while loading".to_owned()),
            true if state.phase == Phase::Stopping && state.stopping.elapsed() > stop_limit => {
                Some("the worker did not stop when told to".to_owned())
            }
            false if started.elapsed() > load_limit => {
                Some(format!("the worker was not ready within {load_limit:?}"))
            }
            true if state.mirror.is_running() && silent > hang_limit => {
                Some(format!("the worker made no progress for {hang_limit:?}"))
            }
            _ => None,
        }
    }

    /// Whether it is time to give up.
    fn count_death(&mut self) -> bool {
        let now = Instant::now();
        self.deaths.push_back(now);
        self.deaths.retain(|&death| now.duration_since(death) <= self.options.deaths_window);
        !self.loaded || self.deaths.len() >= self.options.deaths_max
    }

    /// Goes down if it has to and waits until there is to be a next worker; false: there is none.
    fn bury(&mut self, reason: &str, down: bool) -> bool {
        let mut state = self.shared.lock();
        state.deaths += u64::from(state.phase != Phase::Stopping);
        if state.phase != Phase::Stopping && down {
            state.phase = Phase::Down(reason.to_owned());
            state.mirror.fail_all(&Failure::WorkerLost(reason.to_owned()));
            state.stats.clear();
            self.deaths.clear();
        }
        self.shared.changed.notify_all();
        while matches!(state.phase, Phase::Down(_)) {
            state = self.shared.wait(state);
        }
        if state.phase == Phase::Stopping {
            state.mirror.fail_all(&Failure::WorkerLost("the engine was stopped".to_owned()));
            return false;
        }
        true
    }
}

impl Worker {
    fn spawn(mut command: process::Command) -> io::Result<Worker> {
        let (link, theirs) = UnixStream::pair()?;
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
        Ok(Worker { child: command.spawn()?, link })
    }

    /// Makes sure that the process is gone.
    fn end(&mut self) -> io::Result<ExitStatus> {
        let deadline = Instant::now() + EXIT_LIMIT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            thread::sleep(Duration::from_millis(2));
        }
        self.child.kill()?;
        self.child.wait()
    }
}
