//! The conversations of `golden/cases.json`.

use flint_text::chat::{Message, Prompt, Role, Tool, ToolCall};
use serde_json::Value;

pub(crate) fn read(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(super::golden(name)).unwrap()).unwrap()
}

/// The prompts of all cases, with their names.
pub(crate) fn prompts() -> Vec<(String, Prompt)> {
    let cases = read("cases.json");
    let named = cases["cases"].as_object().unwrap();
    named.iter().map(|(name, case)| (name.clone(), prompt(&cases, case))).collect()
}

fn prompt(cases: &Value, case: &Value) -> Prompt {
    let tools = case["tools"].as_array().into_iter().flatten();
    Prompt {
        messages: case["messages"].as_array().unwrap().iter().map(message).collect(),
        tools: tools.map(|name| tool(&cases["tools"][name.as_str().unwrap()])).collect(),
        add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap_or(true),
        variables: case["variables"].as_object().cloned().unwrap_or_default(),
        now_unix_s: cases["now_unix_s"].as_i64().unwrap(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn tool(value: &Value) -> Tool {
    Tool {
        name: text(&value["name"]),
        description: text(&value["description"]),
        parameters: value["parameters"].clone(),
    }
}

fn message(value: &Value) -> Message {
    let role = match value["role"].as_str().unwrap() {
        "system" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        other => panic!("role {other}"),
    };
    let optional = |field: &str| value[field].as_str().map(str::to_owned);
    let calls = value["tool_calls"].as_array().into_iter().flatten();
    let call = |call: &Value| ToolCall {
        id: text(&call["id"]),
        name: text(&call["name"]),
        arguments: call["arguments"].clone(),
    };
    Message {
        reasoning: optional("reasoning"),
        tool_calls: calls.map(call).collect(),
        tool_call_id: optional("tool_call_id"),
        name: optional("name"),
        ..Message::new(role, text(&value["content"]))
    }
}
