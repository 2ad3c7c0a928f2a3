//! `flint bench`: prefill and decode at several depths, beside another engine if asked.

mod beside;
mod edits;
mod fidelity;
mod floor;
mod shape;

use crate::args::{BenchArgs, ModelArgs};
use crate::config::Config;
use crate::device::Chosen;
use crate::error::CliError;
use crate::models;
use crate::peer::{Peer, PeerLogits};
use crate::progress::Spinner;
use crate::worker;
use edits::Edits;
use fidelity::Fidelity;
use flint_engine::device::cpu::default_threads;
use flint_engine::device::{Device, cpu::Cpu};
use flint_engine::forced::{Forced, Told};
use flint_engine::limits::KV_BLOCK_TOKENS;
use flint_engine::load::ModelFile;
use flint_engine::message::{Base, Command, Event, Generate, Priority, SequenceId, Tenant};
use flint_engine::model::Loaded;
use flint_engine::runner::Runner;
use flint_engine::sample::Sampling;
use flint_engine::step::Engine;
use floor::{Floor, Machine};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

/// Tokens decoded in one measurement.
const DECODED: u32 = 64;
/// Tokens of the KV pool, if nobody says how many.
const KV_TOKENS: u32 = 4096 + DECODED + 2 * KV_BLOCK_TOKENS as u32;

/// One kind of measurement: a prompt of so many tokens, and what of it counts.
#[derive(Debug, Clone, Copy)]
struct Kind {
    name: &'static str,
    prompt: usize, // tokens
    decode: bool,  // what counts: decoding after the prompt, or the prompt
}

/// Those for which the KV pool has room.
const KINDS: [Kind; 7] = [
    Kind { name: "prefill_512", prompt: 512, decode: false },
    Kind { name: "prefill_4096", prompt: 4096, decode: false },
    Kind { name: "decode_d0", prompt: 1, decode: true },
    Kind { name: "decode_d512", prompt: 512, decode: true },
    Kind { name: "decode_d4096", prompt: 4096, decode: true },
    Kind { name: "decode_d65536", prompt: 65_536, decode: true },
    Kind { name: "decode_d131000", prompt: 131_000, decode: true },
];

#[derive(Debug, Serialize)]
struct Report {
    model: String,
    file_bytes: u64,
    device: String,
    threads: usize,
    rounds: u32,
    read_gb_per_s: f64,
    int8_gop_per_s: f64,
    peer: Option<String>,
    results: Vec<Measured>,
    edits: Vec<Edits>,
    fidelity: Option<Fidelity>,
}

#[derive(Debug, Serialize)]
struct Measured {
    name: String,
    value: f64, // median
    unit: &'static str,
    peer: Option<f64>,  // median
    ratio: Option<f64>, // value / peer
    floor: Option<f64>, // tok/s that the machine allows
    share: Option<f64>, // of the floor, the median of the rounds
}

pub fn bench(config: &Config, model: &ModelArgs, args: &BenchArgs) -> Result<(), CliError> {
    if let Some(name) = &args.shape {
        return shape::bench(config, model, args, name);
    }
    let (name, path) = models::locate(config, model.model.as_deref())?;
    let threads = model.threads.map_or_else(default_threads, usize::from);
    let spinner = Spinner::new(format!("loading {name}"));
    let pool = ModelArgs { kv_tokens: Some(model.kv_tokens.unwrap_or(KV_TOKENS)), ..model.clone() };
    let bytes = file_bytes(&path);
    let device = Chosen::of(config, model, &path)?;
    device.tell();
    match device {
        Chosen::Cpu { .. } => {
            let loaded = worker::load(&pool, &path, worker::cpu(model)?)?;
            let shape = ModelFile::open(&path)?.config;
            let floor = Floor::of(loaded.device().held(), &shape, Cpu::kv_head_bytes(shape.head_dim));
            let machine = Machine::cpu(threads);
            let job = Job { name, path: Some(path), bytes, threads, machine, spinner };
            run(config, args, loaded, floor, job)
        }
        Chosen::Cuda(_) => {
            let device = worker::cuda(config, model)?;
            let machine = Machine::card(device.read_bandwidth()?);
            let loaded = worker::load(&pool, &path, device)?;
            let floor = Floor::of_file(&ModelFile::open(&path)?);
            let job = Job { name, path: Some(path), bytes, threads, machine, spinner };
            run(config, args, loaded, floor, job)
        }
    }
}

/// What is measured, and on what.
struct Job {
    name: String,
    path: Option<PathBuf>, // none: made up
    bytes: u64,            // of all weights
    threads: usize,
    machine: Machine,
    spinner: Spinner,
}

