//! Keeps a worker process alive, and its callers unaware when it is not.
//!
//! The supervisor's thread starts the worker and, when it dies or hangs, starts another and sends it everything that
//! was running. What the worker says is heard elsewhere (`ear`). A caller sees a pause and then the same tokens as without it. After
//! too many deaths in a short time it gives up with a clean error, until someone asks for a restart.

mod ear;
mod generation;
mod life;
mod mirror;
mod pen;

pub use ear::{Ear, Listener};
pub use generation::{Generation, TimedOut, Told};

use crate::limits::LINK_COMMANDS_QUEUED_MAX;
use crate::message::{Command, Failure, Generate, SequenceId, Stats};
use crate::runner::RunnerFacts;
use generation::Queue;
use mirror::Mirror;
use pen::Pen;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, process, thread};

#[derive(Debug, Clone)]
pub struct Options {
    pub load_limit: Duration, // from start to ready
    pub hang_limit: Duration, // without a word while something runs; more than the longest step
    pub stop_limit: Duration, // from being told to stop to being killed
    pub deaths_max: usize,    // so many within `deaths_window`, and no further restart
    pub deaths_window: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            load_limit: Duration::from_secs(600),
            hang_limit: Duration::from_secs(60),
            stop_limit: Duration::from_secs(2),
            deaths_max: 3,
            deaths_window: Duration::from_secs(60),
        }
    }
}

/// Why the engine did not take a request.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Refused(#[from] Failure),
    #[error("the engine is down: {0}")]
    Down(String),
    #[error("the engine has {LINK_COMMANDS_QUEUED_MAX} commands waiting: try again later")]
    Overloaded,
    #[error("the engine did not answer in time")]
    TimedOut,
}

/// Owns the worker. Dropping it ends the worker and all that runs on it.
pub struct Supervisor {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

/// What callers use, from any thread.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,        // the phase, or what the writing thread has to do
    pen: Mutex<Option<Pen>>, // to the present worker; locked before the state, where both are
    ids: AtomicU64,
}

struct State {
    phase: Phase,
    mirror: Mirror,
    facts: RunnerFacts,
    outbox: Vec<Command>, // for the present worker
    stuck: bool,          // the outbox waits for the writing thread
    heard: Instant,       // when the worker last spoke, or had first something to speak about
    stats: VecDeque<SyncSender<Stats>>,
    stopping: Instant, // when it was told to stop, once it was
    pid: Option<u32>,
    deaths: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    /// A worker is loading. What an earlier one left undone waits for it.
    Loading,
    Up,
    /// No worker, and none to come unless asked for.
    Down(String),
    Stopping,
}

impl Supervisor {
    /// Starts the worker that `command` describes and waits until it is ready. The command gets the link as
    /// its standard input; `worker::link_from_stdin` finds it there.
    pub fn start<C>(command: C, options: Options) -> Result<Supervisor, EngineError>
    where
        C: FnMut() -> process::Command + Send + 'static,
    {
        Supervisor::start_heard(command, options, ear::on_a_thread())
    }

    /// The same, with what the worker says heard by the caller's own means.
    pub fn start_heard<C>(command: C, options: Options, listener: Listener) -> Result<Supervisor, EngineError>
    where
        C: FnMut() -> process::Command + Send + 'static,
    {
        let handle = Handle { shared: Arc::new(Shared::new()) };
        let life = life::Life::new(handle.shared.clone(), command, options, listener);
        let thread = thread::Builder::new().name("supervisor".into()).spawn(move || life.run());
        let thread = thread.map_err(|error: io::Error| EngineError::Down(error.to_string()))?;
        let supervisor = Supervisor { handle, thread: Some(thread) };
        supervisor.handle.wait_until_up()?;
        Ok(supervisor)
    }

    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.handle.shared.enter(Phase::Stopping);
        if let Some(thread) = self.thread.take() {
            // It has nothing to return, and a panic in it has been reported by itself.
            let _ = thread.join();
        }
    }
}

impl Handle {
    /// An id that no sequence of this engine has had.
    pub fn new_sequence(&self) -> SequenceId {
        SequenceId(self.shared.ids.fetch_add(1, Ordering::Relaxed))
    }

    pub fn facts(&self) -> RunnerFacts {
        self.shared.lock().facts
    }

    /// Begins a generation. Dropping what is returned cancels it.
    pub fn generate(&self, request: Generate) -> Result<Generation, EngineError> {
        let (sequence, queue) = (request.sequence, Arc::new(Queue::default()));
        let mut state = self.shared.alive()?;
        state.check_outbox()?;
        if !state.mirror.is_running() {
            state.heard = Instant::now();
        }
        let command = state.mirror.generate(request, queue.clone())?;
        self.shared.send(state, Some(command));
        Ok(Generation::new(sequence, queue, self.clone()))
    }

