//! `flint bench --edits`: files that are written again with changes, guessed from what stands before them. The model computes,
//! the true new file is written; so what is guessed right is the same whatever the weights are.

use super::{Bench, median};
use crate::error::CliError;
use flint_engine::message::{Command, Counts, Event, Generate};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::Path;
use std::time::Instant;

/// Of a file of traces, at most.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// One line of the file, as `cargo xtask bench edits --tokens` writes it.
#[derive(Debug, Deserialize)]
pub struct Trace {
    kind: String,
    name: String,
    prompt: Vec<u32>,
    answer: Vec<u32>,
}

/// All traces of one kind; the medians of the rounds.
#[derive(Debug, Serialize)]
pub struct Edits {
    kind: String,
    traces: usize,
    plain_tokens_per_s: f64,
    guessed_tokens_per_s: f64,
    tokens: u64,  // after the first of each answer
    passes: u64,  // that made them, with guesses
    drafted: u64, // guesses
    accepted: u64,
}

/// What some answers took, after the first token of each.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    seconds: f64,
    tokens: u64,
    passes: u64,
    drafted: u64,
    accepted: u64,
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.seconds += other.seconds;
        self.tokens += other.tokens;
        self.passes += other.passes;
        self.drafted += other.drafted;
        self.accepted += other.accepted;
    }

    fn rate(&self) -> f64 {
        self.tokens as f64 / self.seconds.max(1e-9)
    }
}

pub fn read(path: &Path) -> Result<Vec<Trace>, CliError> {
    let io = |source| CliError::Io { what: path.display().to_string(), source };
    let mut text = String::new();
    std::fs::File::open(path).map_err(io)?.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(io)?;
    let line = |(at, line): (usize, &str)| {
        let bad = |error| CliError::Usage(format!("{}, line {}: {error}", path.display(), at + 1));
        serde_json::from_str(line).map_err(bad)
    };
    text.lines().enumerate().map(line).collect()
}

impl Bench {
    /// One row a kind, in the order of the file.
    pub fn edits(&mut self, traces: &[Trace], rounds: u32) -> Result<Vec<Edits>, CliError> {
        traces.iter().try_for_each(|trace| self.fits(trace))?;
        traces.chunk_by(|a, b| a.kind == b.kind).map(|traces| self.kind(traces, rounds)).collect()
    }

    fn fits(&self, trace: &Trace) -> Result<(), CliError> {
        let (name, tokens) = (&trace.name, trace.prompt.len() + trace.answer.len());
        if trace.prompt.is_empty() || trace.answer.len() < 2 || tokens >= self.context {
            let problem = format!("{name} has {tokens} tokens: there is room for {}", self.context);
            return Err(CliError::Usage(problem));
        }
        match trace.prompt.iter().chain(&trace.answer).find(|&&token| token as usize >= self.vocab) {
            Some(token) => Err(CliError::Usage(format!("{name}: the model has no token {token}"))),
            None => Ok(()),
        }
    }

    fn kind(&mut self, traces: &[Trace], rounds: u32) -> Result<Edits, CliError> {
        let (mut plain, mut guessed, mut last) = (Vec::new(), Vec::new(), Sum::default());
        for round in 0..=rounds {
            let mut sums = [Sum::default(); 2];
            for trace in traces {
                sums[0].add(self.edit(trace, false)?);
                sums[1].add(self.edit(trace, true)?);
            }
            // The first round warms, and learns what a pass of so many rows costs.
            if round > 0 {
                plain.push(sums[0].rate());
                guessed.push(sums[1].rate());
                last = sums[1];
            }
        }
        let Sum { tokens, passes, drafted, accepted, .. } = last;
        Ok(Edits {
            kind: traces.first().map_or(String::new(), |trace| trace.kind.clone()),
            traces: traces.len(),
            plain_tokens_per_s: median(plain),
            guessed_tokens_per_s: median(guessed),
            tokens,
            passes,
            drafted,
            accepted,
        })
    }

    /// Writes one file, and forgets it.
    fn edit(&mut self, trace: &Trace, speculate: bool) -> Result<Sum, CliError> {
        let request = self.request(&trace.prompt, trace.answer.len() as u32);
        let sequence = request.sequence;
        self.told.set([&trace.prompt[..], &trace.answer].concat());
        let (mut events, mut begun) = (Vec::new(), None);
        self.engine.command(&Command::Generate(Generate { speculate, ..request }), &mut events);
        let counts = loop {
            self.step(&mut events)?;
            if events.iter().any(|event| matches!(event, Event::Token { .. })) {
                begun.get_or_insert_with(|| (Instant::now(), self.engine.stats().steps));
            }
            let ends = events.drain(..).find_map(|event| match event {
                Event::Finished { counts, .. } => Some(counts),
                _ => None,
            });
            if let Some(counts) = ends {
                break counts;
            }
        };
        let (start, steps) = begun.unwrap_or_else(|| (Instant::now(), self.engine.stats().steps));
        let seconds = start.elapsed().as_secs_f64();
        let passes = self.engine.stats().steps - steps;
        self.engine.command(&Command::Release { sequence }, &mut Vec::new());
        self.told.set(Vec::new());
        let Counts { generated, drafted, accepted, .. } = counts;
        let tokens = u64::from(generated.saturating_sub(1));
        Ok(Sum { seconds, tokens, passes, drafted: drafted.into(), accepted: accepted.into() })
    }
}

impl Edits {
    pub fn print(&self) {
        let Edits { kind, traces, tokens, passes, drafted, accepted, .. } = self;
        let (plain, guessed) = (self.plain_tokens_per_s, self.guessed_tokens_per_s);
        println!(
            "{kind} ({traces}): {guessed:.0} tok/s, without guesses {plain:.0}; {tokens} tokens in {passes} passes, \
             {accepted} of {drafted} guesses right"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_no_trace_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("traces");
        let good = r#"{"kind": "copies", "name": "a", "prompt": [1, 2], "answer": [3, 4]}"#;
        std::fs::write(&path, format!("{good}\n{good}\n")).unwrap();
        assert_eq!(read(&path).unwrap().len(), 2);
        std::fs::write(&path, format!("{good}\n{{}}\n")).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("line 2"));
    }
}
