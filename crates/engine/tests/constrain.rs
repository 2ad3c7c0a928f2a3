//! Generations that are held to a grammar.

mod common;
mod golden_data;
mod schema;

use common::{bytes, command, engine, generate, options, request, run, step, tokens_of};
use flint_engine::constrain::{BadConstraint, Constraint, Piece, Vocabulary, json_block};
use flint_engine::device::plain::Plain;
use flint_engine::device::scripted::{Line, Script, Scripted, ScriptedOptions};
use flint_engine::limits::{CONSTRAINT_BYTES_MAX, KV_BLOCK_TOKENS};
use flint_engine::load::ModelFile;
use flint_engine::message::{Base, Command, Event, Failure, FinishReason, Generate, Priority, SequenceId};
use flint_engine::model::Loaded;
use flint_engine::sample::Sampling;
use flint_engine::step::Engine;
use serde_json::{Value, json};

/// Bytes that stand for themselves in no text of the tests.
const STOPS: [u32; 2] = [0, 1];
/// The golden model's only special token.
const CALL: u32 = 303;

/// All bytes, some words that JSON is full of, and a special token: what the golden models' 304 tokens spell.
fn vocabulary() -> Vocabulary {
    let words =
        ["{\"", "\": ", "\": \"", ", \"", "\"}", "}}", "]}", "[1", "00", "true", "null", "\":", "\\\"", "é"];
    let words = words.iter().map(|word| Piece::Text(word.as_bytes().to_vec()));
    let mut pieces: Vec<Piece> = bytes().pieces.into_iter().chain(words).collect();
    pieces.resize(CALL as usize, Piece::Unused);
    pieces.push(Piece::Special("<call>".to_owned()));
    Vocabulary { pieces, cut: None }
}

/// A real architecture with random weights.
fn golden() -> Engine {
    let file = ModelFile::open(&golden_data::root().join("qwen2/folder")).unwrap();
    let runner = Loaded::new(&file, Plain::default(), 8192 / KV_BLOCK_TOKENS, &mut |_, _| ()).unwrap();
    Engine::new(Box::new(runner)).with_vocabulary(Box::new(|| Ok(vocabulary())))
}

fn noise() -> Engine {
    engine(options(Script::Noise))
}

fn constrained(id: u64, constraint: &Constraint, seed: u64) -> Generate {
    let sampling = Sampling { temperature: 1.5, seed, ..Sampling::default() };
    Generate {
        sampling,
        stop_tokens: STOPS.to_vec(),
        constraint: Some(constraint.clone()),
        ..request(id, Base::New, &[1, 2, 3], 400)
    }
}

fn lark(grammar: &str) -> Constraint {
    Constraint::lark(grammar.to_owned())
}

/// The text of tokens, without stop tokens.
fn spell(tokens: &[u32]) -> String {
    let vocabulary = vocabulary();
    let spelled = tokens.iter().filter(|token| !STOPS.contains(token)).flat_map(|&token| {
        match &vocabulary.pieces[token as usize] {
            Piece::Text(bytes) => bytes.clone(),
            Piece::Special(name) => name.clone().into_bytes(),
            Piece::Unused => panic!("token {token} is not used"),
        }
    });
    String::from_utf8(spelled.collect()).expect("text")
}

fn reason(events: &[Event], id: u64) -> FinishReason {
    let reason = events.iter().find_map(|event| match event {
        Event::Finished { sequence, reason, .. } if sequence.0 == id => Some(*reason),
        Event::Failed { sequence, failure } if sequence.0 == id => panic!("{failure}"),
        _ => None,
    });
    reason.expect("an end")
}

fn failure(events: &[Event], id: u64) -> BadConstraint {
    let found = events.iter().find_map(|event| match event {
        Event::Failed { sequence, failure: Failure::Constraint(bad) } if sequence.0 == id => {
            Some(bad.clone())
        }
        _ => None,
    });
    found.unwrap_or_else(|| panic!("{events:?}"))
}

/// What one generation alone says.
fn alone(engine: &mut Engine, request: Generate) -> (String, FinishReason) {
    let id = request.sequence.0;
    let refused = generate(engine, request);
    assert!(refused.is_empty(), "{refused:?}");
    let events = run(engine);
    (spell(&tokens_of(&events, id)), reason(&events, id))
}

