//! On a real model: greedy and sampled tokens are the same with guesses and without, free and under a grammar.
//!
//! The prompts are pieces of this repository's own files, each with its own beginning again, so that the model
//! goes on copying and guesses are right, for a while.

mod common;

use common::{generate, model_path, request, run, tokens_of};
use flint_engine::constrain::Constraint;
use flint_engine::device::cpu::{Cpu, default_threads};
use flint_engine::draft::Pace;
use flint_engine::load::ModelFile;
use flint_engine::message::{Base, Command, Generate, SequenceId, Stats};
use flint_engine::model::Loaded;
use flint_engine::sample::Sampling;
use flint_engine::step::Engine;
use flint_open::{ModelText, vocabulary};
use flint_text::Tokenizer;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PROMPTS: usize = 200;
const PIECE_TOKENS: usize = 48;
const SHOWN_TOKENS: usize = 12;
const ANSWER_TOKENS: u32 = 20;

/// Sequences at a time.
const ABREAST: usize = 4;

fn open() -> (Engine, Arc<Tokenizer>) {
    let file = ModelFile::open(&model_path("smollm2-135m")).unwrap();
    let tokenizer = Arc::new(ModelText::read(&file).unwrap().tokenizer);
    let pieces = vocabulary(&tokenizer);
    let device = Cpu::new(default_threads()).unwrap();
    let runner = Loaded::new(&file, device, 128, &mut |_, _| ()).unwrap();
    (Engine::new(Box::new(runner)).with_vocabulary(Box::new(move || Ok(pieces))), tokenizer)
}

/// All Rust files of the workspace, in order.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for entry in entries {
        match entry.extension() {
            _ if entry.is_dir() => sources(&entry, found),
            Some(extension) if extension == "rs" => found.push(entry),
            _ => {}
        }
    }
}

/// A piece of a file and the beginning of it once more.
fn prompts(tokenizer: &Tokenizer, count: usize) -> Vec<Vec<u32>> {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates"), &mut files);
    let mut prompts = Vec::new();
    for file in files {
        let mut tokens = Vec::new();
        tokenizer.encode_text(&std::fs::read_to_string(file).unwrap(), &mut tokens).unwrap();
        let pieces = tokens.chunks_exact(PIECE_TOKENS).step_by(7).take(3);
        prompts.extend(pieces.map(|piece| [piece, &piece[..SHOWN_TOKENS]].concat()));
    }
    assert!(prompts.len() >= count, "{} prompts", prompts.len());
    prompts.truncate(count);
    prompts
}

/// What comes of the requests, some at a time, and what it took.
fn answers(engine: &mut Engine, requests: &[Generate], speculate: bool) -> (Vec<Vec<u32>>, Stats) {
    let before = engine.stats();
    let mut answers = Vec::new();
    for some in requests.chunks(ABREAST) {
        for request in some {
            generate(engine, Generate { speculate, ..request.clone() });
        }
        let events = run(engine);
        for request in some {
            answers.push(tokens_of(&events, request.sequence.0));
            engine.command(&Command::Release { sequence: request.sequence }, &mut Vec::new());
        }
    }
    let after = engine.stats();
    let (rows_drafted, rows_accepted) =
        (after.rows_drafted - before.rows_drafted, after.rows_accepted - before.rows_accepted);
    (answers, Stats { rows_drafted, rows_accepted, steps: after.steps - before.steps, ..after })
}

fn requests(prompts: &[Vec<u32>], like: &Generate) -> Vec<Generate> {
    let one = |(id, prompt): (u64, &Vec<u32>)| Generate {
        sequence: SequenceId(id),
        tokens: prompt.clone(),
        sampling: Sampling { seed: id, ..like.sampling.clone() },
        ..like.clone()
    };
    (1..).zip(prompts).map(one).collect()
}

/// Both ways, and checks that they agree; returns what was guessed.
fn check(engine: &mut Engine, what: &str, requests: &[Generate]) -> Stats {
    let (plain, without) = answers(engine, requests, false);
    let (guessed, with) = answers(engine, requests, true);
    let tokens: usize = plain.iter().map(Vec::len).sum();
    let Stats { rows_drafted, rows_accepted, steps, .. } = with;
    println!(
        "{what}: {tokens} tokens, {rows_accepted} of {rows_drafted} guesses, {steps}/{} steps",
        without.steps
    );
    for (index, (guessed, plain)) in guessed.iter().zip(&plain).enumerate() {
        assert_eq!(guessed, plain, "{what}: prompt {index}");
    }
    with
}

#[test]
fn greedy_tokens_are_the_same() {
    let (engine, tokenizer) = open();
    let mut engine = engine.with_pace(Pace::Flat);
    let like =
        Generate { stop_tokens: tokenizer.eos_ids().to_vec(), ..request(1, Base::New, &[], ANSWER_TOKENS) };
    let stats = check(&mut engine, "greedy", &requests(&prompts(&tokenizer, PROMPTS), &like));
    assert!(stats.rows_accepted > 1000 && stats.rows_drafted > stats.rows_accepted + 1000, "{stats:?}");
    // How many guesses pay is a matter of the machine; that they change nothing is not.
    let mut engine = engine.with_pace(Pace::default());
    check(&mut engine, "greedy, at a measured pace", &requests(&prompts(&tokenizer, 60), &like));
}

#[test]
fn sampled_tokens_are_the_same() {
    let (engine, tokenizer) = open();
    let mut engine = engine.with_pace(Pace::Flat);
    let sampling = Sampling { temperature: 0.8, top_p: 0.95, logprobs: Some(2), ..Sampling::default() };
    let like = Generate { sampling, ..request(1, Base::New, &[], ANSWER_TOKENS) };
    let stats = check(&mut engine, "sampled", &requests(&prompts(&tokenizer, 40), &like));
    assert!(stats.rows_accepted > 100, "{stats:?}");
    let sampling = Sampling { repetition_penalty: 1.1, frequency_penalty: 0.2, ..Sampling::default() };
    let like = Generate { sampling, ..request(1, Base::New, &[], ANSWER_TOKENS) };
    let stats = check(&mut engine, "with penalties", &requests(&prompts(&tokenizer, 40), &like));
    assert!(stats.rows_accepted > 50, "{stats:?}");
}

#[test]
fn constrained_tokens_are_the_same_and_forced_ones_come_together() {
    let (engine, tokenizer) = open();
    let mut engine = engine.with_pace(Pace::Flat);
    let schema = json!({
        "type": "object",
        "properties": {
            "file_name": { "type": "string", "maxLength": 12 },
            "line_number": { "type": "integer", "minimum": 1, "maximum": 9999 },
            "replacement_mode": { "enum": ["insert_before", "replace_whole_line", "delete"] },
        },
        "required": ["file_name", "line_number", "replacement_mode"],
        "additionalProperties": false,
    });
    for temperature in [0.0, 0.7] {
        let sampling = Sampling { temperature, ..Sampling::default() };
        let like = Generate {
            constraint: Some(Constraint::json_schema(&schema)),
            stop_tokens: tokenizer.eos_ids().to_vec(),
            sampling,
            ..request(1, Base::New, &[], 60)
        };
        let all = requests(&prompts(&tokenizer, 24), &like);
        let stats = check(&mut engine, "constrained", &all);
        assert!(stats.rows_accepted > 24 * 8, "{stats:?}");
    }
}
