//! Parsers of models' answers: any cut says the same, calls are valid, and what is no call is left to the letter.

use super::{cut_text, field};
use flint_text::chat::Tool;
use flint_text::parse::{Event, Format, Options, Parser, Piece};
use flint_text::{Controls, Segment};
use serde_json::{Value, json};
use std::sync::OnceLock;

const HARMONY: [&str; 7] =
    ["<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>"];
const PYTHON_TAG: [&str; 1] = ["<|python_tag|>"];

/// What events say together.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    text: String,
    reasoning: String,
    calls: Vec<(String, String)>, // (name, arguments)
}

/// A digit for the format and its options, the sizes of the parts, then the answer.
pub fn parser(input: &[u8]) {
    let rest = &mut &*input;
    let options = options(field(rest));
    let sizes = field(rest);
    let answer = String::from_utf8_lossy(rest);
    let whole = said(&options, &answer, &[u8::MAX]);
    assert_eq!(said(&options, &answer, sizes), whole, "{:?} cut by {sizes:?}", options.format);
    assert_eq!(said(&options, &answer, &[1]), whole, "{:?} cut everywhere", options.format);
    if options.format != Format::Harmony {
        check_calls(&options, &whole);
        check_text(&options, &whole, &without_controls(&options, &answer));
    }
}

fn options(digit: &[u8]) -> Options {
    let digit = digit.first().map_or(0, |digit| digit.wrapping_sub(b'0'));
    let format = [Format::Tagged, Format::Llama3, Format::Harmony][usize::from(digit) % 3];
    let properties = json!({"properties": {
        "path": {"type": "string"}, "n": {"type": "integer"}, "on": {"type": "boolean"},
        "list": {"type": "array"}, "map": {"type": ["object", "null"]},
    }});
    let tool =
        |name: &str| Tool { name: name.into(), description: String::new(), parameters: properties.clone() };
    let tools = if digit < 6 { vec![tool("read"), tool("é!")] } else { vec![] };
    Options { format, tools: tools.into(), reasoning_open: digit % 6 >= 3 }
}

fn controls(options: &Options) -> &'static Controls {
    static OF_HARMONY: OnceLock<Controls> = OnceLock::new();
    static OF_OTHERS: OnceLock<Controls> = OnceLock::new();
    let made = |literals: &[&str]| Controls::new(literals.iter().map(|literal| literal.to_string()));
    match options.format {
        Format::Harmony => OF_HARMONY.get_or_init(|| made(&HARMONY)),
        Format::Tagged | Format::Llama3 => OF_OTHERS.get_or_init(|| made(&PYTHON_TAG)),
    }
}

fn without_controls(options: &Options, answer: &str) -> String {
    let segments = controls(options).split(answer).into_iter();
    segments.filter_map(|segment| if let Segment::Text(text) = segment { Some(text) } else { None }).collect()
}

/// Pushes the answer with every text of it cut into parts.
fn said(options: &Options, answer: &str, sizes: &[u8]) -> Said {
    let mut parser = Parser::new(options.clone());
    let mut events = Vec::new();
    for segment in controls(options).split(answer) {
        match segment {
            Segment::Control(literal) => parser.push(Piece::Control(&literal), &mut events),
            Segment::Text(text) => {
                cut_text(&text, sizes).iter().for_each(|part| parser.push(Piece::Text(part), &mut events));
            }
        }
    }
    parser.finish(&mut events);
    collect(events)
}

/// Calls begin and end in turn and are counted; arguments come inside them only.
fn collect(events: Vec<Event>) -> Said {
    let mut said = Said::default();
    let mut open = false;
    for event in events {
        match event {
            Event::Text(text) => said.text.push_str(&text),
            Event::Reasoning(text) => said.reasoning.push_str(&text),
            Event::CallStart { index, name } => {
                assert!(!open && index == said.calls.len());
                open = true;
                said.calls.push((name, String::new()));
            }
            Event::CallArguments(text) => {
                assert!(open);
                said.calls.last_mut().expect("an open call").1.push_str(&text);
            }
            Event::CallEnd => assert!(std::mem::take(&mut open)),
        }
    }
    assert!(!open, "a call without an end");
    said
}

/// Calls name declared tools and have an object of arguments.
fn check_calls(options: &Options, said: &Said) {
    for (name, arguments) in &said.calls {
        assert!(options.tools.iter().any(|tool| tool.name == *name), "{name:?} is not declared");
        assert!(matches!(serde_json::from_str(arguments), Ok(Value::Object(_))), "arguments {arguments:?}");
    }
}

/// Nothing is made up, nothing moves, and without calls and reasoning nothing is lost.
fn check_text(options: &Options, said: &Said, answer: &str) {
    let mut rest = answer.chars();
    let told = said.reasoning.chars().chain(said.text.chars());
    assert!(told.into_iter().all(|c| rest.any(|other| other == c)), "{said:?} is not said in {answer:?}");
    let thought = options.reasoning_open || answer.trim_start().starts_with("<think>");
    assert!(thought || !said.calls.is_empty() || said.text == answer, "{:?} of {answer:?}", said.text);
}
