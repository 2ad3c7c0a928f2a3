//! On real models: greedy and sampled tokens are the same with guesses and without, free and under a grammar.
//!
//! The prompts are made of this repository's own files. Where a piece of one is followed by its own beginning, the
//! model goes on copying and guesses are right, for a while.

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
use flint_text::{Segment, Tokenizer};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PROMPTS: usize = 200;
const PIECE_TOKENS: usize = 48;
const SHOWN_TOKENS: usize = 12;
const ANSWER_TOKENS: u32 = 20;
const GREEDY_ANSWER_TOKENS: u32 = 12;
const QWEN_ANSWER_TOKENS: u32 = 8;

/// Sequences at a time, where they are not alone.
const ABREAST: usize = 4;

/// Enough for the prompts of one test: what they begin with is computed once.
const KV_BLOCKS: usize = 768;

struct Prompt {
    tokens: Vec<u32>,
    references: Vec<Vec<u32>>,
}

impl From<Vec<u32>> for Prompt {
    fn from(tokens: Vec<u32>) -> Prompt {
        Prompt { tokens, references: Vec::new() }
    }
}

fn open(name: &str) -> (Engine, Arc<Tokenizer>) {
    let file = ModelFile::open(&model_path(name)).unwrap();
    let tokenizer = Arc::new(ModelText::read(&file).unwrap().tokenizer);
    let pieces = vocabulary(&tokenizer);
    let device = Cpu::new(default_threads()).unwrap();
    let runner = Loaded::new(&file, device, KV_BLOCKS, &mut |_, _| ()).unwrap();
    (Engine::new(Box::new(runner)).with_vocabulary(Box::new(move || Ok(pieces))), tokenizer)
}

/// All files with this extension in a folder and below, in order.
fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for entry in entries {
        match entry.extension() {
            _ if entry.is_dir() => files(&entry, extension, found),
            Some(found_one) if found_one == extension => found.push(entry),
            _ => {}
        }
    }
}

/// Pieces of files of the workspace, some of each file.
fn pieces(tokenizer: &Tokenizer, (folder, extension): (&str, &str), of_each: usize) -> Vec<Vec<u32>> {
    let mut found = Vec::new();
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder), extension, &mut found);
    let mut pieces = Vec::new();
    for file in found {
        let mut tokens = Vec::new();
        tokenizer.encode_text(&std::fs::read_to_string(file).unwrap(), &mut tokens).unwrap();
        pieces.extend(tokens.chunks_exact(PIECE_TOKENS).step_by(7).take(of_each).map(<[u32]>::to_vec));
        if pieces.len() >= PROMPTS {
            break;
        }
    }
    pieces
}

/// A piece of a file and the beginning of it once more.
fn begun_again(piece: &[u32]) -> Prompt {
    [piece, &piece[..SHOWN_TOKENS]].concat().into()
}

fn prompts(tokenizer: &Tokenizer, count: usize) -> Vec<Prompt> {
    let pieces = pieces(tokenizer, ("crates", "rs"), 3);
    assert!(pieces.len() >= count, "{} pieces", pieces.len());
    pieces[..count].iter().map(|piece| begun_again(piece)).collect()
}

/// What a person asks about a piece of a file.
fn asked(tokenizer: &Tokenizer, piece: &[u32], question: &str) -> Vec<u32> {
    let (control, text) = (|name: &str| Segment::Control(name.to_owned()), Segment::Text);
    let mut tokens = Vec::new();
    let segments = [
        control("<|im_start|>"),
        text(format!("user\n{}\n\n{question}", tokenizer.decode(piece))),
        control("<|im_end|>"),
        text("\n".to_owned()),
        control("<|im_start|>"),
        text("assistant\n".to_owned()),
    ];
    tokenizer.encode_segments(&segments, &mut tokens).unwrap();
    tokens
}

/// By turns code that begins again, prose, a question about prose, and code that is to be changed.
fn mixed(tokenizer: &Tokenizer) -> Vec<Prompt> {
    let (code, prose) = (pieces(tokenizer, ("crates", "rs"), 3), pieces(tokenizer, ("docs", "md"), 50));
    let kinds = code.chunks_exact(2).zip(prose.chunks_exact(2)).flat_map(|(code, prose)| {
        [
            begun_again(&code[0]),
            prose[0].clone().into(),
            asked(tokenizer, &prose[1], "Say this in other words.").into(),
            Prompt {
                tokens: asked(tokenizer, &code[1], "Write this again, without its comments."),
                references: vec![code[1].clone()],
            },
        ]
    });
    let prompts: Vec<Prompt> = kinds.take(PROMPTS).collect();
    assert_eq!(prompts.len(), PROMPTS);
    prompts
}

