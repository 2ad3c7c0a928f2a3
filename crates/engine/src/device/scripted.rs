//! A runner that plays tokens instead of computing them, at a given rate, and fails when told to.
//!
//! It is for tests, load and demos. What it plays depends on the history that it reads back from its "KV"
//! through the block table, so that a wrong block makes wrong tokens.

use crate::batch::{Batch, Span};
use crate::limits::{BATCH_LOGIT_ROWS_MAX, KV_BLOCK_TOKENS};
use crate::runner::{Runner, RunnerError, RunnerFacts};
use std::time::{Duration, Instant};

#[derive(Debug, Clone)]
pub struct ScriptedOptions {
    pub vocab: usize,
    pub context: usize, // tokens
    pub kv_blocks: usize,
    pub script: Script,
    pub rate: Option<f64>, // forward passes a second; none: as fast as possible
    pub fault: Option<Fault>,
}

#[derive(Debug, Clone)]
pub enum Script {
    /// Logits between 0 and 8 that depend on the whole history, for greedy and for random sampling.
    Noise,
    /// The token at position `p` is number `p` of these, round and round.
    Cycle(Vec<u32>),
    /// Where a history ends with a cue and a part of its answer, the answer goes on; after it, and where no
    /// cue is found, comes `end`.
    Lines { lines: Vec<Line>, end: u32 },
}

#[derive(Debug, Clone)]
pub struct Line {
    pub cue: Vec<u32>,
    pub answer: Vec<u32>,
}

/// What goes wrong, and at which forward pass (counted from 0).
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    pub pass: u64,
    pub kind: FaultKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The pass returns an error.
    Error,
    Panic,
    /// The process dies at once, without a word.
    Abort,
    /// The pass never returns.
    Hang,
    /// The pass, and every one after it, takes this much longer.
    Slow(Duration),
    /// The pass, and every one after it, gives logits that are not numbers.
    NotANumber,
}

pub struct Scripted {
    options: ScriptedOptions,
    kv: Vec<Cell>,     // (kv_blocks, KV_BLOCK_TOKENS)
    logits: Vec<f32>,  // (BATCH_LOGIT_ROWS_MAX, vocab)
    history: Vec<u32>, // scratch: the tokens of one sequence
    passes: u64,
    period: Option<Duration>, // of one pass
    due: Option<Instant>,     // when the last pass was due
}

/// One token's place in the KV.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    token: u32,
    digest: u64, // of all tokens up to this one
}

impl Scripted {
    pub fn new(options: ScriptedOptions) -> Result<Scripted, RunnerError> {
        options.script.check(options.vocab)?;
        let period = options.rate.map(|rate| Duration::try_from_secs_f64(1.0 / rate)).transpose();
        Ok(Scripted {
            period: period.map_err(|error| RunnerError(format!("the scripted rate is no rate: {error}")))?,
            kv: vec![Cell::default(); options.kv_blocks * KV_BLOCK_TOKENS],
            logits: vec![0.0; BATCH_LOGIT_ROWS_MAX * options.vocab],
            history: Vec::with_capacity(options.context),
            passes: 0,
            due: None,
            options,
        })
    }

    fn cell(&mut self, blocks: &[u32], position: usize) -> &mut Cell {
        let block = blocks[position / KV_BLOCK_TOKENS] as usize;
        &mut self.kv[block * KV_BLOCK_TOKENS + position % KV_BLOCK_TOKENS]
    }

    fn write(&mut self, batch: &Batch, span: &Span) {
        let blocks = &batch.blocks[span.blocks.clone()];
        let mut digest = match span.position.checked_sub(1) {
            Some(before) => self.cell(blocks, before).digest,
            None => 0,
        };
        for (position, row) in (span.position..).zip(span.rows.clone()) {
            let token = batch.tokens[row];
            digest = mix(digest ^ u64::from(token));
            *self.cell(blocks, position) = Cell { token, digest };
        }
    }

    fn speak(&mut self, index: usize, batch: &Batch, span: &Span, row: usize) {
        let blocks = &batch.blocks[span.blocks.clone()];
        let position = span.position + row - span.rows.start;
        let digest = self.cell(blocks, position).digest;
        if matches!(self.options.script, Script::Lines { .. }) {
            self.read_history(blocks, position);
        }
        let vocab = self.options.vocab;
        let logits = &mut self.logits[index * vocab..][..vocab];
        let chosen = match &self.options.script {
            Script::Noise => return noise(logits, digest),
            Script::Cycle(tokens) => tokens[(position + 1) % tokens.len()],
            Script::Lines { lines, end } => next_of_lines(lines, &self.history).unwrap_or(*end),
        };
        logits.fill(0.0);
        logits[chosen as usize] = 20.0;
    }

