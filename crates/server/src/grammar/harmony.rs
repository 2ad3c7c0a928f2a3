//! What gpt-oss may write, in its own format: messages that begin with a header of control tokens.
//!
//! Thoughts and words to the user (`analysis`, `commentary`) are free. A message to `functions.NAME` is a call: from
//! its `<|message|>` to its `<|call|>` it is arguments under that tool's schema, wherever in the header the
//! recipient stands. The last message is a call or the answer (`final`), which may be under a schema.

use super::{edits, line, rule};
use flint_engine::constrain::json_block;
use flint_text::chat::Tool;
use serde_json::Value;

/// What the last message may be, besides a call.
#[derive(Debug, Clone, Copy)]
pub enum Answer<'a> {
    Text,
    Json(&'a Value), // under this schema
    /// It has to be a call.
    None,
}

/// The grammar of what follows `<|start|>assistant`; an error names a token that the model does not have.
pub fn grammar(
    special: impl Fn(&str) -> Option<String>,
    tools: &[Tool],
    answer: Answer<'_>,
) -> Result<String, &'static str> {
    let token = |literal: &'static str| special(literal).ok_or(literal);
    let (start, message, end) = (token("<|start|>")?, token("<|message|>")?, token("<|end|>")?);
    let (channel, json, call) = (token("<|channel|>")?, token("<|constrain|>")?, token("<|call|>")?);
    let done = token("<|return|>")?;
    let mut grammar = String::from("TEXT: /(?s:.+)/\n");
    line(&mut grammar, &format!("start: (said {start} \"assistant\")* last"));
    line(&mut grammar, &format!("said: aside {message} TEXT? {end}"));
    line(&mut grammar, &format!("aside: {channel} (\"analysis\" | \"commentary\")"));
    // What the content is may be said with the token or without it.
    line(&mut grammar, &format!("kind: \" \"? {json} \"json\" | \" json\""));
    let mut last: Vec<String> = (0..tools.len()).map(|index| format!("call_{index}")).collect();
    for (index, tool) in tools.iter().enumerate() {
        let to = Value::from(format!(" to=functions.{}", tool.name));
        line(
            &mut grammar,
            &format!("call_{index}: (aside {to} | {to} aside) kind? {message} args_{index} {call}"),
        );
        edits::args(&mut grammar, index, tool);
    }
    let content = match answer {
        Answer::Text => Some("TEXT?".to_owned()),
        Answer::Json(schema) => Some(json_block(schema)),
        Answer::None => None,
    };
    if let Some(content) = content {
        line(&mut grammar, &format!("answer: {channel} \"final\" kind? {message} content {done}"));
        line(&mut grammar, &format!("content: {content}"));
        last.push("answer".to_owned());
    }
    rule(&mut grammar, "last", last);
    Ok(grammar)
}

#[cfg(test)]
#[path = "harmony_tests.rs"]
mod tests;
