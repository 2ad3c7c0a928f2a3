//! What editors send, replayed: an agent panel that streams chat with tools, and a plugin that fills the hole at the
//! cursor. The fields are those of Zed's `openai_compatible` provider and of minuet-ai.nvim's
//! `openai_fim_compatible`, as the README sets them up.

mod support;

use serde_json::{Value, json};
use support::server::{Answer, Server, events};

fn ask(server: &Server, path: &str, accept: &str, body: &Value) -> Vec<Value> {
    let bearer = format!("Bearer {}", server.key);
    let headers =
        [("Content-Type", "application/json"), ("Accept", accept), ("Authorization", bearer.as_str())];
    let answer: Answer = server.ask(&format!("POST {path}"), &headers, &body.to_string());
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.body.trim_end().ends_with("data: [DONE]"), "{}", answer.body);
    events(&answer.body)
}

fn panel(messages: Value) -> Value {
    let parameters = json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
        "properties": {"path": {"type": "string", "description": "which one"}}, "required": ["path"]});
    let function = json!({"name": "read_file", "description": "Reads a file.", "parameters": parameters});
    json!({"model": support::MODEL, "messages": messages, "stream": true, "stream_options": {"include_usage": true},
        "max_completion_tokens": 1024, "temperature": 1.0, "tool_choice": "auto", "parallel_tool_calls": false,
        "tools": [{"type": "function", "function": function}], "prompt_cache_key": "thread-1"})
}

/// All of a field of the deltas.
fn joined<'a>(chunks: &'a [Value], of: impl Fn(&'a Value) -> &'a Value) -> String {
    let deltas = chunks.iter().filter_map(|chunk| of(&chunk["choices"][0]["delta"]).as_str());
    deltas.collect()
}

/// The last chunk with a choice, and the usage, which comes alone after it.
fn end(chunks: &[Value]) -> (&Value, &Value) {
    let [.., last, usage] = chunks else { panic!("{chunks:?}") };
    assert_eq!(usage["choices"], json!([]));
    (&last["choices"][0]["finish_reason"], &usage["usage"])
}

#[test]
fn an_agent_panel_reads_a_file() {
    let call = "<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"a.txt\"}}\n</tool_call>";
    let lines = [("what is in it?", call), ("", "It is empty.")];
    let server = Server::scripted(&lines, 2000.0);
    let system = json!({"role": "system", "content": "You are an agent."});
    let parts =
        json!([{"type": "text", "text": "Here is a.txt:"}, {"type": "text", "text": "what is in it?"}]);
    let user = json!({"role": "user", "content": parts});
    let chunks = ask(&server, "/v1/chat/completions", "*/*", &panel(json!([system, user])));
    let (finish, usage) = end(&chunks);
    assert_eq!(finish, "tool_calls");
    assert!(usage["prompt_tokens"].as_u64().unwrap() > 0 && usage["total_tokens"].is_u64(), "{usage}");
    let of_call = |delta: &'_ Value| delta["tool_calls"][0].clone();
    let first =
        chunks.iter().map(|chunk| of_call(&chunk["choices"][0]["delta"])).find(|call| !call.is_null());
    let first = first.unwrap();
    assert_eq!((&first["index"], &first["function"]["name"]), (&json!(0), &json!("read_file")));
    let arguments = joined(&chunks, |delta| &delta["tool_calls"][0]["function"]["arguments"]);
    assert_eq!(serde_json::from_str::<Value>(&arguments).unwrap(), json!({"path": "a.txt"}));
    let function = json!({"name": "read_file", "arguments": arguments});
    let called = json!({"role": "assistant", "content": null,
        "tool_calls": [{"id": first["id"], "type": "function", "function": function}]});
    let output = json!({"role": "tool", "content": "", "tool_call_id": first["id"]});
    let chunks = ask(&server, "/v1/chat/completions", "*/*", &panel(json!([system, user, called, output])));
    assert_eq!(joined(&chunks, |delta| &delta["content"]), "It is empty.");
    let (finish, usage) = end(&chunks);
    assert_eq!(finish, "stop");
    assert!(
        usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap() > 20,
        "the thread was warm: {usage}"
    );
}

#[test]
fn a_hole_at_the_cursor_is_filled() {
    let server = Server::of("qwen2.5-coder-1.5b");
    let body = json!({"model": "qwen2.5-coder-1.5b", "stream": true, "max_tokens": 24, "top_p": 0.9, "stop": ["\n\n"],
        "prompt": "# language: python\ndef add(a, b):\n    total =", "suffix": "\n    return total\n"});
    let chunks = ask(&server, "/v1/completions", "application/json", &body);
    let text: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["text"].as_str()).collect();
    assert_eq!(text.trim(), "a + b");
    // Markers in the text are text: they do not become the tokens that they look like.
    let count = |text: &str| {
        let body = json!({"model": "qwen2.5-coder-1.5b", "prompt": text, "max_tokens": 1});
        server.post("/v1/completions", &body).json()["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    assert!(count("<|fim_prefix|>a") > count("a") + 1);
}
