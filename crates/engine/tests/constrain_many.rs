//! Three hundred schemas of growing size: how soon each is ready, and what a real model writes under them.

mod common;
mod schema;

use common::{generate, model_path, request, tokens_of};
use flint_engine::constrain::{Compiler, Constraint};
use flint_engine::device::cpu::{Cpu, default_threads};
use flint_engine::device::scripted::{Script, Scripted, ScriptedOptions};
use flint_engine::draft::Pace;
use flint_engine::load::ModelFile;
use flint_engine::message::{Base, Command, Event, Generate, SequenceId, Stats};
use flint_engine::model::Loaded;
use flint_engine::step::{Engine, Progress};
use flint_open::{ModelText, vocabulary};
use flint_text::Tokenizer;
use schema::{fits, grown};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SCHEMAS: usize = 300;

/// Those of them that a real model writes for.
const REAL_SCHEMAS: usize = 12;

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

/// An answer, as it came: of the tokens of one forward pass all but the last were guessed right.
struct Answer {
    number: usize,
    passes: Vec<Vec<u32>>,
}

/// The events of each forward pass, until nothing runs.
fn passes(engine: &mut Engine) -> Vec<Vec<Event>> {
    let mut passes = vec![Vec::new()];
    while engine.step(passes.last_mut().unwrap()).unwrap() == Progress::Stepped {
        passes.push(Vec::new());
    }
    passes
}

/// What an engine writes under schemas, some at a time; each answer must fit.
fn write_all(engine: &mut Engine, tokenizer: &Tokenizer, numbers: &[usize]) -> Vec<Answer> {
    let (mut answers, mut prompt) = (Vec::new(), Vec::new());
    tokenizer.encode_text("Here is the configuration as JSON:\n", &mut prompt).unwrap();
    for some in numbers.chunks(ABREAST) {
        for &number in some {
            let constraint = Some(Constraint::json_schema(&grown(number)));
            let stop_tokens = tokenizer.eos_ids().to_vec();
            let like = request(number as u64, Base::New, &prompt, 1800);
            generate(engine, Generate { constraint, stop_tokens, speculate: true, ..like });
        }
        let passes = passes(engine);
        for &number in some {
            let of_pass = |pass: &Vec<Event>| tokens_of(pass, number as u64);
            let answer = Answer { number, passes: passes.iter().map(of_pass).collect() };
            let (text, schema) = (tokenizer.decode(&answer.passes.concat()), grown(number));
            let value: Value = serde_json::from_str(&text)
                .unwrap_or_else(|error| panic!("schema {number}: {error}: {text}"));
            assert!(fits(&schema, &schema, &value), "schema {number}: {text}");
            answers.push(answer);
            engine.command(&Command::Release { sequence: SequenceId(number as u64) }, &mut Vec::new());
        }
    }
    answers
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
    println!("{} tokens", written.iter().map(|answer| answer.passes.concat().len()).sum::<usize>());
}

/// Tokens, and what became of those that the grammar forced where they stand.
#[derive(Debug, Default)]
struct Tally {
    tokens: usize,
    forced: usize,
    own: usize,  // forced, and the last of their pass: they were not guessed
    late: usize, // of these, such as could have been: no free token of their pass stands before them
}

impl Tally {
    fn add(&mut self, compiler: &mut Compiler, answer: &Answer) {
        let mut guide = compiler.begin(&Constraint::json_schema(&grown(answer.number)), 0);
        guide.wait(Duration::from_secs(20));
        let mut before = Vec::new();
        for pass in &answer.passes {
            let mut all_forced = true;
            for (place, &token) in pass.iter().enumerate() {
                guide.advance(&before).unwrap();
                let is_forced = guide.forced(&before).first() == Some(&token);
                let is_own = is_forced && place + 1 == pass.len();
                self.tokens += 1;
                self.forced += usize::from(is_forced);
                self.own += usize::from(is_own);
                self.late += usize::from(is_own && all_forced);
                all_forced &= is_forced;
                before.push(token);
            }
        }
    }
}

/// How many guesses pay is a matter of the machine: all are tried, and then those that pay.
#[test]
fn forced_tokens_come_together() {
    let (file, tokenizer) = open("smollm2-135m");
    let pieces = || {
        let pieces = vocabulary(&tokenizer);
        Box::new(move || Ok(pieces))
    };
    let mut compiler = Compiler::new(pieces(), tokenizer.vocab_size());
    let runner = Loaded::new(&file, Cpu::new(default_threads()).unwrap(), 512, &mut |_, _| ()).unwrap();
    let mut engine = Engine::new(Box::new(runner)).with_vocabulary(pieces());
    let numbers: Vec<usize> = (0..SCHEMAS).step_by(SCHEMAS / REAL_SCHEMAS).collect();
    // Most that were not guessed stand behind a free token that was, before which nobody knew of them; the others behind
    // a text that the model has cut into other tokens.
    for (what, pace, own_max, late_max) in
        [("flat", Pace::Flat, 0.06, 0.02), ("measured", Pace::default(), 0.9, 0.9)]
    {
        engine = engine.with_pace(pace);
        let mut tally = Tally::default();
        for answer in write_all(&mut engine, &tokenizer, &numbers) {
            tally.add(&mut compiler, &answer);
        }
        let Stats { rows_drafted, rows_accepted, steps, .. } = engine.stats();
        println!("{what}: {tally:?}; so far {rows_accepted} of {rows_drafted} guesses right, {steps} steps");
        let share = |tokens: usize| tokens as f64 / tally.forced as f64;
        assert!(tally.forced * 3 > tally.tokens, "{tally:?}");
        assert!(share(tally.own) <= own_max && share(tally.late) <= late_max, "{what}: {tally:?}");
    }
}