    fn read_history(&mut self, blocks: &[u32], last: usize) {
        self.history.clear();
        for position in 0..=last {
            let token = self.cell(blocks, position).token;
            self.history.push(token);
        }
    }

    /// Fails before a pass, as the options say.
    fn fail(&self) -> Result<(), RunnerError> {
        let Some(fault) = self.options.fault else { return Ok(()) };
        match fault.kind {
            FaultKind::Slow(extra) if self.passes >= fault.pass => std::thread::sleep(extra),
            _ if self.passes != fault.pass => {}
            FaultKind::Error => return Err(RunnerError(format!("scripted error at pass {}", fault.pass))),
            FaultKind::Panic => panic!("scripted panic at pass {}", fault.pass),
            FaultKind::Abort => std::process::abort(),
            FaultKind::Hang => loop {
                std::thread::park();
            },
            FaultKind::Slow(_) | FaultKind::NotANumber => {}
        }
        Ok(())
    }

    fn spoil(&mut self) {
        let fault = self.options.fault.filter(|fault| fault.kind == FaultKind::NotANumber);
        if fault.is_some_and(|fault| self.passes >= fault.pass) {
            self.logits.fill(f32::NAN);
        }
    }

    /// Waits until the rate allows the pass to be over.
    fn pace(&mut self) {
        let Some(period) = self.period else { return };
        let now = Instant::now();
        let due = self.due.map_or(now, |due| due + period).max(now);
        std::thread::sleep(due - now);
        self.due = Some(due);
    }
}

impl Script {
    /// Everything that it may play has to be in the vocabulary.
    fn check(&self, vocab: usize) -> Result<(), RunnerError> {
        let played = |tokens: &[u32]| tokens.iter().all(|&token| (token as usize) < vocab);
        let good = match self {
            Script::Noise => vocab > 0,
            Script::Cycle(tokens) => !tokens.is_empty() && played(tokens),
            Script::Lines { lines, end } => played(&[*end]) && lines.iter().all(|line| played(&line.answer)),
        };
        let bad = || RunnerError(format!("the script is empty or plays a token beyond {vocab}"));
        good.then_some(()).ok_or_else(bad)
    }
}

impl Runner for Scripted {
    fn facts(&self) -> RunnerFacts {
        let ScriptedOptions { vocab, context, kv_blocks, .. } = self.options;
        RunnerFacts { vocab, context, kv_blocks }
    }

    fn forward(&mut self, batch: &Batch) -> Result<(), RunnerError> {
        self.fail()?;
        batch.spans.iter().for_each(|span| self.write(batch, span));
        for (index, &row) in batch.logit_rows.iter().enumerate() {
            let row = row as usize;
            let span = batch.spans.iter().find(|span| span.rows.contains(&row));
            let Some(span) = span else { return Err(RunnerError(format!("row {row} is in no span"))) };
            self.speak(index, batch, span, row);
        }
        self.spoil();
        self.passes += 1;
        self.pace();
        Ok(())
    }

    fn logits(&mut self, index: usize) -> &mut [f32] {
        let vocab = self.options.vocab;
        &mut self.logits[index * vocab..][..vocab]
    }

    fn copy_block(&mut self, from: u32, to: u32) {
        let from = from as usize * KV_BLOCK_TOKENS;
        self.kv.copy_within(from..from + KV_BLOCK_TOKENS, to as usize * KV_BLOCK_TOKENS);
    }
}

fn noise(logits: &mut [f32], digest: u64) {
    for (logit, token) in logits.iter_mut().zip(0u64..) {
        *logit = (mix(digest.wrapping_add(token)) >> 40) as f32 / (1u64 << 21) as f32;
    }
}

/// The next token of the line of which the history's end shows the longest part.
fn next_of_lines(lines: &[Line], history: &[u32]) -> Option<u32> {
    let shown = |line: &Line, said: usize| {
        let before = history.strip_suffix(&line.answer[..said]);
        before.is_some_and(|before| before.ends_with(&line.cue))
    };
    let places = lines.iter().flat_map(|line| (0..line.answer.len()).map(move |said| (line, said)));
    let places = places.filter(|(line, said)| shown(line, *said));
    places.max_by_key(|(line, said)| line.cue.len() + said).map(|(line, said)| line.answer[said])
}

fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
