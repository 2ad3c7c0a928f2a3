//! Where the trouble happens: servers, what they play, and waiting for what they do.

use super::script::Line;
use super::{Plan, Row, Seed};
use crate::Outcome;
use crate::wire::{Served, Settings};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);
/// Tokens of KV that all servers have: enough for all who run at the same time.
const KV_TOKENS: u32 = 262_144;
/// Servers at the same time, where each is mostly waited for.
const SERVERS_MAX: usize = 4;

pub struct Stage<'a> {
    pub program: &'a Path,
    pub plan: Plan,
}

impl Stage<'_> {
    /// A server that plays these lines, so many tokens a second of each; else as fast as it can.
    pub fn serve(&self, lines: &[Line], rate: Option<f64>) -> Outcome<Served> {
        self.serve_with(lines, rate, None)
    }

    pub fn serve_with(&self, lines: &[Line], rate: Option<f64>, config: Option<&str>) -> Outcome<Served> {
        let kv_tokens = Some(KV_TOKENS);
        let settings = Settings { script: Some(lines), rate, kv_tokens, config, ..Settings::default() };
        Served::start(self.program, &settings)
    }
}

/// Does each job with chance of its own, a few at the same time, and puts together what they came to.
pub fn side_by_side(jobs: usize, seed: &mut Seed, job: impl Fn(Seed) -> Outcome<Row> + Sync) -> Outcome<Row> {
    let waiting = Mutex::new((0..jobs).map(|_| seed.split()).collect::<Vec<_>>());
    let next = || waiting.lock().ok()?.pop();
    let work = || {
        let mut sum = Row::default();
        while let Some(seed) = next() {
            // A thread hands over words, not what they stand for.
            sum.add(job(seed).map_err(|error| error.to_string())?);
        }
        Ok(sum)
    };
    std::thread::scope(|scope| {
        let hands: Vec<_> = (0..SERVERS_MAX.min(jobs)).map(|_| scope.spawn(work)).collect();
        let mut sum = Row::default();
        for hand in hands {
            let done: Result<Row, String> = hand.join().map_err(|_| "a job panicked")?;
            sum.add(done?);
        }
        Ok(sum)
    })
}

pub fn kill(pid: u32) -> Outcome {
    match Command::new("kill").args(["-9", &pid.to_string()]).status()?.success() {
        true => Ok(()),
        false => Err(format!("the process {pid} could not be killed").into()),
    }
}

/// Until there is what is looked for.
pub fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> Outcome<T> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(found) = found() {
            return Ok(found);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(format!("{PATIENCE:?} were not enough: {what}").into())
}

/// Until the server says that nobody runs and nobody waits.
pub fn wait_for_quiet(served: &Served) -> Outcome {
    let none = |name: &str, label: &str| served.metric(name, label).is_ok_and(|count| count == 0);
    wait_for("the server was to have nothing to do", || {
        let turns = none("flint_turns_running", "") && none("flint_queue_depth", "");
        (turns && none("flint_sequences", "state=\"running\"")).then_some(())
    })
}