/// What comes of the requests, so many at a time, and what it took.
fn answers(
    engine: &mut Engine,
    requests: &[Generate],
    abreast: usize,
    speculate: bool,
) -> (Vec<Vec<u32>>, Stats) {
    let before = engine.stats();
    let mut answers = Vec::new();
    for some in requests.chunks(abreast) {
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

fn requests(prompts: Vec<Prompt>, like: &Generate) -> Vec<Generate> {
    let one = |(id, Prompt { tokens, references }): (u64, Prompt)| Generate {
        sequence: SequenceId(id),
        tokens,
        references,
        sampling: Sampling { seed: id, ..like.sampling.clone() },
        ..like.clone()
    };
    (1..).zip(prompts).map(one).collect()
}

/// Requests, so many at a time, and what comes of them without guesses.
struct Plain<'a> {
    requests: &'a [Generate],
    abreast: usize,
    answers: Vec<Vec<u32>>,
    steps: u64,
}

impl<'a> Plain<'a> {
    fn new(engine: &mut Engine, requests: &'a [Generate], abreast: usize) -> Plain<'a> {
        let (answers, Stats { steps, .. }) = answers(engine, requests, abreast, false);
        Plain { requests, abreast, answers, steps }
    }

    /// Checks that the same comes with guesses; returns what was guessed.
    fn check(&self, engine: &mut Engine, what: &str) -> Stats {
        let (guessed, with) = answers(engine, self.requests, self.abreast, true);
        let tokens: usize = self.answers.iter().map(Vec::len).sum();
        let Stats { rows_drafted, rows_accepted, steps, .. } = with;
        println!(
            "{what}, {} at a time: {tokens} tokens, {rows_accepted} of {rows_drafted} guesses, {steps}/{} steps",
            self.abreast, self.steps
        );
        for (index, (guessed, plain)) in guessed.iter().zip(&self.answers).enumerate() {
            assert_eq!(guessed, plain, "{what}: prompt {index}");
        }
        with
    }
}

/// Both ways, and checks that they agree; returns what was guessed.
fn check(engine: &mut Engine, what: &str, requests: &[Generate]) -> Stats {
    Plain::new(engine, requests, ABREAST).check(engine, what)
}

#[test]
fn greedy_tokens_are_the_same() {
    let (engine, tokenizer) = open("smollm2-135m");
    let mut engine = engine.with_pace(Pace::Flat);
    let stop_tokens = tokenizer.eos_ids().to_vec();
    let like = Generate { stop_tokens, ..request(1, Base::New, &[], GREEDY_ANSWER_TOKENS) };
    let requests = requests(mixed(&tokenizer), &like);
    let (alone, abreast) = requests.split_at(PROMPTS / 2);
    let plain = [Plain::new(&mut engine, alone, 1), Plain::new(&mut engine, abreast, ABREAST)];
    for plain in &plain {
        let stats = plain.check(&mut engine, "greedy");
        assert!(stats.rows_accepted > 250 && stats.rows_drafted > stats.rows_accepted + 250, "{stats:?}");
    }
    // How many guesses pay is a matter of the machine; that they change nothing is not.
    let mut engine = engine.with_pace(Pace::default());
    for plain in &plain {
        plain.check(&mut engine, "greedy, at a measured pace");
    }
}

/// A model whose greedy token, where it is the only one, comes of another way through the head.
#[test]
fn greedy_tokens_of_a_screened_head_are_the_same() {
    let (engine, tokenizer) = open("qwen2.5-coder-1.5b");
    let stop_tokens = tokenizer.eos_ids().to_vec();
    let like = Generate { stop_tokens, ..request(1, Base::New, &[], QWEN_ANSWER_TOKENS) };
    // Each piece begins again at six places: it is computed once.
    let begun = |piece: &Vec<u32>| (0..6).map(|at| [piece, &piece[at * 5..][..6]].concat().into()).collect();
    let prompts: Vec<Vec<Prompt>> =
        pieces(&tokenizer, ("crates", "rs"), 1).iter().take(4).map(begun).collect();
    let requests = requests(prompts.into_iter().flatten().collect(), &like);
    let mut engine = engine.with_pace(Pace::Flat);
    let plain = Plain::new(&mut engine, &requests, 1);
    let stats = plain.check(&mut engine, "Qwen, greedy");
    assert!(stats.rows_accepted > 70, "{stats:?}");
    let stats = plain.check(&mut engine.with_pace(Pace::default()), "Qwen, greedy, at a measured pace");
    assert!(stats.rows_accepted > 0, "{stats:?}");
}

#[test]
fn sampled_tokens_are_the_same() {
    let (engine, tokenizer) = open("smollm2-135m");
    let mut engine = engine.with_pace(Pace::Flat);
    let sampling = Sampling { temperature: 0.8, top_p: 0.95, logprobs: Some(2), ..Sampling::default() };
    let like = Generate { sampling, ..request(1, Base::New, &[], ANSWER_TOKENS) };
    let stats = check(&mut engine, "sampled", &requests(prompts(&tokenizer, 40), &like));
    assert!(stats.rows_accepted > 100, "{stats:?}");
    let sampling = Sampling { repetition_penalty: 1.1, frequency_penalty: 0.2, ..Sampling::default() };
    let like = Generate { sampling, ..request(1, Base::New, &[], ANSWER_TOKENS) };
    let stats = check(&mut engine, "with penalties", &requests(prompts(&tokenizer, 40), &like));
    assert!(stats.rows_accepted > 50, "{stats:?}");
}

#[test]
fn constrained_tokens_are_the_same_and_forced_ones_come_together() {
    let (engine, tokenizer) = open("smollm2-135m");
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
        let all = requests(prompts(&tokenizer, 24), &like);
        let stats = check(&mut engine, "constrained", &all);
        assert!(stats.rows_accepted > 24 * 8, "{stats:?}");
    }
}