fn run<D: Device + 'static>(
    config: &Config,
    args: &BenchArgs,
    mut loaded: Loaded<D>,
    floor: Floor,
    job: Job,
) -> Result<(), CliError> {
    let Job { name, path, bytes, threads, mut machine, spinner } = job;
    let wanted = |name: &str| args.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let rows = if wanted("rows_16_d2048") { beside::rows(&mut loaded, args.rounds)? } else { None };
    let fidelity = match &path {
        Some(path) if args.fidelity => {
            let vocab = loaded.facts().vocab;
            let logits = |rows| PeerLogits::start(config, path, threads, rows, vocab);
            Some(fidelity::measure(&mut loaded, path, args.peer.as_ref().map(|_| logits))?)
        }
        _ => None,
    };
    let mut peer = match (&args.peer, &path) {
        (Some(_), Some(path)) => Some(Peer::start(config, path, threads, KV_TOKENS as usize)?),
        _ => None,
    };
    let has_text = path.is_some();
    let mut bench = Bench::new(loaded, path);
    let kinds: Vec<Kind> = KINDS
        .into_iter()
        .filter(|kind| kind.prompt + (DECODED as usize) < bench.context)
        .filter(|kind| wanted(kind.name))
        .collect();
    let mut results =
        bench.measure_all(&kinds, args.rounds, &floor, &mut machine, peer.as_mut(), &spinner)?;
    results.extend(rows);
    if wanted("variants_5") {
        spinner.say("variants".to_owned());
        results.push(bench.variants(args.rounds, 1.0)?);
    }
    if !has_text && wanted("variants_5_greedy") {
        results.push(bench.variants(args.rounds, 0.0)?);
    }
    if wanted("warm_turn") {
        spinner.say("a warm turn".to_owned());
        results.extend(bench.warm_turn(args.rounds)?);
    }
    let edits = match &args.edits {
        Some(path) => bench.edits(&edits::read(path)?, args.rounds)?,
        None => Vec::new(),
    };
    if has_text && ["json_masked_sampled", "json_forced", "free_guessed"].into_iter().any(wanted) {
        spinner.say("JSON".to_owned());
        results.extend(bench.constrained(args.rounds)?);
    }
    drop(spinner);
    let speeds = machine.speeds();
    let report = Report {
        model: name,
        file_bytes: bytes,
        device: bench.device,
        threads,
        rounds: args.rounds,
        read_gb_per_s: speeds.read / 1e9,
        int8_gop_per_s: speeds.int8 / 1e9,
        peer: args.peer.clone(),
        results,
        edits,
        fidelity,
    };
    if args.json {
        return print_json(&report);
    }
    print_table(&report);
    report.edits.iter().for_each(Edits::print);
    if let Some(fidelity) = &report.fidelity {
        fidelity.print();
    }
    Ok(())
}

fn file_bytes(path: &std::path::Path) -> u64 {
    path.metadata().map_or(0, |metadata| metadata.len())
}

struct Bench {
    engine: Engine,
    told: Told, // what is written instead of the model's own, if anything
    device: String,
    context: usize,
    vocab: usize,
    next: u64, // sequence
}

impl Bench {
    fn new<D: Device + 'static>(loaded: Loaded<D>, path: Option<PathBuf>) -> Bench {
        let device = loaded.device().describe();
        let facts = loaded.facts();
        let context = facts.context.min(facts.kv_blocks * KV_BLOCK_TOKENS);
        let told = Told::default();
        let mut engine = Engine::new(Box::new(Forced::new(loaded, told.clone())));
        if let Some(path) = path {
            let vocabulary = move || worker::vocabulary(&path).map_err(|error| error.to_string());
            engine = engine.with_vocabulary(Box::new(vocabulary));
        }
        Bench { engine, told, device, context, vocab: facts.vocab, next: 0 }
    }

    /// All kinds, round by round, ours and the peer's in turn: noise then falls on both alike.
    fn measure_all(
        &mut self,
        kinds: &[Kind],
        rounds: u32,
        floor: &Floor,
        machine: &mut Machine,
        mut peer: Option<&mut Peer>,
        spinner: &Spinner,
    ) -> Result<Vec<Measured>, CliError> {
        let mut samples: Vec<Samples> = vec![Samples::default(); kinds.len()];
        for round in 0..=rounds {
            for (kind, samples) in kinds.iter().zip(&mut samples) {
                spinner.say(format!("round {round} of {rounds}: {}", kind.name));
                let floor = floor.rate(machine.look(), kind);
                let tokens = self.prompt(kind.prompt, round);
                let own_rate = self.measure(kind, &tokens)?;
                let peer_rate = match &mut peer {
                    Some(peer) => Some(peer_rate(peer, kind, &tokens)?),
                    None => None,
                };
                // The first round warms caches and page tables.
                if round > 0 {
                    samples.own.push(own_rate);
                    samples.peer.extend(peer_rate);
                    samples.floor.extend(floor);
                }
            }
        }
        Ok(kinds.iter().zip(samples).map(|(kind, samples)| samples.measured(kind)).collect())
    }

    /// Tokens that nobody has seen before: neither engine can have them cached.
    fn prompt(&self, len: usize, round: u32) -> Vec<u32> {
        let mut state = 0x9e37_79b9 ^ round ^ (len as u32) << 8;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize
        };
        (0..len).map(|_| (100 + next() % (self.vocab - 1000).max(1)) as u32).collect()
    }

    /// What follows a prompt that is new to the engine.
    fn request(&mut self, tokens: &[u32], max_tokens: u32) -> Generate {
        self.next += 1;
        Generate {
            sequence: SequenceId(self.next),
            base: Base::New,
            tokens: tokens.to_vec(),
            resumed: 0,
            max_tokens,
            stop_tokens: Vec::new(),
            sampling: Sampling::default(),
            constraint: None,
            references: Vec::new(),
            speculate: false,
            priority: Priority::Interactive,
            tenant: Tenant(self.next),
        }
    }

    /// Tokens a second.
    fn measure(&mut self, kind: &Kind, tokens: &[u32]) -> Result<f64, CliError> {
        let request = self.request(tokens, if kind.decode { DECODED + 1 } else { 1 });
        let sequence = request.sequence;
        let mut events = Vec::new();
        let start = Instant::now();
        let mut first = None;
        self.engine.command(&Command::Generate(request), &mut events);
        loop {
            self.engine.step(&mut events).map_err(|error| CliError::Peer(error.to_string()))?;
            for event in events.drain(..) {
                match event {
                    Event::Token { .. } => _ = first.get_or_insert_with(|| start.elapsed()),
                    Event::Failed { failure, .. } => return Err(failure.into()),
                    Event::Finished { .. } => {
                        let whole = start.elapsed();
                        self.engine.command(&Command::Release { sequence }, &mut Vec::new());
                        let first = first.unwrap_or(whole);
                        return Ok(match kind.decode {
                            true => DECODED as f64 / (whole - first).as_secs_f64(),
                            false => tokens.len() as f64 / first.as_secs_f64(),
                        });
                    }
                    _ => {}
                }
            }
        }
    }
}

