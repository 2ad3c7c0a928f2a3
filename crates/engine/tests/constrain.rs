//! Generations that are held to a grammar.

mod common;

use common::{engine, generate, options, request, run, tokens_of};
use flint_engine::constrain::{BadConstraint, Constraint};
use flint_engine::device::scripted::Script;
use flint_engine::message::{Base, Event, Failure, FinishReason, Generate};
use flint_engine::sample::Sampling;
use flint_engine::step::Engine;
use serde_json::{Value, json};

fn constrained(id: u64, constraint: &Constraint, seed: u64) -> Generate {
    let sampling = Sampling { temperature: 1.5, seed, ..Sampling::default() };
    Generate {
        sampling,
        stop_tokens: vec![0, 1],
        constraint: Some(constraint.clone()),
        ..request(id, Base::New, &[1, 2, 3], 400)
    }
}

fn noise() -> Engine {
    engine(options(Script::Noise))
}

/// The text of a generation without its stop token, and how it ended.
fn text(events: &[Event], id: u64) -> (String, FinishReason) {
    let bytes = tokens_of(events, id).into_iter().filter(|&token| token > 1).map(|token| token as u8);
    let reason = events.iter().find_map(|event| match event {
        Event::Finished { sequence, reason, .. } if sequence.0 == id => Some(*reason),
        Event::Failed { sequence, failure } if sequence.0 == id => panic!("{failure}"),
        _ => None,
    });
    (String::from_utf8(bytes.collect()).expect("text"), reason.expect("an end"))
}

#[test]
fn noise_under_a_schema_is_json() {
    let schema = json!({
        "type": "object",
        "properties": { "unit": { "enum": ["C", "F"] }, "days": { "type": "integer", "minimum": 1, "maximum": 14 } },
        "required": ["unit", "days"],
        "additionalProperties": false,
    });
    let constraint = Constraint::json_schema(&schema);
    let mut engine = noise();
    for seed in 1..=20 {
        generate(&mut engine, constrained(seed, &constraint, seed));
    }
    let events = run(&mut engine);
    for seed in 1..=20 {
        let (text, reason) = text(&events, seed);
        assert_eq!(reason, FinishReason::Stop);
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert!(matches!(value["unit"].as_str(), Some("C" | "F")), "{text}");
        assert!((1..=14).contains(&value["days"].as_i64().unwrap()), "{text}");
        assert!(text.ends_with('}'), "{text:?} has more than its value");
    }
}

#[test]
fn a_bad_constraint_ends_its_own_generation_only() {
    let mut engine = noise();
    let bad = Constraint::json_schema(&json!({ "type": "object", "not": {} }));
    generate(&mut engine, constrained(1, &bad, 1));
    generate(&mut engine, constrained(2, &Constraint::lark("start: \"yes\" | \"no\"".into()), 2));
    let events = run(&mut engine);
    let failed = events.iter().find_map(|event| match event {
        Event::Failed { sequence, failure } if sequence.0 == 1 => Some(failure.clone()),
        _ => None,
    });
    let Some(Failure::Constraint(BadConstraint::Refused(words))) = failed else { panic!("{events:?}") };
    assert!(words.contains("not"), "{words}");
    assert!(["yes", "no"].contains(&text(&events, 2).0.as_str()));
}
