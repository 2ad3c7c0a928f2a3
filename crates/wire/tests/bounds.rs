//! Every numeric field has bounds: both ends are taken, and what lies beyond them is refused by name.

use flint_wire::chat::ChatRequest;
use flint_wire::completion::CompletionRequest;
use flint_wire::{ApiError, Request};
use serde_json::{Value, json};

/// A field, its bounds, and whether only whole numbers are numbers.
struct Row(&'static str, f64, f64, bool);

const COMMON: [Row; 7] = [
    Row("temperature", 0.0, 2.0, false),
    Row("top_p", 0.0, 1.0, false),
    Row("top_k", 0.0, 1e6, true),
    Row("min_p", 0.0, 1.0, false),
    Row("repetition_penalty", 0.1, 10.0, false),
    Row("presence_penalty", -2.0, 2.0, false),
    Row("frequency_penalty", -2.0, 2.0, false),
];

fn number(value: f64, whole: bool) -> Value {
    if whole { json!(value as i64) } else { json!(value) }
}

/// The published document says the same.
fn documented(request: &str, rows: &[Row]) {
    let document: Value = serde_json::from_str(flint_wire::OPENAPI).unwrap();
    for Row(field, low, high, _) in rows {
        let schema = &document["components"]["schemas"][request]["properties"][*field];
        let bounds = (schema["minimum"].as_f64(), schema["maximum"].as_f64());
        assert_eq!(bounds, (Some(*low), Some(*high)), "{request}.{field}: {schema}");
    }
}

fn check(base: &Value, rows: &[Row], parse: impl Fn(&Value) -> Result<(), ApiError>) {
    let with = |field: &str, value: Value| {
        let mut body = base.clone();
        body[field] = value;
        parse(&body)
    };
    for Row(field, low, high, whole) in rows {
        let step = if *whole { 1.0 } else { 0.001 };
        for good in [*low, *high] {
            assert_eq!(with(field, number(good, *whole)), Ok(()), "{field} = {good}");
        }
        let wrong_numbers = [low - step, high + step, 1e300, -1e300].map(|bad| match *whole {
            true if bad.abs() < 1e18 => number(bad, true),
            _ => json!(bad),
        });
        let wrong_types = [json!("1"), json!(true), json!([1]), json!({"a": 1})];
        for bad in wrong_numbers.into_iter().chain(wrong_types) {
            let error = with(field, bad.clone()).expect_err(&format!("{field} = {bad}"));
            assert_eq!(
                (error.status, error.param.as_deref()),
                (400, Some(*field)),
                "{field} = {bad}: {error}"
            );
        }
        if *whole {
            assert!(with(field, json!(1.5)).is_err(), "{field} = 1.5");
        }
        assert_eq!(with(field, Value::Null), Ok(()), "{field} = null");
    }
}

#[test]
fn responses() {
    let parse = |body: &Value| Request::parse(body).map(drop);
    let base = json!({"input": "hi"});
    check(&base, &COMMON, parse);
    let own = [Row("max_output_tokens", 1.0, 1e7, true), Row("top_logprobs", 0.0, 20.0, true)];
    check(&base, &own, parse);
    documented("ResponseRequest", &COMMON);
    documented("ResponseRequest", &own);
}

#[test]
fn chat() {
    let parse = |body: &Value| ChatRequest::parse(body).map(drop);
    let base = json!({"messages": [{"role": "user", "content": "hi"}], "logprobs": true});
    check(&base, &COMMON, parse);
    let own = [
        Row("max_tokens", 1.0, 1e7, true),
        Row("max_completion_tokens", 1.0, 1e7, true),
        Row("top_logprobs", 0.0, 20.0, true),
        Row("n", 1.0, 1.0, true),
    ];
    check(&base, &own, parse);
    documented("ChatRequest", &COMMON);
    documented("ChatRequest", &own);
}

#[test]
fn completions() {
    let parse = |body: &Value| CompletionRequest::parse(body).map(drop);
    let base = json!({"prompt": "hi"});
    check(&base, &COMMON, parse);
    let own = [Row("max_tokens", 1.0, 1e7, true), Row("logprobs", 0.0, 20.0, true), Row("n", 1.0, 1.0, true)];
    check(&base, &own, parse);
    documented("CompletionRequest", &COMMON);
    documented("CompletionRequest", &own);
}

#[test]
fn seeds_and_biases() {
    let parse = |field: &str, value: Value| {
        let mut body = json!({"input": "hi"});
        body[field] = value;
        Request::parse(&body)
    };
    for seed in [i64::MIN, -1, 0, i64::MAX] {
        assert_eq!(parse("seed", json!(seed)).unwrap().sampling.seed, Some(seed));
    }
    assert!(parse("seed", json!(1e30)).is_err());
    assert_eq!(parse("logit_bias", json!({"7": 100, "8": -100})).unwrap().bias, [(7, 100.0), (8, -100.0)]);
    for bad in [json!({"7": 100.1}), json!({"x": 1}), json!({"-1": 1}), json!([1]), json!({"7": "1"})] {
        assert!(parse("logit_bias", bad.clone()).is_err(), "{bad}");
    }
}

/// What the client may send without effect is not named; what is not known, or not done, is.
#[test]
fn ignored_fields_are_named() {
    let ignored = |body: Value| Request::parse(&body).unwrap().ignored;
    assert_eq!(
        ignored(json!({"input": "hi", "user": "u", "client_metadata": {}, "truncation": "disabled",
            "reasoning": {"summary": "none"}})),
        [""; 0]
    );
    let body = json!({"input": "hi", "truncation": "auto", "colour": "red", "text": {"verbosity": "low", "size": 3},
        "reasoning": {"effort": "low", "depth": 1, "summary": "auto", "generate_summary": null}, "include": ["web_search_call.results"]});
    let named = [
        "reasoning.summary",
        "reasoning.depth",
        "text.verbosity",
        "text.size",
        "truncation",
        "include",
        "colour",
    ];
    assert_eq!(ignored(body), named);
}

/// The same of the older forms.
#[test]
fn ignored_fields_of_chat_and_completions_are_named() {
    let chat = |body: Value| ChatRequest::parse(&body).unwrap().request.ignored;
    let messages = json!([{"role": "user", "content": "hi"}]);
    let usual =
        json!({"messages": messages, "user": "u", "store": false, "modalities": ["text"], "verbosity": null});
    assert_eq!(chat(usual), [""; 0]);
    let unusual =
        json!({"messages": messages, "store": true, "modalities": ["text", "audio"], "verbosity": "low"});
    assert_eq!(chat(unusual), ["modalities", "store", "verbosity"]);
    let completion = |body: Value| CompletionRequest::parse(&body).unwrap().request.ignored;
    assert_eq!(completion(json!({"prompt": "hi", "user": "u", "best_of": 1})), [""; 0]);
    assert_eq!(completion(json!({"prompt": "hi", "best_of": 3, "colour": "red"})), ["best_of", "colour"]);
}

#[test]
fn how_long_a_response_waits_for_its_reader_has_bounds() {
    let parse = |seconds: &str, store: bool| {
        let body = json!({"input": "hi", "store": store, "metadata": {"flint.return_seconds": seconds}});
        Request::parse(&body).and_then(|request| request.return_seconds())
    };
    assert_eq!((parse("0", true), parse("60", true)), (Ok(0), Ok(60)));
    for (seconds, store) in [("61", true), ("-1", true), ("1.5", true), ("", true), ("5", false)] {
        let error = parse(seconds, store).expect_err(seconds);
        assert_eq!((error.status, error.param.as_deref()), (400, Some("metadata")), "{seconds}: {error}");
    }
}
