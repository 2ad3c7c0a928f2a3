//! What the model may write: free text, calls of the declared tools, or JSON under a schema.
//!
//! Free text may be anything, but where it comes to `{"name": "a declared tool", "arguments":`, in tags, in a
//! code fence or bare, what follows are arguments under that tool's schema. So a call that has begun is a call
//! that is valid. gpt-oss, which marks everything with control tokens, has a grammar of its own (`harmony`).

pub mod edits;
mod harmony;

use crate::model::Model;
use crate::prompt::Conversation;
use flint_engine::constrain::{BadConstraint, Constraint, check, json_block};
use flint_text::chat::Tool;
use flint_text::parse::Format as Style;
use flint_wire::{ApiError, Choice, Format, Request};
use harmony::Answer;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::fmt::Write;

/// What a request holds the model to, and what of it could not be enforced.
#[derive(Debug, Clone, Default)]
pub struct Held {
    pub constraint: Option<Constraint>,
    pub unenforced: Vec<String>, // tools whose schema says what no grammar can
}

/// The constraint of a request; none where anything goes.
pub fn held(model: &Model, request: &Request, conversation: &Conversation) -> Result<Held, ApiError> {
    let (book, compaction) = (&conversation.tools, conversation.is_compaction());
    let mut tools = match request.tool_choice {
        _ if compaction => Vec::new(),
        Choice::None => Vec::new(),
        Choice::Auto | Choice::Required | Choice::Named(_) => book.enforced(),
    };
    if let Choice::Named(name) = &request.tool_choice {
        let shown = book.shown(None, name);
        tools.retain(|tool| tool.name == shown);
    }
    let must_call = matches!(request.tool_choice, Choice::Required | Choice::Named(_));
    if must_call && tools.is_empty() {
        return Err(ApiError::invalid("tool_choice", "`tool_choice` asks for a tool that is not declared"));
    }
    let schema = schema(&request.format);
    if tools.is_empty() && schema.is_none() {
        return Ok(Held::default());
    }
    if let Some(schema) = &schema {
        check_answer(model, schema)?;
    }
    let unenforced = loosen(model, &mut tools);
    let constraint =
        Constraint::lark(grammar(model, &tools, schema.as_ref().filter(|_| !must_call), must_call)?);
    match passes(model, &constraint) {
        Ok(()) => Ok(Held { constraint: Some(constraint), unenforced }),
        Err(_) if !must_call && schema.is_none() => {
            Ok(Held { constraint: None, unenforced: tools.into_iter().map(|tool| tool.name).collect() })
        }
        Err(error) => Err(ApiError::bad_request(
            "invalid_json_schema",
            format!("the tools cannot be honoured: {error}"),
        )),
    }
}

fn schema(format: &Format) -> Option<Value> {
    match format {
        Format::Text => None,
        Format::JsonObject => Some(json!({"type": "object"})),
        Format::JsonSchema { schema, .. } => Some(schema.clone()),
    }
}

/// What `check` says of a constraint, or has said.
fn passes(model: &Model, constraint: &Constraint) -> Result<(), BadConstraint> {
    let Ok(outcome) = model.checked.get(constraint.clone(), |new| Ok::<_, Infallible>(check(new)));
    outcome
}

fn check_answer(model: &Model, schema: &Value) -> Result<(), ApiError> {
    let constraint = Constraint::json_schema(schema);
    passes(model, &constraint).map_err(|error| {
        let problem = format!("`text.format.schema` cannot be honoured: {error}");
        ApiError { code: "invalid_json_schema", ..ApiError::invalid("text.format.schema", problem) }
    })
}

/// Arguments whose schema no grammar can say become any object. Returns whose they were.
fn loosen(model: &Model, tools: &mut [Tool]) -> Vec<String> {
    let mut loosened = Vec::new();
    for tool in tools {
        let constraint = Constraint::json_schema(&arguments(tool));
        if passes(model, &constraint).is_err() {
            tool.parameters = json!({"type": "object"});
            loosened.push(tool.name.clone());
        }
    }
    loosened
}

/// Arguments are an object, whatever else their schema says.
fn arguments(tool: &Tool) -> Value {
    let mut schema = tool.parameters.clone();
    if let Value::Object(keywords) = &mut schema {
        keywords.shift_remove(edits::KEY);
        keywords.entry("type").or_insert_with(|| "object".into());
    }
    schema
}

