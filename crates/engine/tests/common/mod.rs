//! What the tests of the engine share.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use flint_engine::batch::Batch;
use flint_engine::constrain::{Piece, Vocabulary};
use flint_engine::device::scripted::{Script, Scripted, ScriptedOptions};
use flint_engine::message::{Base, Command, Event, Generate, Priority, SequenceId, Tenant};
use flint_engine::runner::{Runner, RunnerError, RunnerFacts};
use flint_engine::sample::Sampling;
use flint_engine::step::{Engine, Progress};
use std::path::PathBuf;
use std::time::Duration;

/// The file of a real model, where `cargo xtask test` has put it.
pub fn model_path(name: &str) -> PathBuf {
    fetched(&format!("models/{name}.gguf"))
}

/// A file that `cargo xtask test` has put into Flint's cache.
pub fn fetched(name: &str) -> PathBuf {
    let given = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || given("XDG_CACHE_HOME").or_else(|| Some(given("HOME")?.join(".cache")));
    let cache = given("FLINT_CACHE").or_else(|| Some(home()?.join("flint")));
    let path = cache.expect("HOME is not set").join(name);
    assert!(path.exists(), "{} is not there: run `cargo xtask test`, which fetches it", path.display());
    path
}

pub fn options(script: Script) -> ScriptedOptions {
    ScriptedOptions { vocab: 256, context: 2048, kv_blocks: 128, script, rate: None, fault: None }
}

pub fn engine(options: ScriptedOptions) -> Engine {
    Engine::new(Box::new(Scripted::new(options).unwrap())).with_vocabulary(Box::new(|| Ok(bytes())))
}

/// Each token is a byte.
pub fn bytes() -> Vocabulary {
    Vocabulary { pieces: (0..=255).map(|byte| Piece::Text(vec![byte])).collect(), cut: None }
}

pub fn request(sequence: u64, base: Base, tokens: &[u32], max_tokens: u32) -> Generate {
    Generate {
        sequence: SequenceId(sequence),
        base,
        tokens: tokens.to_vec(),
        resumed: 0,
        max_tokens,
        stop_tokens: Vec::new(),
        sampling: Sampling::default(),
        constraint: None,
        references: Vec::new(),
        speculate: false,
        priority: Priority::Interactive,
        tenant: Tenant(1),
    }
}

pub fn command(engine: &mut Engine, command: Command) -> Vec<Event> {
    let mut events = Vec::new();
    engine.command(&command, &mut events);
    events
}

pub fn generate(engine: &mut Engine, request: Generate) -> Vec<Event> {
    command(engine, Command::Generate(request))
}

/// Steps until nothing runs.
pub fn run(engine: &mut Engine) -> Vec<Event> {
    let mut events = Vec::new();
    while engine.step(&mut events).unwrap() == Progress::Stepped {}
    events
}

pub fn step(engine: &mut Engine) -> Vec<Event> {
    let mut events = Vec::new();
    engine.step(&mut events).unwrap();
    events
}

pub fn tokens_of(events: &[Event], wanted: u64) -> Vec<u32> {
    let token = |event: &Event| match event {
        Event::Token { sequence, token, .. } if sequence.0 == wanted => Some(*token),
        _ => None,
    };
    events.iter().filter_map(token).collect()
}

/// A row of logits that is there already.
pub struct Given(pub Vec<f32>);

impl Runner for Given {
    fn facts(&self) -> RunnerFacts {
        RunnerFacts { vocab: self.0.len(), context: 1, kv_blocks: 1 }
    }

    fn forward(&mut self, _: &Batch) -> Result<(), RunnerError> {
        Ok(())
    }

    fn logits(&mut self, _: usize) -> &mut [f32] {
        &mut self.0
    }

    fn copy_block(&mut self, _: u32, _: u32) {}
}

/// What all threads of a process have used; the system tells it in hundredths of a second.
pub fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(10 * ticks)
}

/// SplitMix64: a whole trial is repeated from its seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
