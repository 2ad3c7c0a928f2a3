//! Constraints that are checked before a model is asked: large ones are taken, hostile ones cost little.

mod common;
mod schema;

use flint_engine::constrain::{BadConstraint, Constraint, check};
use flint_engine::limits::CONSTRAINT_CHECK_MS_MAX;
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

fn properties(count: usize, schema: &Value) -> Map<String, Value> {
    (0..count).map(|i| (format!("property_{i}"), schema.clone())).collect()
}

fn object(properties: Map<String, Value>) -> Value {
    json!({ "type": "object", "properties": properties })
}

/// Schemas within one another.
fn nested(depth: usize, around: impl Fn(Value) -> Value) -> Value {
    (0..depth).fold(json!({ "type": "string" }), |inner, _| around(inner))
}

fn chain(count: usize, link: impl Fn(Value) -> Value) -> Value {
    let next = |i: usize| link(json!({ "$ref": format!("#/$defs/d{}", i + 1) }));
    let mut links: Map<String, Value> = (0..count).map(|i| (format!("d{i}"), next(i))).collect();
    links.insert(format!("d{count}"), json!({ "type": "string" }));
    json!({ "$ref": "#/$defs/d0", "$defs": links })
}

/// Ends in time, and says whether it was taken.
fn in_time(constraint: &Constraint) -> bool {
    let begun = Instant::now();
    let outcome = check(constraint);
    let limit = Duration::from_millis(CONSTRAINT_CHECK_MS_MAX) + Duration::from_secs(2);
    assert!(begun.elapsed() < limit, "{:?} for {:.100}", begun.elapsed(), constraint.grammar());
    if let Err(bad) = &outcome {
        let words = bad.to_string();
        assert!(words.len() < 3000 && !words.chars().any(char::is_control), "{words:?}");
    }
    outcome.is_ok()
}

fn taken(schema: &Value) -> bool {
    in_time(&Constraint::json_schema(schema))
}

#[test]
fn every_schema_of_the_tests_is_taken() {
    for schema in schema::schemas() {
        check(&Constraint::json_schema(&schema)).unwrap_or_else(|bad| panic!("{schema}: {bad}"));
    }
}

#[test]
fn large_schemas_are_taken() {
    let described = json!({ "type": "string", "description": "what it is for, in some words" });
    let large = object(properties(5000, &described));
    assert!(large.to_string().len() > 300_000);
    check(&Constraint::json_schema(&large)).unwrap();
    let tool = |i: usize| {
        json!({ "type": "object", "additionalProperties": false, "required": ["name", "arguments"], "properties": {
            "name": { "const": format!("tool_{i}") }, "arguments": object(properties(20, &described)) } })
    };
    let tools: Vec<Value> = (0..200).map(tool).collect();
    let tools = json!({ "anyOf": tools });
    assert!(tools.to_string().len() > 300_000);
    check(&Constraint::json_schema(&tools)).unwrap();
    let choices: Vec<String> = (0..20_000).map(|i| format!("choice {}", i * 7919)).collect();
    check(&Constraint::json_schema(&json!({ "enum": choices }))).unwrap();
}

#[test]
fn schemas_of_growing_size_end_in_time() {
    for step in 1..=25 {
        let n = step * step;
        let string = json!({ "type": "string" });
        assert!(taken(&object(properties(n, &string))));
        assert!(taken(&json!({ "enum": (0..n).map(|i| format!("{i}")).collect::<Vec<_>>() })));
        assert!(taken(
            &json!({ "anyOf": (0..n).map(|i| json!({ "const": { "k": i } })).collect::<Vec<_>>() })
        ));
        assert!(taken(&chain(n, |next| json!({ "type": "object", "properties": { "x": next } }))));
        taken(&nested(n, |inner| json!({ "type": "object", "properties": { "a": inner } })));
        taken(&nested(n, |inner| json!({ "anyOf": [inner, { "type": "null" }] })));
        taken(
            &json!({ "allOf": (0..n).map(|i| json!({ "pattern": format!("a.{{{i}}}b") })).collect::<Vec<_>>() }),
        );
        taken(&json!({ "type": "string", "pattern": format!("{}{}", "a?".repeat(n), "a".repeat(n)) }));
    }
}

