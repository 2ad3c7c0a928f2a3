//! `cargo xtask bench edits`: how much sooner an edited file is written when its tokens are guessed.
//!
//! Each trace runs without guesses and with them, in turn, on the same engine. *Written*: what the model writes
//! itself, greedily. *Told*: the model computes, but the tokens are those of the true new file; so the traces are
//! real edits whatever the model can do.

mod traces;
mod written;

use crate::{Outcome, eval};
use flint_engine::device::cpu::{Cpu, default_threads};
use flint_engine::forced::{Forced, Told};
use flint_engine::limits::KV_BLOCK_TOKENS;
use flint_engine::load::ModelFile;
use flint_engine::message::{Base, Command, Counts, Event, Generate, Priority, SequenceId, Tenant};
use flint_engine::model::Loaded;
use flint_engine::sample::Sampling;
use flint_engine::step::Engine;
use flint_open::ModelText;
use flint_text::chat::{Message, Prompt, Role};
use serde::Serialize;
use std::time::{Duration, Instant};
use traces::Trace;

const USAGE: &str =
    "usage: cargo xtask bench edits [--traces N] [--only TEXT] [--rounds N] [--json] [--record FILE]
       cargo xtask bench edits --tokens TOKENIZER.json [--traces N] [--only TEXT] > FILE";

const CODER: &str = "qwen2.5-coder-1.5b";
const SMALL: &str = "smollm2-135m";

/// Tokens of KV: one sequence, its guesses, and what is left of the one before.
const KV_TOKENS: usize = 8192;
const ANSWER_TOKENS_MAX: u32 = 900;

struct Args {
    traces: usize, // of each source
    rounds: usize, // each trace both ways
    only: String,
    json: bool,
    record: Option<String>, // where the prompts and what was written go, as tokens
    tokens: Option<String>, // a tokenizer: nothing is measured, the traces are written as its tokens
}

#[derive(Serialize)]
struct Report {
    threads: usize,
    groups: Vec<Group>,
}

/// All traces of one kind, together.
#[derive(Serialize)]
struct Group {
    name: String,
    model: &'static str,
    traces: Vec<Measured>,
    tokens: u32,
    plain_tokens_per_s: f64,
    guessed_tokens_per_s: f64,
    ratio: f64,
    drafted: u32,
    accepted: u32,
    plain_passes: u64,
    guessed_passes: u64,
}

/// One trace, both ways; the medians of the rounds.
#[derive(Serialize)]
struct Measured {
    name: String,
    tokens: u32,
    plain_s: f64,
    guessed_s: f64,
    drafted: u32,
    accepted: u32,
    plain_passes: u64,
    guessed_passes: u64,
    #[serde(skip)]
    prompt: Vec<u32>,
    #[serde(skip)]
    answer: Vec<u32>,
}

/// One answer.
struct Answer {
    tokens: Vec<u32>,
    decoding: Duration, // after the first token
    passes: u64,
    counts: Counts,
}

struct Bench {
    engine: Engine,
    text: ModelText,
    told: Told,
    sequences: u64,
}

pub fn run(args: &[String]) -> Outcome {
    let args = parse(args)?;
    if let Some(tokenizer) = &args.tokens {
        return written::write(tokenizer, args.traces, &args.only);
    }
    let mut groups = Vec::new();
    if !args.json {
        print_head();
    }
    for model in [SMALL, CODER] {
        let mut bench = None;
        for (name, told, traces) in kinds(model, args.traces)? {
            let name = format!("{name}, {}", if told { "told" } else { "written" });
            if !format!("{model} {name}").contains(&args.only) {
                continue;
            }
            let bench = match &mut bench {
                Some(bench) => bench,
                none => none.insert(Bench::open(model)?),
            };
            let group = bench.group(model, name, told, &traces, args.rounds)?;
            if !args.json {
                print_group(&group);
            }
            groups.push(group);
        }
    }
    if let Some(path) = &args.record {
        written::record(path, &groups)?;
    }
    let threads = default_threads();
    match args.json {
        true => println!("{}", serde_json::to_string_pretty(&Report { threads, groups })?),
        false => {
            println!("{threads} threads; greedy; told: the model computes, the true new file is written")
        }
    }
    Ok(())
}

