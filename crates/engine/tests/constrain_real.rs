//! Constraints over the vocabularies of real models.

mod common;
mod schema;

use common::{Random, generate, model_path, request, run, tokens_of};
use flint_engine::constrain::{Compiler, Constraint, Guide, json_block};
use flint_engine::device::cpu::{Cpu, default_threads};
use flint_engine::load::ModelFile;
use flint_engine::message::{Base, Event, FinishReason, Generate};
use flint_engine::model::Loaded;
use flint_engine::step::Engine;
use flint_open::{ModelText, vocabulary};
use flint_text::Tokenizer;
use schema::grown;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So many that one of them is not disturbed.
const MASK_ROUNDS: usize = 20;

/// Microseconds of a mask on average, some five times what they take on two cores of a cloud machine: a fiftieth of a token.
const CALL_MASK_US_MAX: f64 = 250.0;
const GROWN_MASK_US_MAX: f64 = 150.0;

fn open(name: &str) -> ModelFile {
    ModelFile::open(&model_path(name)).unwrap()
}

fn tokenizer(file: &ModelFile) -> Arc<Tokenizer> {
    Arc::new(ModelText::read(file).unwrap().tokenizer)
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let mut tokens = Vec::new();
    tokenizer.encode_text(text, &mut tokens).unwrap();
    tokens
}

/// What an editing tool takes.
fn tool() -> Value {
    let arguments = json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "maxLength": 40 },
            "line": { "type": "integer", "minimum": 1, "maximum": 9999 },
            "mode": { "enum": ["insert", "replace", "delete"] },
            "lines": { "type": "array", "items": { "type": "string", "maxLength": 40 }, "maxItems": 3 },
        },
        "required": ["path", "line", "mode"],
        "additionalProperties": false,
    });
    json!({
        "type": "object",
        "properties": { "name": { "const": "edit" }, "arguments": arguments },
        "required": ["name", "arguments"],
        "additionalProperties": false,
    })
}

/// Free text, and calls between two special tokens.
fn calls(begin: u32, end: u32) -> Constraint {
    let grammar = "start: TEXT (<[BEGIN]> call <[END]> TEXT)*\nTEXT: /(.|\\n)*/\ncall: ";
    let grammar = grammar.replace("BEGIN", &begin.to_string()).replace("END", &end.to_string());
    Constraint::lark(grammar + &json_block(&tool()))
}

/// Before the trigger nothing changes; after it the arguments are valid; after them the text is free again.
#[test]
fn text_is_free_until_a_call_begins() {
    let file = open("smollm2-135m");
    let tokenizer = tokenizer(&file);
    let vocabulary = vocabulary(&tokenizer);
    let device = Cpu::new(default_threads()).unwrap();
    let runner = Loaded::new(&file, device, 64, &mut |_, _| ()).unwrap();
    let mut engine = Engine::new(Box::new(runner)).with_vocabulary(Box::new(move || Ok(vocabulary)));
    let special = |name: &str| tokenizer.control_id(name).unwrap_or_else(|| panic!("no token {name}"));
    let (begin, end) = (special("<repo_name>"), special("<file_sep>"));
    let prompt = encode(&tokenizer, "Here is how to add a line to a file in Rust:\n\n1.");
    let stop_tokens = tokenizer.eos_ids().to_vec();
    let free = Generate { stop_tokens, ..request(1, Base::New, &prompt, 40) };
    generate(&mut engine, free.clone());
    let said = tokens_of(&run(&mut engine), 1);
    assert!(said.len() > 20);

    let constraint = Some(calls(begin, end));
    let held = Generate { constraint: constraint.clone(), ..request(2, Base::New, &prompt, 40) };
    generate(&mut engine, Generate { stop_tokens: free.stop_tokens.clone(), ..held });
    assert_eq!(tokens_of(&run(&mut engine), 2), said, "the same tokens as without a constraint");

    let tokens = [&prompt[..], &said[..20], &[begin]].concat();
    let called = Generate { constraint, resumed: 21, max_tokens: 221, tokens, ..free };
    let called = Generate { sequence: flint_engine::message::SequenceId(3), ..called };
    generate(&mut engine, called);
    let events = run(&mut engine);
    let answer = tokens_of(&events, 3);
    let call = answer.split(|&token| token == end).next().unwrap();
    let text = tokenizer.decode(call);
    println!("the call: {text}");
    let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    assert_eq!(value["name"], "edit");
    let arguments = value["arguments"].as_object().unwrap();
    assert!(arguments["path"].is_string() && (1..=9999).contains(&arguments["line"].as_i64().unwrap()));
    assert!(["insert", "replace", "delete"].contains(&arguments["mode"].as_str().unwrap()));
    let last = events.last().unwrap();
    assert!(
        matches!(last, Event::Finished { reason: FinishReason::Stop | FinishReason::Length, .. }),
        "{last:?}"
    );
}

