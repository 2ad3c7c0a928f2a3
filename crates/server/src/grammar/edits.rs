//! Edits that cannot fail to apply.
//!
//! A client may say, beside the schema of a tool with `path`, `old` and `new`, what the files are that it changes: under
//! `x-flint-edits`, their texts by path. Then `old` can only be lines of that file, as they stand there; or nothing, for
//! lines that are added. The model is not told of the texts: what it read of the tools stays as it is when they change.

use super::{arguments, line, rule};
use crate::limits::GUESSED_FILE_BYTES_MAX;
use flint_engine::constrain::json_block;
use flint_engine::limits::REFERENCES_MAX;
use flint_text::chat::Tool;
use flint_wire::Kind;
use serde_json::{Map, Value, json};
use std::sync::Arc;

pub const KEY: &str = "x-flint-edits";

/// The rule of a tool's arguments, and those that it needs.
pub fn args(grammar: &mut String, index: usize, tool: &Tool) {
    let texts = match tool.parameters.get(KEY) {
        Some(Value::Object(texts)) if is_edit(tool) => texts,
        _ => {
            line(grammar, &format!("args_{index}: {}", json_block(&arguments(tool))));
            return;
        }
    };
    let edits = (0..texts.len()).map(|file| format!("edit_{index}_{file}"));
    rule(grammar, &format!("args_{index}"), edits.chain([format!("added_{index}")]).collect());
    // A separator may have one space after it, as in all JSON that models write.
    let text = json_block(&json!({"type": "string"}));
    let (path, old) = (r#""{\"path\":" " "?"#, r#""," " "? "\"old\":" " "? "\"""#);
    let new = format!(r#""\"," " "? "\"new\":" " "? {text} "}}""#);
    line(grammar, &format!("added_{index}: {path} {text} {old} {new}"));
    for (file, (name, content)) in texts.iter().enumerate() {
        let name = Value::from(Value::from(name.as_str()).to_string());
        let lines = json!({"substring_chunks": chunks(content.as_str().unwrap_or_default())});
        line(grammar, &format!("LINES_{index}_{file}: %regex {lines}"));
        line(grammar, &format!("edit_{index}_{file}: {path} {name} {old} LINES_{index}_{file} {new}"));
    }
}

/// The files of all tools as an answer may repeat them, and no more of them than guesses are taken from. In a call they
/// stand within JSON strings.
pub fn files(tools: &[Arc<flint_wire::Tool>], in_calls: bool) -> Vec<String> {
    let mut room = GUESSED_FILE_BYTES_MAX;
    let texts = tools.iter().filter_map(|tool| told(tool)).flat_map(Map::values).filter_map(Value::as_str);
    let cut = |text: &str| {
        let text = &text[..text.floor_char_boundary(room)];
        room -= text.len();
        if in_calls { escaped(text) } else { text.to_owned() }
    };
    // One reference more is what the client expects.
    texts.take(REFERENCES_MAX - 1).map(cut).filter(|text| !text.is_empty()).collect()
}

/// The files that come with a tool.
fn told(tool: &flint_wire::Tool) -> Option<&Map<String, Value>> {
    match &tool.kind {
        Kind::Function { parameters, .. } => parameters.get(KEY)?.as_object(),
        Kind::Custom { .. } => None,
    }
}

/// The keyword is for tools of this form only.
fn is_edit(tool: &Tool) -> bool {
    let none = Map::new();
    let properties = tool.parameters["properties"].as_object().unwrap_or(&none);
    properties.keys().eq(["path", "old", "new"])
}

/// What `old` is made of, as it stands within a JSON string: a line's blanks, the rest of it, and its end.
fn chunks(text: &str) -> Vec<String> {
    let mut chunks = Vec::new();
    for line in text.split_inclusive('\n') {
        let (whole, end) = line.strip_suffix('\n').map_or((line, false), |whole| (whole, true));
        let (blanks, rest) = whole.split_at(whole.len() - whole.trim_start().len());
        chunks.extend([blanks, rest].into_iter().filter(|part| !part.is_empty()).map(escaped));
        if end {
            chunks.push("\\n".to_owned());
        }
    }
    chunks
}

/// Without its quotes.
fn escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted.get(1..quoted.len() - 1).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flint_engine::constrain::{Constraint, check};

    fn edit(texts: Value) -> Tool {
        let text = json!({"type": "string"});
        let mut parameters = json!({"type": "object", "properties": {"path": text, "old": text, "new": text},
            "required": ["path", "old", "new"], "additionalProperties": false});
        parameters[KEY] = texts;
        Tool { name: "edit".into(), description: String::new(), parameters }
    }

    #[test]
    fn lines_are_taken_apart_as_json_has_them() {
        assert_eq!(chunks("a \"b\"\n\tc\n"), ["a \\\"b\\\"", "\\n", "\\t", "c", "\\n"]);
        assert_eq!(chunks("x"), ["x"]);
        assert_eq!(chunks(""), Vec::<String>::new());
    }

    #[test]
    fn the_grammar_of_hostile_files_compiles() {
        let long = "let x = 1;\n".repeat(5_000);
        for text in ["", "a\n", "\"\\\u{1}\u{7f}é\u{202e}\r\n", "%regex\n&|\n", long.as_str()] {
            let mut grammar = String::from("start: args_0\n");
            args(&mut grammar, 0, &edit(json!({"a\"b.py": text, "c": "d"})));
            check(&Constraint::lark(grammar)).unwrap();
        }
    }

    #[test]
    fn files_are_had_as_they_are_repeated_and_no_more_than_guesses_are_taken_from() {
        let tool = |parameters| flint_wire::Tool {
            namespace: None,
            name: "edit".into(),
            description: String::new(),
            kind: Kind::Function { parameters, strict: false },
        };
        let long = "é".repeat(GUESSED_FILE_BYTES_MAX / 2 - 2);
        let tools =
            [tool(json!({})), tool(json!({KEY: {"a": "x\n", "b": 5, "c": long, "d": "ééé", "e": "f"}}))];
        let tools = tools.map(Arc::new);
        assert_eq!(files(&tools, false), ["x\n", long.as_str(), "é"]);
        assert_eq!(files(&tools, true)[0], "x\\n");
        let many: Map<String, Value> = (0..40).map(|file| (file.to_string(), "x".into())).collect();
        assert_eq!(files(&[Arc::new(tool(json!({KEY: many})))], true).len(), REFERENCES_MAX - 1);
    }

    #[test]
    fn another_tool_with_the_keyword_has_its_schema() {
        let mut tool = edit(json!({"a": "b"}));
        tool.parameters["properties"] = json!({"path": {"type": "string"}});
        let mut grammar = String::new();
        args(&mut grammar, 0, &tool);
        assert!(grammar.starts_with("args_0: %json") && !grammar.contains(KEY), "{grammar}");
    }
}