#[test]
fn random_weights_under_a_schema_give_values_that_fit_it() {
    const SEEDS: u64 = 4;
    let mut engine = golden();
    let schemas = schema::schemas();
    assert_eq!(schemas.len(), 50);
    let id = |index: usize, seed: u64| index as u64 * SEEDS + seed + 1;
    for (index, schema) in schemas.iter().enumerate() {
        let constraint = Constraint::json_schema(schema);
        (0..SEEDS).for_each(|seed| {
            let refused = generate(&mut engine, constrained(id(index, seed), &constraint, seed));
            assert!(refused.is_empty(), "{refused:?}");
        });
    }
    let events = run(&mut engine);
    for (index, schema) in schemas.iter().enumerate() {
        for seed in 0..SEEDS {
            let id = id(index, seed);
            let text = spell(&tokens_of(&events, id));
            assert_eq!(reason(&events, id), FinishReason::Stop, "{text:?} under {schema}");
            let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{text:?}: {e}"));
            assert!(schema::fits(schema, schema, &value), "{text} does not fit {schema}");
            assert_eq!(text, text.trim(), "white space around the value");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_tokens_in_any_company() {
    let schemas = schema::schemas();
    let constraint = Constraint::json_schema(&schemas[47]);
    let wanted: Vec<_> = (1..=4).map(|id| alone(&mut golden(), constrained(id, &constraint, id))).collect();
    let mut engine = golden();
    for id in 1..=4 {
        generate(&mut engine, constrained(id, &constraint, id));
        generate(&mut engine, constrained(id + 10, &Constraint::json_schema(&schemas[33]), id));
        generate(&mut engine, Generate { constraint: None, ..constrained(id + 20, &constraint, id) });
    }
    let events = run(&mut engine);
    for (id, wanted) in (1..=4).zip(wanted) {
        assert_eq!((spell(&tokens_of(&events, id)), reason(&events, id)), wanted);
    }
}

#[test]
fn a_generation_resumes_within_its_grammar() {
    let constraint = Constraint::json_schema(&schema::schemas()[48]);
    let mut engine = golden();
    generate(&mut engine, constrained(1, &constraint, 5));
    let told = tokens_of(&run(&mut engine), 1);
    assert!(told.len() > 8);
    for resumed in [1, told.len() / 2, told.len() - 1] {
        let whole = [&[1, 2, 3], &told[..resumed]].concat();
        let again = Generate { tokens: whole, resumed: resumed as u32, ..constrained(1, &constraint, 5) };
        let mut engine = golden();
        generate(&mut engine, again);
        let events = run(&mut engine);
        assert_eq!(tokens_of(&events, 1), &told[resumed..]);
        assert_eq!(reason(&events, 1), FinishReason::Stop);
    }
}

#[test]
fn tokens_that_the_grammar_forbids_cannot_be_resumed() {
    let mut engine = noise();
    let bad = Generate { resumed: 1, ..constrained(1, &lark("start: \"yes\""), 1) };
    generate(&mut engine, bad);
    assert!(matches!(failure(&run(&mut engine), 1), BadConstraint::TooComplex(_)));
}

/// A prompt whose KV others have computed is at its end at once, long before its constraint is compiled.
#[test]
fn a_prompt_that_is_known_already_waits_for_its_constraint() {
    let mut engine = noise();
    let prompt: Vec<u32> = (0..4 * KV_BLOCK_TOKENS as u32 + 1).map(|at| 1 + at % 200).collect();
    generate(&mut engine, request(1, Base::New, &prompt, 1));
    run(&mut engine);
    let constraint = lark("start: /[a-z]{20}/");
    let (text, end) = alone(&mut engine, Generate { tokens: prompt, ..constrained(2, &constraint, 1) });
    assert_eq!((text.len(), end), (20, FinishReason::Stop));
}

#[test]
fn a_preempted_generation_goes_on_in_its_grammar() {
    let constraint = lark("start: /[a-z]{300}/");
    let (wanted, _) = alone(&mut noise(), constrained(1, &constraint, 1));
    let mut engine = engine(ScriptedOptions { kv_blocks: 16, ..options(Script::Noise) });
    generate(&mut engine, Generate { priority: Priority::Background, ..constrained(1, &constraint, 1) });
    let mut events = Vec::new();
    while tokens_of(&events, 1).len() < 50 {
        events.extend(step(&mut engine));
    }
    generate(&mut engine, request(2, Base::New, &[1, 2, 3], 400));
    events.extend(run(&mut engine));
    assert!(engine.stats().preemptions > 0);
    assert_eq!((wanted.len(), spell(&tokens_of(&events, 1))), (300, wanted));
}

/// Any stop token ends the generation where the grammar may end; nowhere else, however likely it is.
#[test]
fn stop_tokens_are_allowed_exactly_where_the_grammar_may_end() {
    for stop in STOPS {
        let mut engine = engine(options(Script::Cycle(vec![stop])));
        let (text, end) = alone(&mut engine, constrained(1, &lark("start: \"ab\" /[xy]*/"), 1));
        assert_eq!((text.as_str(), end), ("ab", FinishReason::Stop));
    }
    let mut engine = engine(options(Script::Cycle(vec![120])));
    let request = Generate { max_tokens: 6, ..constrained(1, &lark("start: \"ab\" /[xy]*/"), 1) };
    let (text, end) = alone(&mut engine, request);
    assert_eq!((text.as_str(), end), ("abxxxx", FinishReason::Length));
}

#[test]
fn a_grammar_that_can_only_end_ends_the_generation() {
    let mut engine = noise();
    generate(&mut engine, Generate { max_tokens: 3, ..constrained(1, &lark("start: \"yes\""), 1) });
    let events = run(&mut engine);
    assert_eq!(tokens_of(&events, 1), b"yes".map(u32::from));
    assert_eq!(reason(&events, 1), FinishReason::Stop, "complete, though it had no token to spare");
    let (text, end) = alone(&mut noise(), constrained(1, &lark("start: \"\""), 1));
    assert_eq!((text.as_str(), end), ("", FinishReason::Stop));
}

/// A stop token that the grammar names is its last word, or none.
#[test]
fn a_stop_token_in_the_grammar_does_not_end_it_early() {
    let request = |grammar| Generate { stop_tokens: vec![CALL], ..constrained(1, &lark(grammar), 1) };
    let (text, end) = alone(&mut golden(), request("start: \"a\" <[303]>"));
    assert_eq!((text.as_str(), end), ("a<call>", FinishReason::Stop));
    let mut engine = golden();
    generate(&mut engine, request("start: \"a\" <[303]> \"b\""));
    assert!(matches!(failure(&run(&mut engine), 1), BadConstraint::Refused(_)));
}

#[test]
fn special_tokens_come_from_references_only() {
    let (text, _) = alone(&mut golden(), constrained(1, &lark("start: \"<call>\""), 1));
    assert_eq!(text, "<call>");
    let tokens = |grammar: &str| {
        let mut engine = golden();
        generate(&mut engine, constrained(1, &lark(grammar), 1));
        tokens_of(&run(&mut engine), 1)
    };
    assert!(!tokens("start: \"<call>\"").contains(&CALL));
    assert_eq!(tokens("start: <[303]>"), [CALL]);
    assert_eq!(tokens("start: <call>"), [CALL]);
    (0..20).for_each(|seed| {
        let mut engine = golden();
        generate(
            &mut engine,
            Generate { max_tokens: 60, ..constrained(1, &lark("start: /(.|\\n)*/"), seed) },
        );
        assert!(!tokens_of(&run(&mut engine), 1).contains(&CALL));
    });
}

/// Text of the model's own until it calls a tool, then arguments that fit.
#[test]
fn a_scripted_answer_is_put_right_where_the_grammar_forbids_it() {
    let schema = json!({ "type": "object", "properties": { "n": { "enum": [7] } }, "required": ["n"],
        "additionalProperties": false });
    let grammar = format!("start: TEXT \"!\" args\nTEXT: /[^!]*/\nargs: {}", json_block(&schema));
    let ids = |text: &str| text.bytes().map(u32::from).collect::<Vec<u32>>();
    let line = Line { cue: ids("?"), answer: ids("let me see!{\"n\": 8}") };
    let mut engine = engine(options(Script::Lines { lines: vec![line], end: 0 }));
    let asked = Generate { tokens: ids("well?"), ..constrained(1, &lark(&grammar), 1) };
    let (text, end) = alone(&mut engine, Generate { sampling: Sampling::default(), ..asked });
    assert_eq!((text.as_str(), end), ("let me see!{\"n\": 7}", FinishReason::Stop));
}

#[test]
fn a_steer_begins_the_grammar_anew() {
    let mut engine = noise();
    generate(&mut engine, constrained(1, &lark("start: /[a-f]{40}/"), 1));
    let mut before = Vec::new();
    while tokens_of(&before, 1).len() < 10 {
        before.extend(step(&mut engine));
    }
    let steer = Command::Steer { sequence: SequenceId(1), tokens: vec![65, 66], max_tokens: 100 };
    assert!(matches!(command(&mut engine, steer)[..], [Event::Steered { .. }]));
    let after = run(&mut engine);
    assert_eq!(tokens_of(&after, 1).len(), 40);
    assert_eq!(reason(&after, 1), FinishReason::Stop);
}

/// Log-probabilities are those of the masked distribution: what is forbidden has none.
#[test]
fn log_probabilities_are_of_what_is_allowed() {
    let sampling = Sampling { logprobs: Some(5), ..Sampling::default() };
    let mut engine = noise();
    generate(&mut engine, Generate { sampling, ..constrained(1, &lark("start: \"a\" /[bc]/"), 1) });
    let tops = run(&mut engine).into_iter().filter_map(|event| match event {
        Event::Token { logprob, top, .. } => Some((logprob.unwrap(), top)),
        _ => None,
    });
    let tops: Vec<_> = tops.collect();
    assert_eq!((tops[0].0, tops[0].1.len()), (0.0, 1), "only one token can come first");
    let total: f32 = tops[1].1.iter().map(|entry| entry.logprob.exp()).sum();
    assert!(tops[1].1.len() == 2 && (total - 1.0).abs() < 1e-5, "{:?}", tops[1]);
}

/// The compiler is stuck until the test lets it go; the other generation is done before that.
#[test]
fn nobody_waits_for_another_ones_constraint() {
    let (release, held) = std::sync::mpsc::sync_channel(1);
    let source = Box::new(move || held.recv().map(|()| bytes()).map_err(|error| error.to_string()));
    let runner = Scripted::new(options(Script::Noise)).unwrap();
    let mut engine = Engine::new(Box::new(runner)).with_vocabulary(source);
    generate(&mut engine, constrained(1, &lark("start: \"yes\""), 1));
    generate(&mut engine, request(2, Base::New, &[4, 5, 6], 20));
    let mut events = Vec::new();
    while !events.iter().any(|event| matches!(event, Event::Finished { .. })) {
        events.extend(step(&mut engine));
    }
    assert_eq!((tokens_of(&events, 1).len(), tokens_of(&events, 2).len()), (0, 20));
    step(&mut engine); // there is nothing to do but wait, and that ends too
    generate(&mut engine, constrained(3, &lark("start: \"no\""), 1));
    assert_eq!(command(&mut engine, Command::Cancel { sequence: SequenceId(1) }).len(), 1);
    release.send(()).unwrap();
    assert_eq!(spell(&tokens_of(&run(&mut engine), 3)), "no");
}

#[test]
fn a_bad_constraint_ends_its_own_generation_only() {
    let mut engine = noise();
    let bad = Constraint::json_schema(&json!({ "type": "object", "properties": { "a": { "not": {} } } }));
    generate(&mut engine, constrained(1, &bad, 1));
    generate(&mut engine, constrained(2, &lark("start: \"yes\" | \"no\""), 2));
    let events = run(&mut engine);
    let words = failure(&events, 1).to_string();
    assert!(words.contains("[\"not\"], at /properties/a/not"), "{words}");
    assert!(["yes", "no"].contains(&spell(&tokens_of(&events, 2)).as_str()));
    let again = Generate { base: Base::Extend, constraint: None, ..constrained(1, &bad, 1) };
    assert!(generate(&mut engine, again).is_empty(), "the sequence is there, and well");
}

#[test]
fn what_cannot_be_taken_is_refused_at_once() {
    let refusal =
        |engine: &mut Engine, constraint: &Constraint| match &generate(engine, constrained(1, constraint, 1))
            [..]
        {
            [Event::Refused { failure: Failure::Constraint(bad), .. }] => bad.clone(),
            other => panic!("{other:?}"),
        };
    let large = lark(&" ".repeat(CONSTRAINT_BYTES_MAX + 1));
    assert!(matches!(refusal(&mut noise(), &large), BadConstraint::TooLarge { .. }));
    assert_eq!(refusal(&mut noise(), &lark("")), BadConstraint::Empty);
    let mut bare = Engine::new(Box::new(Scripted::new(options(Script::Noise)).unwrap()));
    assert!(matches!(refusal(&mut bare, &lark("start: \"a\"")), BadConstraint::NoVocabulary(_)));
}