/// What may be written: a call or an answer under the schema, if there is one; else also text, unless it must be a call.
fn grammar(
    model: &Model,
    tools: &[Tool],
    answer: Option<&Value>,
    must_call: bool,
) -> Result<String, ApiError> {
    match model.facts.format {
        Style::Harmony => {
            let answer = match answer {
                Some(schema) => Answer::Json(schema),
                None if must_call => Answer::None,
                None => Answer::Text,
            };
            let lacks = |token| ApiError::internal(format!("{} has no token {token}", model.name));
            harmony::grammar(|literal| special(model, literal), tools, answer).map_err(lacks)
        }
        Style::Tagged | Style::Llama3 if must_call || answer.is_some() => Ok(strict(model, tools, answer)),
        Style::Tagged | Style::Llama3 => Ok(free(model, tools)),
    }
}

/// Free text with calls in it.
fn free(model: &Model, tools: &[Tool]) -> String {
    let mut grammar = String::from("start: (TEXT | mark | call)*\nTEXT: /(?s:.+)/\nSP: /[ \\n]{1,8}/\n");
    let marks: Vec<String> = ["<tool_call>", "</tool_call>", "<think>", "</think>", "<|python_tag|>"]
        .iter()
        .filter_map(|literal| special(model, literal))
        .collect();
    rule(&mut grammar, "mark", if marks.is_empty() { vec!["TEXT".to_owned()] } else { marks });
    let calls = (0..tools.len()).map(|index| format!("head_{index} SP? args_{index} SP? \"}}\"")).collect();
    rule(&mut grammar, "call", calls);
    for (index, tool) in tools.iter().enumerate() {
        let (name, key) = (escaped(&tool.name), arguments_key(model));
        line(
            &mut grammar,
            &format!("head_{index}[lazy]: /(?s:.*)\\{{\\s*\"name\":\\s*\"{name}\",\\s*\"{key}\":/"),
        );
        edits::args(&mut grammar, index, tool);
    }
    grammar
}

/// One call and nothing else, or an answer under a schema.
fn strict(model: &Model, tools: &[Tool], answer: Option<&Value>) -> String {
    let mut grammar = String::new();
    let (open, close) = match (special(model, "<tool_call>"), special(model, "</tool_call>")) {
        (Some(open), Some(close)) => (format!("{open} \"\\n\""), format!("\"\\n\" {close}")),
        _ => ("\"<tool_call>\\n\"".to_owned(), "\"\\n</tool_call>\"".to_owned()),
    };
    let mut starts = Vec::new();
    if !tools.is_empty() {
        starts.push("call".to_owned());
    }
    if let Some(schema) = answer {
        starts.push("answer".to_owned());
        line(&mut grammar, &format!("answer: {}", json_block(schema)));
    }
    rule(&mut grammar, "start", starts);
    let calls = (0..tools.len()).map(|index| format!("{open} call_{index} {close}")).collect();
    rule(&mut grammar, "call", calls);
    for (index, tool) in tools.iter().enumerate() {
        let head = Value::from(format!("{{\"name\": \"{}\", \"{}\": ", tool.name, arguments_key(model)));
        line(&mut grammar, &format!("call_{index}: {head} args_{index} \"}}\""));
        edits::args(&mut grammar, index, tool);
    }
    grammar
}

fn arguments_key(model: &Model) -> &'static str {
    match model.facts.format {
        Style::Llama3 => "parameters",
        Style::Tagged | Style::Harmony => "arguments",
    }
}

/// A token that text cannot spell, as grammars name it.
fn special(model: &Model, literal: &str) -> Option<String> {
    model.text.tokenizer.control_id(literal).map(|id| format!("<[{id}]>"))
}

fn rule(grammar: &mut String, name: &str, choices: Vec<String>) {
    if !choices.is_empty() {
        line(grammar, &format!("{name}: {}", choices.join(" | ")));
    }
}

fn line(grammar: &mut String, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(grammar, "{text}");
}

/// A tool's name inside a regular expression.
fn escaped(name: &str) -> String {
    name.replace('.', "\\.").replace('-', "\\-")
}