fn parse(words: &[String]) -> Outcome<Args> {
    let mut args =
        Args { traces: 6, rounds: 1, only: String::new(), json: false, record: None, tokens: None };
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--traces" => args.traces = words.next().ok_or(USAGE)?.parse()?,
            "--rounds" => args.rounds = words.next().ok_or(USAGE)?.parse()?,
            "--only" => args.only = words.next().ok_or(USAGE)?.to_owned(),
            "--json" => args.json = true,
            "--record" => args.record = Some(words.next().ok_or(USAGE)?.to_owned()),
            "--tokens" => args.tokens = Some(words.next().ok_or(USAGE)?.to_owned()),
            _ => return Err(USAGE.into()),
        }
    }
    Ok(args)
}

/// What a model is measured on: a name, whether it is told what to write, and the traces.
fn kinds(model: &str, count: usize) -> Outcome<Vec<(&'static str, bool, Vec<Trace>)>> {
    let copies = traces::of_history(count)?.into_iter().map(Trace::copied).collect();
    let mut kinds = vec![("verbatim copies", true, copies)];
    if model == CODER {
        kinds.push(("edits of this repository", true, traces::of_history(count)?));
        kinds.push(("edits of HumanEval", true, traces::of_humaneval(count)?));
        kinds.push(("edits of this repository", false, traces::of_history(count)?));
        kinds.push(("edits of HumanEval", false, traces::of_humaneval(count)?));
    }
    Ok(kinds)
}

impl Bench {
    fn open(model: &str) -> Outcome<Bench> {
        let file = ModelFile::open(&eval::model(model)?)?;
        let text = ModelText::read(&file)?;
        let told = Told::default();
        let blocks = KV_TOKENS / KV_BLOCK_TOKENS;
        let runner = Loaded::new(&file, Cpu::new(default_threads())?, blocks, &mut |_, _| ())?;
        let runner = Forced::new(runner, told.clone());
        Ok(Bench { engine: Engine::new(Box::new(runner)), text, told, sequences: 0 })
    }

    fn group(
        &mut self,
        model: &'static str,
        name: String,
        told: bool,
        traces: &[Trace],
        rounds: usize,
    ) -> Outcome<Group> {
        let mut measured = Vec::new();
        for trace in traces {
            eprint!("\r{model} {name}: {} of {} ", measured.len() + 1, traces.len());
            measured.push(self.measure(trace, told, rounds)?);
        }
        eprintln!();
        Ok(Group::new(name, model, measured))
    }

    fn measure(&mut self, trace: &Trace, told: bool, rounds: usize) -> Outcome<Measured> {
        let prompt = self.encode_chat(&trace.prompt())?;
        let stop = *self.text.stop_tokens.first().ok_or("the model has no stop token")?;
        let mut answer = Vec::new();
        self.text.tokenizer.encode_text(&trace.answer(), &mut answer)?;
        answer.push(stop);
        self.told.set(if told { [&prompt[..], &answer].concat() } else { Vec::new() });
        let (mut plain, mut guessed) = (Vec::new(), Vec::new());
        for _ in 0..rounds.max(1) {
            plain.push(self.answer(&prompt, false)?);
            guessed.push(self.answer(&prompt, true)?);
        }
        if plain.iter().chain(&guessed).any(|answer| answer.tokens != plain[0].tokens) {
            return Err(format!("{}: guesses have changed what is written", trace.name).into());
        }
        let seconds = |answers: &[Answer]| {
            super::median(answers.iter().map(|answer| answer.decoding.as_secs_f64()).collect())
        };
        let Counts { drafted, accepted, generated, .. } = guessed[0].counts;
        Ok(Measured {
            name: trace.name.clone(),
            tokens: generated,
            plain_s: seconds(&plain),
            guessed_s: seconds(&guessed),
            drafted,
            accepted,
            plain_passes: plain[0].passes,
            guessed_passes: guessed[0].passes,
            prompt,
            answer: plain.swap_remove(0).tokens,
        })
    }