/// Microseconds of a mask, on average over a text's tokens: the least of a few rounds, since others use the machine too.
fn mask_us(guide: Guide, tokens: &[u32], stops: &[u32]) -> f64 {
    let (mut guide, mut least) = (guide, f64::MAX);
    for _ in 0..MASK_ROUNDS {
        guide = guide.restart(0);
        let mut masks = Vec::new();
        for at in 0..tokens.len() {
            let begun = Instant::now();
            let mask = guide.mask(&tokens[..at], stops).unwrap().expect("it goes on");
            masks.push(begun.elapsed().as_secs_f64() * 1e6);
            assert!(mask.allows(tokens[at]), "token {at} is forbidden");
        }
        let mean = masks.iter().sum::<f64>() / masks.len() as f64;
        masks.sort_by(f64::total_cmp);
        let (median, most) = (masks[masks.len() / 2], masks[masks.len() - 1]);
        println!("{} masks: mean {mean:.0} us, median {median:.0} us, most {most:.0} us", masks.len());
        least = least.min(mean);
    }
    least
}

/// Tokens that a grammar allows, at random, to its end or so many.
fn noise(guide: &mut Guide, stops: &[u32], tokens_max: usize) -> Vec<u32> {
    let (mut random, mut tokens) = (Random(1), Vec::new());
    while tokens.len() < tokens_max {
        let Some(mask) = guide.mask(&tokens, stops).unwrap() else { break };
        let allowed: Vec<u32> =
            (0..32 * mask.words().len() as u32).filter(|&token| mask.allows(token)).collect();
        match allowed[random.below(allowed.len() as u64) as usize] {
            stop if stops.contains(&stop) => break,
            token => tokens.push(token),
        }
    }
    tokens
}

/// What a constraint adds to a token that needs its mask.
#[test]
fn masks_over_a_large_vocabulary_take_microseconds() {
    let tokenizer = tokenizer(&open("qwen2.5-coder-1.5b"));
    let (all, stops) = (vocabulary(&tokenizer), tokenizer.eos_ids());
    let count = all.pieces.len();
    let mut compiler = Compiler::new(Box::new(move || Ok(all)), count);
    let mut ready = |constraint: &Constraint| {
        let guide = compiler.begin(constraint, 0);
        while !guide.is_ready() {
            guide.wait(Duration::from_secs(20));
        }
        guide
    };
    let control = |name| tokenizer.control_id(name).unwrap();
    let (begin, end) = (control("<tool_call>"), control("</tool_call>"));
    let call = "{\"name\": \"edit\", \"arguments\": {\"path\": \"src/main.rs\", \"line\": 42, \"mode\": \"insert\", \
                \"lines\": [\"    println!(\\\"hello\\\");\"]}}";
    let text = |text| encode(&tokenizer, text);
    let tokens =
        [text("I will add the line that you asked for.\n"), vec![begin], text(call), vec![end]].concat();
    let mut guide = ready(&calls(begin, end));
    let mut forced = 0;
    for at in 0..tokens.len() {
        guide.advance(&tokens[..at]).unwrap();
        forced += usize::from(guide.forced(&tokens[..at]).first() == Some(&tokens[at]));
    }
    println!("{count} tokens; {forced} of the call are forced");
    assert!(forced >= 10, "{forced} tokens are forced");
    let mean = mask_us(guide, &tokens, stops);
    assert!(mean < CALL_MASK_US_MAX, "a mask of a call takes {mean:.0} us");

    // Objects within objects, of 25 properties.
    let mut guide = ready(&Constraint::json_schema(&grown(299)));
    let tokens = noise(&mut guide, stops, 400);
    let mean = mask_us(guide, &tokens, stops);
    assert!(mean < GROWN_MASK_US_MAX, "a mask of a large schema takes {mean:.0} us");
}
