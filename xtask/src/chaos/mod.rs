//! `cargo xtask chaos`: many streams, and what can happen to them. Every byte of every answer is known beforehand,
//! and compared. One seed decides who says what, when a worker dies and who leaves.
//!
//! The test `crates/cli/tests/chaos_short.rs` is the short form of it.

mod faults;
mod seed;
mod stream;

use crate::Outcome;
use crate::wire::{Served, Settings};
use seed::Seed;
use std::path::Path;
use std::time::Instant;

/// How much of everything.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub seed: u64,
    pub streams: usize, // at the same time
    pub turns: usize,   // of each stream
    pub deaths: usize,  // of the worker; a third within a minute would rightly be the end
    pub leaving: usize, // clients that go away in mid-stream
    pub slow: usize,    // clients that do not read
}

impl Plan {
    pub fn short(seed: u64) -> Plan {
        Plan { seed, streams: 100, turns: 1, deaths: 1, leaving: 20, slow: 4 }
    }

    pub fn full(seed: u64) -> Plan {
        Plan { seed, streams: 1000, turns: 2, deaths: 2, leaving: 200, slow: 16 }
    }
}

/// What one kind of trouble came to.
#[derive(Debug, Default)]
pub struct Row {
    pub name: &'static str,
    pub answers: usize,
    pub bytes: usize,
    pub put_off: usize,     // times that the server said: later
    pub wrong: Vec<String>, // what was not as it should be
    pub seconds: f64,
    pub note: String,
}

/// Every kind of trouble, each on a server of its own.
pub fn rows(program: &Path, plan: Plan) -> Outcome<Vec<Row>> {
    type Kind = fn(&Served, &[Line], Plan, &mut Seed) -> Outcome<Row>;
    let kinds: [(&str, Kind); 4] = [
        ("streams", faults::streams),
        ("worker killed", faults::deaths),
        ("clients leave", faults::leaving),
        ("slow readers", faults::slow_readers),
    ];
    let mut rows = Vec::new();
    for (name, kind) in kinds {
        let mut seed = Seed(plan.seed);
        let lines = lines(&mut seed);
        let settings = Settings { script: Some(&lines), kv_tokens: Some(262_144), ..Settings::default() };
        let served = Served::start(program, &settings)?;
        let start = Instant::now();
        let row = kind(&served, &lines, plan, &mut seed)?;
        rows.push(Row { name, seconds: start.elapsed().as_secs_f64(), ..row });
    }
    Ok(rows)
}

/// What is said, and what must be answered.
type Line = (String, String);

/// Answers of 30 to 80 words, in letters of one to four bytes.
fn lines(seed: &mut Seed) -> Vec<Line> {
    const WORDS: [&str; 12] =
        ["stream", "naïve", "数学", "🎉", "café", "token", "двадцать", "frame", "the", "\n", "zürich", "👩‍🚀"];
    let answer = |seed: &mut Seed| {
        let count = 30 + seed.below(50);
        (0..count).map(|_| WORDS[seed.below(WORDS.len())]).collect::<Vec<_>>().join(" ")
    };
    (0..16).map(|line| (format!("Play number {line}."), format!("{line}: {}.", answer(seed)))).collect()
}

pub fn print(rows: &[Row]) {
    println!("{:<14} {:>8} {:>10} {:>8} {:>6} {:>6}", "", "answers", "bytes", "put off", "wrong", "s");
    for Row { name, answers, bytes, put_off, wrong, seconds, note } in rows {
        println!(
            "{name:<14} {answers:>8} {bytes:>10} {put_off:>8} {:>6} {seconds:>6.1}  {note}",
            wrong.len()
        );
        wrong.iter().take(5).for_each(|wrong| println!("    {wrong}"));
    }
}
