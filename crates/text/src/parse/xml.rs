//! A call as Qwen3-Coder writes it: `<function=read>`, then `<parameter=path>` blocks with raw values.
//!
//! Values are not escaped, so they may hold tags of their own, even these. A `</parameter>` therefore ends a
//! value only where the format goes on after it.

use super::Call;
use crate::chat::Tool;
use serde_json::{Map, Value};

const FUNCTION: &str = "<function=";
const FUNCTION_END: &str = "</function>";
const PARAMETER: &str = "<parameter=";
const PARAMETER_END: &str = "</parameter>";

/// Whether `head`, the text up to the first `>` or less, can be the start of a call to one of the tools.
pub(super) fn is_start(head: &str, tools: &[Tool]) -> bool {
    let Some(named) = head.strip_prefix(FUNCTION) else { return FUNCTION.starts_with(head) };
    match named.strip_suffix('>') {
        Some(name) => tools.iter().any(|tool| tool.name == name),
        None => tools.iter().any(|tool| tool.name.starts_with(named)),
    }
}

/// The call that `body`, the text between the tags, is.
pub(super) fn parse(body: &str, tools: &[Tool]) -> Option<Call> {
    let body = body.trim().strip_prefix(FUNCTION)?.strip_suffix(FUNCTION_END)?;
    let (name, mut rest) = body.split_once('>')?;
    let tool = tools.iter().find(|tool| tool.name == name)?;
    let mut arguments = Map::new();
    while !rest.trim().is_empty() {
        let (parameter, after) = rest.trim_start().strip_prefix(PARAMETER)?.split_once('>')?;
        let (value, after) = split_value(after)?;
        arguments.insert(parameter.to_owned(), typed(tool, parameter, trim_line_ends(value)));
        rest = after;
    }
    Some(Call { name: name.to_owned(), arguments: Value::Object(arguments).to_string() })
}

/// Cuts at the first `</parameter>` after which another parameter or nothing follows.
fn split_value(text: &str) -> Option<(&str, &str)> {
    text.match_indices(PARAMETER_END).find_map(|(at, end)| {
        let after = &text[at + end.len()..];
        let goes_on = after.trim_start();
        (goes_on.is_empty() || goes_on.starts_with(PARAMETER)).then_some((&text[..at], after))
    })
}

/// Values stand on lines of their own; the line ends around them are not theirs.
fn trim_line_ends(value: &str) -> &str {
    let value = value.strip_prefix('\n').unwrap_or(value);
    value.strip_suffix('\n').unwrap_or(value)
}

/// The value as the tool's schema wants it; a string where it does not fit or nothing is said.
fn typed(tool: &Tool, parameter: &str, text: &str) -> Value {
    let kind = &tool.parameters["properties"][parameter]["type"];
    let wants =
        |name: &str| kind == name || kind.as_array().is_some_and(|kinds| kinds.iter().any(|k| k == name));
    let as_text = || Value::String(text.to_owned());
    let Ok(parsed) = serde_json::from_str::<Value>(text.trim()) else {
        return python_literal(text, wants, as_text);
    };
    let fits = match &parsed {
        Value::Null => wants("null"),
        Value::Bool(_) => wants("boolean"),
        Value::Number(number) => wants("number") || (wants("integer") && !number.is_f64()),
        Value::String(_) => false,
        Value::Array(_) => wants("array"),
        Value::Object(_) => wants("object"),
    };
    if fits { parsed } else { as_text() }
}

/// Models of this format write Python's `True` and `None` at times, because their template does.
fn python_literal(text: &str, wants: impl Fn(&str) -> bool, as_text: impl Fn() -> Value) -> Value {
    match text.trim() {
        "True" if wants("boolean") => Value::Bool(true),
        "False" if wants("boolean") => Value::Bool(false),
        "None" if wants("null") => Value::Null,
        _ => as_text(),
    }
}
