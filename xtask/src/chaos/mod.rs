//! `cargo xtask chaos`: many streams, and what can happen to them. Every byte of every answer is known beforehand,
//! and compared. One seed decides who says what, who dies when, and who leaves.
//!
//! The test `crates/cli/tests/chaos_short.rs` is the short form of it.

mod leaving;
mod overload;
mod script;
mod seed;
mod server_deaths;
mod slow_readers;
mod stage;
mod stream;
mod streams;
mod worker_deaths;

use crate::Outcome;
use seed::Seed;
use stage::Stage;
use std::path::Path;
use std::time::{Duration, Instant};

/// How much of everything.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub seed: u64,
    pub streams: usize,        // at the same time
    pub lasting: Duration,     // that each of them asks again; zero: it asks once
    pub worker_deaths: usize,  // of all servers together
    pub server_deaths: usize,  // of all servers together
    pub leaving: usize,        // clients that go away in mid-stream
    pub slow: usize,           // clients that do not read
    pub bursts: usize,         // of ten times as many turns as are admitted
    pub refused_max: Duration, // that 99 of 100 refusals may take
}

impl Plan {
    pub fn short(seed: u64) -> Plan {
        Plan {
            seed,
            streams: 400,
            lasting: Duration::ZERO,
            worker_deaths: 2,
            server_deaths: 4,
            leaving: 24,
            slow: 4,
            bursts: 1,
            // Not a promise: tests run beside one another.
            refused_max: Duration::from_secs(2),
        }
    }

    pub fn full(seed: u64) -> Plan {
        Plan {
            seed,
            streams: 1000,
            lasting: Duration::from_secs(60),
            worker_deaths: 200,
            server_deaths: 200,
            leaving: 1000,
            slow: 32,
            bursts: 20,
            refused_max: Duration::from_millis(50),
        }
    }
}

/// What one kind of trouble came to.
#[derive(Debug, Default)]
pub struct Row {
    pub faults: usize, // that were made: deaths, clients that left or did not read, turns that were too many
    pub answers: usize,
    pub bytes: usize,
    pub tokens: usize,
    pub put_off: usize,     // times that the server said: later
    pub wrong: Vec<String>, // what was not as it should be
    pub seconds: f64,
    pub note: String,
}

impl Row {
    pub fn add(&mut self, other: Row) {
        self.faults += other.faults;
        self.answers += other.answers;
        self.bytes += other.bytes;
        self.tokens += other.tokens;
        self.put_off += other.put_off;
        self.wrong.extend(other.wrong);
    }

    /// Notes what was not as it should be.
    pub fn must(&mut self, right: bool, wrong: impl FnOnce() -> String) {
        if !right {
            self.wrong.push(wrong());
        }
    }
}

/// A kind of trouble, on servers of its own.
type Kind = fn(&Stage<'_>, &mut Seed) -> Outcome<Row>;

const KINDS: [(&str, Kind); 6] = [
    ("streams", streams::run),
    ("worker-deaths", worker_deaths::run),
    ("server-deaths", server_deaths::run),
    ("leaving", leaving::run),
    ("slow-readers", slow_readers::run),
    ("overload", overload::run),
];

/// The names of all kinds.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|(name, _)| *name)
}

/// Makes one kind of trouble.
pub fn row(program: &Path, plan: Plan, name: &str) -> Outcome<Row> {
    let kind = KINDS.iter().find(|(known, _)| *known == name);
    let (_, kind) = kind.ok_or_else(|| format!("there is no kind of trouble {name:?}"))?;
    let start = Instant::now();
    let row = kind(&Stage { program, plan }, &mut Seed(plan.seed))?;
    Ok(Row { seconds: start.elapsed().as_secs_f64(), ..row })
}

pub fn print_head() {
    let [faults, answers, bytes, tokens] = ["faults", "answers", "bytes", "tokens/s"];
    println!(
        "{:<14} {faults:>6} {answers:>8} {bytes:>10} {tokens:>8} {:>8} {:>6} {:>6}",
        "", "put off", "wrong", "s"
    );
}

pub fn print(name: &str, row: &Row) {
    let Row { faults, answers, bytes, tokens, put_off, wrong, seconds, note } = row;
    let (rate, wrongs) = (*tokens as f64 / seconds, wrong.len());
    println!(
        "{name:<14} {faults:>6} {answers:>8} {bytes:>10} {rate:>8.0} {put_off:>8} {wrongs:>6} {seconds:>6.1}  {note}"
    );
    wrong.iter().take(5).for_each(|wrong| println!("    {wrong}"));
}