fn peer_rate(peer: &mut Peer, kind: &Kind, tokens: &[u32]) -> Result<f64, CliError> {
    let times = peer.measure(tokens, if kind.decode { DECODED } else { 0 })?;
    Ok(match kind.decode {
        true => times.decoded as f64 / times.decode_s,
        false => tokens.len() as f64 / times.prefill_s,
    })
}

/// Tokens a second of one kind, round by round.
#[derive(Debug, Clone, Default)]
struct Samples {
    own: Vec<f64>,
    peer: Vec<f64>,
    floor: Vec<f64>, // what the machine allowed just before
}

impl Samples {
    fn measured(self, kind: &Kind) -> Measured {
        let some = |values: Vec<f64>| (!values.is_empty()).then(|| median(values));
        let shares = self.own.iter().zip(&self.floor).map(|(own, floor)| own / floor).collect();
        let (value, peer) = (median(self.own), some(self.peer));
        Measured {
            name: kind.name.into(),
            value,
            unit: "tok/s",
            peer,
            ratio: peer.map(|peer| value / peer),
            floor: some(self.floor),
            share: some(shares),
        }
    }
}

impl Measured {
    fn beside(name: &str, value: f64, unit: &'static str, other: f64) -> Measured {
        let ratio = Some(value / other);
        Measured { name: name.into(), value, unit, peer: Some(other), ratio, floor: None, share: None }
    }
}

/// 0 where there is nothing.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return 0.0 };
    (values[last / 2] + values[values.len() / 2]) / 2.0
}

fn print_json(report: &Report) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(report).map_err(|error| CliError::Peer(error.to_string()))?;
    println!("{text}");
    Ok(())
}

fn print_table(report: &Report) {
    let Report { model, device, read_gb_per_s, int8_gop_per_s, .. } = report;
    let floor = report.results.iter().any(|row| row.floor.is_some());
    let on_cpu = *int8_gop_per_s > 0.0;
    print!("{model} on {device}; memory reads {read_gb_per_s:.0} GB/s");
    println!("{}", if on_cpu { format!(", 8-bit peak {int8_gop_per_s:.0} Gop/s") } else { String::new() });
    let peer = report.peer.as_deref().unwrap_or("");
    println!("{:<19} {:>14} {peer:>14} {:>7} {:>9}", "", "flint", "ratio", "of floor");
    for row in &report.results {
        let value = format!("{:.1} {:<5}", row.value, row.unit);
        let peer = row.peer.map_or(String::new(), |peer| format!("{peer:.1}"));
        let ratio = row.ratio.map_or(String::new(), |ratio| format!("{ratio:.2}x"));
        let share = row.share.map_or(String::new(), |share| format!("{:.0}%", 100.0 * share));
        println!("{:<19} {value:>14} {peer:>14} {ratio:>7} {share:>9}", row.name);
    }
    if floor {
        let or = if on_cpu { ", or multiplying with the weights at the 8-bit peak" } else { "" };
        println!("The floor: reading once the weights and KV that a token needs{or}.");
    }
    println!(
        "Rows in ms stand beside Flint itself: 16 rows and one, five variants and one, a warm turn and its first, JSON and \
         free text a token, free text with guesses allowed and without."
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(vec![]), 0.0);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