    /// Ends the running generation at the next token, appends and goes on. Whether and where it took hold is
    /// told by the generation: `Steered`, or `Refused`, or an end that came first.
    pub fn steer(&self, id: SequenceId, tokens: Vec<u32>, max_tokens: u32) -> Result<(), EngineError> {
        self.change(|mirror| mirror.steer(id, tokens, max_tokens).map(Some))
    }

    /// Ends the running generation, if there is one.
    pub fn cancel(&self, id: SequenceId) -> Result<(), EngineError> {
        self.change(|mirror| mirror.cancel(id))
    }

    /// Keeps the first `len` tokens; a running generation ends first.
    pub fn truncate(&self, id: SequenceId, len: u32) -> Result<(), EngineError> {
        self.change(|mirror| mirror.truncate(id, len))
    }

    /// Makes the sequence `id` of the first `at` tokens of another.
    pub fn fork(&self, id: SequenceId, of: SequenceId, at: u32) -> Result<(), EngineError> {
        self.change(|mirror| mirror.fork(id, of, at))
    }

    /// Forgets the sequence; a running generation ends first.
    pub fn release(&self, id: SequenceId) -> Result<(), EngineError> {
        self.change(|mirror| mirror.release(id))
    }

    /// Asks the worker for its counters.
    pub fn stats(&self, limit: Duration) -> Result<Stats, EngineError> {
        let (answer, stats) = sync_channel(1);
        let mut state = self.shared.alive()?;
        state.check_outbox()?;
        state.stats.push_back(answer);
        self.shared.send(state, Some(Command::Stats));
        stats.recv_timeout(limit).map_err(|error| match error {
            RecvTimeoutError::Timeout => EngineError::TimedOut,
            RecvTimeoutError::Disconnected => EngineError::Down("its worker was lost".to_owned()),
        })
    }

    /// How often the worker has died so far.
    pub fn deaths(&self) -> u64 {
        self.shared.lock().deaths
    }

    pub fn worker_pid(&self) -> Option<u32> {
        self.shared.lock().pid
    }

    /// Starts a worker again after the supervisor has given up, and waits until it is ready.
    pub fn restart(&self) -> Result<(), EngineError> {
        if matches!(self.shared.lock().phase, Phase::Down(_)) {
            self.shared.enter(Phase::Loading);
        }
        self.wait_until_up()
    }

    fn change<F>(&self, change: F) -> Result<(), EngineError>
    where
        F: FnOnce(&mut Mirror) -> Result<Option<Command>, Failure>,
    {
        let mut state = self.shared.alive()?;
        state.check_outbox()?;
        let command = change(&mut state.mirror)?;
        self.shared.send(state, command);
        Ok(())
    }

    fn wait_until_up(&self) -> Result<(), EngineError> {
        let mut state = self.shared.lock();
        while state.phase == Phase::Loading {
            state = self.shared.wait(state);
        }
        match &state.phase {
            Phase::Down(reason) => Err(EngineError::Down(reason.clone())),
            Phase::Stopping => Err(EngineError::Down("it was stopped".to_owned())),
            Phase::Loading | Phase::Up => Ok(()),
        }
    }
}

impl Shared {
    fn new() -> Shared {
        let facts = RunnerFacts { vocab: 0, context: 0, kv_blocks: 0 };
        Shared {
            state: Mutex::new(State {
                phase: Phase::Loading,
                mirror: Mirror::new(facts),
                facts,
                outbox: Vec::new(),
                stuck: false,
                heard: Instant::now(),
                stats: VecDeque::new(),
                stopping: Instant::now(),
                pid: None,
                deaths: 0,
            }),
            changed: Condvar::new(),
            pen: Mutex::new(None),
            ids: AtomicU64::new(1),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under this lock would be a bug of ours; refusing all callers for it would help nobody.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for<'a>(&self, state: MutexGuard<'a, State>, limit: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    fn enter(&self, phase: Phase) {
        let mut state = self.lock();
        state.phase = phase;
        state.stopping = Instant::now();
        drop(state);
        self.changed.notify_all();
    }

    /// The state, as long as there is a worker or will be one.
    fn alive(&self) -> Result<MutexGuard<'_, State>, EngineError> {
        let state = self.lock();
        match &state.phase {
            Phase::Loading | Phase::Up => Ok(state),
            Phase::Down(reason) => Err(EngineError::Down(reason.clone())),
            Phase::Stopping => Err(EngineError::Down("it was stopped".to_owned())),
        }
    }

    /// Without a worker nothing is sent: the mirror tells the next one all it has to know.
    fn send(&self, mut state: MutexGuard<'_, State>, command: Option<Command>) {
        if state.phase == Phase::Up {
            state.outbox.extend(command);
            drop(state);
            if !self.send_at_once() {
                self.lock().stuck = true;
                self.changed.notify_all();
            }
        }
    }
}

impl State {
    fn check_outbox(&self) -> Result<(), EngineError> {
        match self.outbox.len() < LINK_COMMANDS_QUEUED_MAX {
            true => Ok(()),
            false => Err(EngineError::Overloaded),
        }
    }
}
