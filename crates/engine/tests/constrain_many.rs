//! Three hundred schemas of growing size: how soon each is ready, and what a real model writes under them.

mod common;
mod schema;

use common::{generate, model_path, request, run, tokens_of};
use flint_engine::constrain::{Compiler, Constraint};
use flint_engine::device::cpu::{Cpu, default_threads};
use flint_engine::device::scripted::{Script, Scripted, ScriptedOptions};
use flint_engine::draft::Pace;
use flint_engine::load::ModelFile;
use flint_engine::message::{Base, Command, Generate, SequenceId, Stats};
use flint_engine::model::Loaded;
use flint_engine::step::Engine;
use flint_open::{ModelText, vocabulary};
use flint_text::Tokenizer;
use schema::{fits, grown};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SCHEMAS: usize = 300;

/// Those of them that a real model writes for.
const REAL_SCHEMAS: usize = 20;

/// Generations at a time.
const ABREAST: usize = 4;

/// Milliseconds from a schema to its first mask, for 99 of 100.
const COMPILE_MS_MAX: f64 = 100.0;

fn open(name: &str) -> (ModelFile, Arc<Tokenizer>) {
    let file = ModelFile::open(&model_path(name)).unwrap();
    let tokenizer = Arc::new(ModelText::read(&file).unwrap().tokenizer);
    (file, tokenizer)
}

#[test]
fn schemas_are_ready_within_100_ms() {
    let (_, tokenizer) = open("qwen2.5-coder-1.5b");
    let (vocabulary, count) = (vocabulary(&tokenizer), tokenizer.vocab_size());
    let mut compiler = Compiler::new(Box::new(move || Ok(vocabulary)), count);
    let mut ready_after_ms = |constraint: &Constraint| {
        let (begun, guide) = (Instant::now(), compiler.begin(constraint, 0));
        while !guide.is_ready() {
            guide.wait(Duration::from_secs(1));
        }
        begun.elapsed().as_secs_f64() * 1e3
    };
    // The first one has the vocabulary read.
    ready_after_ms(&Constraint::json_schema(&Value::Bool(true)));
    let all = (0..SCHEMAS).map(|number| Constraint::json_schema(&grown(number)));
    let mut times: Vec<f64> = all.map(|constraint| ready_after_ms(&constraint)).collect();
    times.sort_by(f64::total_cmp);
    let (median, p99) = (times[SCHEMAS / 2], times[SCHEMAS * 99 / 100]);
    println!("{SCHEMAS} schemas over {count} tokens: median {median:.1} ms, p99 {p99:.1} ms");
    assert!(p99 <= COMPILE_MS_MAX, "{p99:.1} ms");
}

/// What an engine writes under schemas, some at a time; each answer must fit. Returns how many tokens it wrote.
fn write_all(engine: &mut Engine, tokenizer: &Tokenizer, numbers: &[usize]) -> u64 {
    let (mut written, mut prompt) = (0, Vec::new());
    tokenizer.encode_text("Here is the configuration as JSON:\n", &mut prompt).unwrap();
    for some in numbers.chunks(ABREAST) {
        for &number in some {
            let constraint = Some(Constraint::json_schema(&grown(number)));
            let stop_tokens = tokenizer.eos_ids().to_vec();
            let like = request(number as u64, Base::New, &prompt, 1800);
            generate(engine, Generate { constraint, stop_tokens, speculate: true, ..like });
        }
        let events = run(engine);
        for &number in some {
            let tokens = tokens_of(&events, number as u64);
            let (text, schema) = (tokenizer.decode(&tokens), grown(number));
            let value: Value = serde_json::from_str(&text)
                .unwrap_or_else(|error| panic!("schema {number}: {error}: {text}"));
            assert!(fits(&schema, &schema, &value), "schema {number}: {text}");
            written += tokens.len() as u64;
            engine.command(&Command::Release { sequence: SequenceId(number as u64) }, &mut Vec::new());
        }
    }
    written
}

/// A model that would write anything writes what fits.
#[test]
fn every_answer_of_noise_fits() {
    let (file, tokenizer) = open("smollm2-135m");
    let options = ScriptedOptions { vocab: file.config.vocab, ..common::options(Script::Noise) };
    let runner = Scripted::new(ScriptedOptions { kv_blocks: 1024, ..options }).unwrap();
    let pieces = vocabulary(&tokenizer);
    let mut engine = Engine::new(Box::new(runner)).with_vocabulary(Box::new(move || Ok(pieces)));
    let written = write_all(&mut engine, &tokenizer, &(0..SCHEMAS).collect::<Vec<_>>());
    println!("{written} tokens");
}

#[test]
fn forced_tokens_come_together() {
    let (file, tokenizer) = open("smollm2-135m");
    let pieces = vocabulary(&tokenizer);
    let runner = Loaded::new(&file, Cpu::new(default_threads()).unwrap(), 512, &mut |_, _| ()).unwrap();
    let engine = Engine::new(Box::new(runner)).with_vocabulary(Box::new(move || Ok(pieces)));
    // How many guesses pay is a matter of the machine: here all are tried.
    let mut engine = engine.with_pace(Pace::Flat);
    let numbers: Vec<usize> = (0..SCHEMAS).step_by(SCHEMAS / REAL_SCHEMAS).collect();
    let written = write_all(&mut engine, &tokenizer, &numbers);
    let Stats { rows_drafted, rows_accepted, steps, .. } = engine.stats();
    println!("{written} tokens, {rows_accepted} of {rows_drafted} guesses right, {steps} steps");
    assert!(rows_accepted * 4 >= written, "{rows_accepted} of {written} tokens had no pass of their own");
}