    fn encode_chat(&self, text: &str) -> Outcome<Vec<u32>> {
        let template = self.text.template.as_ref().ok_or("the model has no chat template")?;
        let messages = vec![Message::new(Role::User, text)];
        let prompt = Prompt { messages, add_generation_prompt: true, ..Prompt::default() };
        let segments = template.render(&prompt, &self.text.tokenizer)?;
        let mut tokens = Vec::new();
        self.text.tokenizer.encode_segments(&segments, &mut tokens)?;
        Ok(tokens)
    }

    fn answer(&mut self, prompt: &[u32], speculate: bool) -> Outcome<Answer> {
        self.sequences += 1;
        let sequence = SequenceId(self.sequences);
        let request = Generate {
            sequence,
            base: Base::New,
            tokens: prompt.to_vec(),
            resumed: 0,
            max_tokens: ANSWER_TOKENS_MAX,
            stop_tokens: self.text.stop_tokens.clone(),
            sampling: Sampling::default(),
            constraint: None,
            references: Vec::new(),
            speculate,
            priority: Priority::Interactive,
            tenant: Tenant::default(),
        };
        let (mut events, mut tokens) = (Vec::new(), Vec::new());
        self.engine.command(&Command::Generate(request), &mut events);
        let mut begun = None;
        loop {
            self.engine.step(&mut events)?;
            for event in std::mem::take(&mut events) {
                match event {
                    Event::Token { token, .. } => {
                        begun.get_or_insert_with(|| (Instant::now(), self.engine.stats().steps));
                        tokens.push(token);
                    }
                    Event::Finished { counts, .. } => {
                        let (start, steps) = begun.ok_or("no token came")?;
                        let decoding = start.elapsed();
                        let passes = self.engine.stats().steps - steps;
                        self.engine.command(&Command::Release { sequence }, &mut Vec::new());
                        return Ok(Answer { tokens, decoding, passes, counts });
                    }
                    Event::Failed { failure, .. } | Event::Refused { failure, .. } => {
                        return Err(failure.into());
                    }
                    _ => {}
                }
            }
        }
    }
}

impl Group {
    fn new(name: String, model: &'static str, traces: Vec<Measured>) -> Group {
        let decoded: u32 = traces.iter().map(|trace| trace.tokens - 1).sum();
        let rate =
            |seconds: fn(&Measured) -> f64| f64::from(decoded) / traces.iter().map(seconds).sum::<f64>();
        let (plain, guessed) = (rate(|trace| trace.plain_s), rate(|trace| trace.guessed_s));
        Group {
            name,
            model,
            tokens: decoded,
            plain_tokens_per_s: plain,
            guessed_tokens_per_s: guessed,
            ratio: guessed / plain,
            drafted: traces.iter().map(|trace| trace.drafted).sum(),
            accepted: traces.iter().map(|trace| trace.accepted).sum(),
            plain_passes: traces.iter().map(|trace| trace.plain_passes).sum(),
            guessed_passes: traces.iter().map(|trace| trace.guessed_passes).sum(),
            traces,
        }
    }
}

fn print_head() {
    let head = ["tokens", "plain/s", "guessed/s", "ratio", "passes", "of", "right", "guesses"];
    let head: Vec<String> = head.iter().map(|word| format!("{word:>9}")).collect();
    println!("{:<52}{}", "", head.join(" "));
}

fn print_group(group: &Group) {
    let Group { tokens, plain_passes, guessed_passes, drafted, accepted, .. } = group;
    println!(
        "{:<52}{tokens:>9} {:>9.1} {:>9.1} {:>8.2}x {guessed_passes:>9} {plain_passes:>9} {accepted:>9} {drafted:>9}",
        format!("{}: {}", group.model, group.name),
        group.plain_tokens_per_s,
        group.guessed_tokens_per_s,
        group.ratio,
    );
    for trace in &group.traces {
        let Measured { name, tokens, plain_s, guessed_s, drafted, accepted, .. } = trace;
        let rate = |seconds: f64| f64::from(tokens - 1) / seconds;
        println!(
            "  {name:<50}{tokens:>9} {:>9.1} {:>9.1} {:>8.2}x {:>9} {:>9} {accepted:>9} {drafted:>9}",
            rate(*plain_s),
            rate(*guessed_s),
            plain_s / guessed_s,
            trace.guessed_passes,
            trace.plain_passes,
        );
    }
}