#[test]
fn hostile_schemas_end_in_time() {
    let patterns =
        ["^(a+)+$", "^((a{100}){100}){100}$", "(.*a.{30}){5}", "a{4294967295}", "((((", "^.{0,100000}$"];
    for pattern in patterns {
        taken(&json!({ "type": "string", "pattern": pattern }));
    }
    let pattern_properties = |count: usize| {
        let all = (0..count).map(|i| (format!("^p{i}_.*x.{{20}}y$"), json!({}))).collect::<Map<_, _>>();
        json!({ "type": "object", "patternProperties": all })
    };
    assert!(taken(&pattern_properties(20)));
    assert!(!taken(&pattern_properties(5000)));
    assert!(!taken(&chain(20_000, |next| next)));
    assert!(taken(&json!({ "$ref": "#" })));
    taken(
        &json!({ "$defs": { "a": { "allOf": [{ "$ref": "#/$defs/a" }, { "$ref": "#/$defs/a" }] } }, "$ref": "#/$defs/a" }),
    );
    taken(&json!({ "type": "number", "multipleOf": 123_456_789.0 }));
    taken(&json!({ "type": "number", "multipleOf": 1e-300 }));
    taken(
        &json!({ "type": "array", "minItems": 1_000_000, "items": { "type": "array", "maxItems": u64::MAX } }),
    );
    taken(&json!({ "type": "string", "minLength": u64::MAX }));
    taken(&json!({ "type": "string", "minLength": "é".repeat(200) }));
    taken(&json!({ "const": "x".repeat(900_000) }));
    [json!(3), json!([]), json!("x"), json!(null), json!(false)]
        .iter()
        .for_each(|s| assert!(!taken(s), "{s}"));
}

#[test]
fn hostile_grammars_end_in_time() {
    let many =
        |part: fn(usize) -> String, between: &str| (0..2000).map(part).collect::<Vec<_>>().join(between);
    let grammars = [
        String::from("\u{0}%%%"),
        String::from("start: start start | \"a\" |"),
        String::from("start: start"),
        String::from("start: ((((\"a\" \"b\"){1000}){1000}){1000}){1000}"),
        String::from("start: <[0-4294967295]>"),
        String::from("start: %json"),
        String::from("start: %json {"),
        format!("start: {}\"a\"", "(".repeat(100_000)),
        format!("start: /{}/", "(".repeat(100_000)),
        "start: %lark { start: ".repeat(10_000),
        format!("start: {}", many(|i| format!("\"w{i}\""), " | ")),
        format!("start: T\nT: {}", many(|i| format!("/.*a.{{{i}}}b.*/"), " & ")),
        format!("start: /{}/", "[abc]?(x|y)*".repeat(2000)),
    ];
    for grammar in grammars {
        in_time(&Constraint::lark(grammar));
    }
}

#[test]
fn a_refusal_says_what_and_where() {
    let words = |schema: Value| check(&Constraint::json_schema(&schema)).unwrap_err().to_string();
    let inside = |schema: Value| words(json!({ "type": "object", "properties": { "when": schema } }));
    let expected = [
        (
            inside(json!({ "not": { "type": "null" } })),
            "Unimplemented keys: [\"not\"], at /properties/when/not",
        ),
        (
            inside(json!({ "type": "string", "format": "moon" })),
            "Unknown format: moon, at /properties/when/format",
        ),
        (inside(json!({ "type": "strnig" })), "Invalid type: strnig, at /properties/when/type"),
        (
            inside(json!({ "pattern": "(?=a)" })),
            "look-around, including look-ahead and look-behind, is not supported, at /properties/when/pattern",
        ),
        (inside(json!({ "$ref": "#/$defs/x" })), "not found in '#/$defs/x'., at /properties/when/$ref"),
        (
            words(json!({ "type": "integer", "minimum": 2, "maximum": 1 })),
            "minimum (2) is greater than maximum (1)",
        ),
        (inside(json!({ "multipleOf": 12_345.6 })), "multipleOf has digits above 10000, at /properties/when"),
    ];
    for (found, expected) in expected {
        assert!(
            found.starts_with("the constraint cannot be honoured: ") && found.contains(expected),
            "{found}"
        );
    }
    let lark = |grammar: &str| check(&Constraint::lark(grammar.to_owned())).unwrap_err();
    assert!(lark("start: \"a\" b").to_string().contains('b'), "{}", lark("start: \"a\" b"));
    assert_eq!(lark(""), BadConstraint::Empty);
}

#[test]
fn tokens_are_taken_on_trust() {
    let grammar = "start: TEXT (<[151657]> %json {\"type\": \"object\"} <tool_end>)?\nTEXT: /(.|\\n)*/";
    check(&Constraint::lark(grammar.to_owned())).unwrap();
}
