//! Kinds of tools and items that the Codex CLI sends beside functions and messages: what the model is told of them, and what
//! comes back.

mod support;

use async_openai::types::responses::websocket::ResponsesServerEvent;
use serde_json::{Value, json};
use support::server::{Server, Socket, text};

/// Its template knows tools.
const MODEL: &str = "qwen2.5-coder-1.5b";

fn scripted(lines: &[(&str, &str)]) -> Server {
    Server::scripted_in(tempfile::tempdir().unwrap(), lines, 2000.0, &["-m", MODEL], &[])
}

fn create(input: Value, tools: &Value) -> Value {
    json!({"type": "response.create", "model": MODEL, "input": input, "tools": tools, "store": false})
}

fn user(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

fn call(name: &str, arguments: Value) -> String {
    format!("<tool_call>\n{}\n</tool_call>", json!({"name": name, "arguments": arguments}))
}

fn turn(socket: &mut Socket, frame: &Value) -> Vec<Value> {
    socket.send(frame);
    let events = socket.until("response.completed");
    for event in &events {
        serde_json::from_value::<ResponsesServerEvent>(event.clone())
            .unwrap_or_else(|error| panic!("{error}: {event:#}"));
    }
    events
}

/// The items of the response, as its events told them; its end says the same.
fn items(events: &[Value]) -> Vec<Value> {
    let done = events.iter().filter(|event| event["type"] == "response.output_item.done");
    let items: Vec<Value> = done.map(|event| event["item"].clone()).collect();
    assert_eq!(events.last().unwrap()["response"]["output"], json!(items));
    items
}

fn previous(mut frame: Value, events: &[Value]) -> Value {
    frame["previous_response_id"] = events[0]["response"]["id"].clone();
    frame
}

fn function(name: &str, argument: &str) -> Value {
    json!({"type": "function", "name": name, "description": format!("{name} it"), "parameters": {"type": "object",
        "properties": {argument: {"type": "string"}}, "required": [argument], "additionalProperties": false}})
}

fn namespace(name: &str, tools: Value) -> Value {
    json!({"type": "namespace", "name": name, "description": "", "tools": tools})
}

/// The prompt's last words after the output of a call.
fn after(output: &str) -> String {
    format!("{output}\n</tool_response>")
}

#[test]
fn a_call_of_a_namespace_names_it() {
    let lines = [
        ("spawn", &*call("spawn_agent", json!({"task": "look"}))),
        (&*after("done"), &*call("two__read", json!({"path": "b"}))),
        (&*after("b is empty"), "All is done."),
    ];
    let server = scripted(&lines);
    let mut socket = server.socket();
    let tools = json!([
        namespace("agents", json!([function("spawn_agent", "task")])),
        namespace("one", json!([function("read", "path")])),
        namespace("two", json!([function("read", "path")])),
    ]);
    let mut events = turn(&mut socket, &create(json!([user("spawn")]), &tools));
    // A name that two namespaces have is told to the model with its namespace, and to the client without.
    let expected = [("agents", "spawn_agent", r#"{"task":"look"}"#), ("two", "read", r#"{"path":"b"}"#)];
    for ((namespace, name, arguments), output) in expected.into_iter().zip(["done", "b is empty"]) {
        let [item] = &items(&events)[..] else { panic!("{events:#?}") };
        let said = (&item["type"], &item["namespace"], &item["name"]);
        assert_eq!(said, (&json!("function_call"), &json!(namespace), &json!(name)), "{item}");
        let told: Value = serde_json::from_str(item["arguments"].as_str().unwrap()).unwrap();
        assert_eq!(told, serde_json::from_str::<Value>(arguments).unwrap());
        let output = json!({"type": "function_call_output", "call_id": item["call_id"], "output": output});
        events = turn(&mut socket, &previous(create(json!([output]), &tools), &events));
    }
    assert_eq!(text(&events), "All is done.");
    assert!(events.last().unwrap()["response"]["metadata"]["flint.cache_break"].is_null());
}

#[test]
fn a_custom_tool_is_called_with_text() {
    let patch = "*** Begin Patch\n\"quoted\"\n*** End Patch";
    let lines =
        [("patch", &*call("apply_patch", json!({"input": patch}))), (&*after("applied"), "It is done.")];
    let server = scripted(&lines);
    let mut socket = server.socket();
    let tools = json!([{"type": "custom", "name": "apply_patch", "description": "changes files",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: /(?s:.+)/"}}]);
    let events = turn(&mut socket, &create(json!([user("patch")]), &tools));
    let [item] = &items(&events)[..] else { panic!("{events:#?}") };
    assert_eq!((&item["type"], &item["name"]), (&json!("custom_tool_call"), &json!("apply_patch")));
    assert_eq!(item["input"], patch);
    let deltas = events.iter().filter(|event| event["type"] == "response.custom_tool_call_input.delta");
    assert_eq!(deltas.map(|event| event["delta"].as_str().unwrap()).collect::<String>(), patch);
    let output = json!({"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "applied"});
    let events = turn(&mut socket, &previous(create(json!([output]), &tools), &events));
    assert_eq!(text(&events), "It is done.");
}

/// Codex's smaller form: tools are the first item of the input, and more may come later.
#[test]
fn tools_may_come_among_the_items() {
    let lines = [
        ("look", &*call("look", json!({"at": "it"}))),
        (&*after("seen"), &*call("touch", json!({"what": "it"}))),
        (&*after("felt"), "It is warm."),
    ];
    let server = scripted(&lines);
    let mut socket = server.socket();
    let none = Value::Null;
    let tools = |tools: Value| json!({"type": "additional_tools", "role": "developer", "tools": tools});
    let first =
        tools(json!([namespace("functions", json!([function("look", "at")])), {"type": "web_search"}]));
    let developer =
        json!({"type": "message", "role": "developer", "content": "Be brief, and call for what you need."});
    let mut warm = create(json!([first, developer]), &none);
    warm["generate"] = false.into();
    let warm = turn(&mut socket, &warm);
    let events = turn(&mut socket, &previous(create(json!([user("look")]), &none), &warm));
    let looked = &items(&events)[0];
    assert_eq!((&looked["namespace"], &looked["name"]), (&json!("functions"), &json!("look")));
    let metadata = &events.last().unwrap()["response"]["metadata"];
    assert!(metadata["flint.tokens_cached"].as_str().unwrap().parse::<u32>().unwrap() > 20, "{metadata}");
    let more = tools(json!([function("touch", "what")]));
    let output = json!({"type": "function_call_output", "call_id": looked["call_id"], "output": "seen"});
    let events = turn(&mut socket, &previous(create(json!([more, output]), &none), &events));
    let touched = &items(&events)[0];
    assert_eq!((&touched["namespace"], &touched["name"]), (&Value::Null, &json!("touch")));
    let output = json!({"type": "function_call_output", "call_id": touched["call_id"], "output": "felt"});
    let events = turn(&mut socket, &previous(create(json!([output]), &none), &events));
    assert_eq!(text(&events), "It is warm.");
}

/// Codex's remote compaction: one opaque item, which is read back.
#[test]
fn a_conversation_is_made_short() {
    let asked = " Write the summary only.";
    let summary = "They said hello. Nothing is left to do.";
    let lines = [("hello", "Hello to you."), (asked, summary), ("and now?", "I know of the hello.")];
    let server = scripted(&lines);
    let mut socket = server.socket();
    let tools = json!([function("look", "at")]);
    let first = turn(&mut socket, &create(json!([user("hello")]), &tools));
    let trigger = json!([{"type": "compaction_trigger"}]);
    let events = turn(&mut socket, &previous(create(trigger, &tools), &first));
    assert_eq!(text(&events), "", "it is not said to the user");
    let [item] = &items(&events)[..] else { panic!("{events:#?}") };
    assert_eq!((&item["type"], &item["encrypted_content"]), (&json!("compaction"), &json!(summary)));
    let short = json!([user("hello"), item, user("and now?")]);
    let events = turn(&mut socket, &create(short.clone(), &tools));
    assert_eq!(text(&events), "I know of the hello.");
    let used = events.last().unwrap()["response"]["usage"]["input_tokens"].as_u64().unwrap();
    let without = json!({"input": [user("hello"), user("and now?")], "tools": tools});
    let without = server.post("/v1/responses/input_tokens", &without).json();
    assert!(used > without["input_tokens"].as_u64().unwrap() + 8, "the summary is read: {used}, {without}");
}

/// Thoughts come back to the model as they were, other kinds of items say nothing, and none of them is an error.
#[test]
fn items_of_other_kinds_do_no_harm() {
    let server = scripted(&[("hi", "hello")]);
    let plain = server.post("/v1/responses/input_tokens", &json!({"input": [user("hi")]})).json();
    let others = json!([
        {"type": "tool_search_call", "id": "ts_1", "status": "completed", "arguments": {}},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
        {"type": "local_shell_call", "id": "ls_1", "call_id": "c", "status": "completed",
            "action": {"type": "exec", "command": ["true"], "env": {}}},
        {"type": "configuration_update", "id": "cu_1", "model": "m"},
        {"type": "something_new"},
        user("hi"),
    ]);
    let counted = server.post("/v1/responses/input_tokens", &json!({"input": others})).json();
    assert_eq!(counted, plain);
    let mut socket = server.socket();
    let mut whole = others.as_array().unwrap().clone();
    let thought = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": null,
        "content": [{"type": "reasoning_text", "text": "They greet."}]});
    let agent = json!({"type": "agent_message", "author": "a", "recipient": "b",
        "content": [{"type": "input_text", "text": "hi"}]});
    whole.splice(0..0, [user("before"), thought, agent]);
    assert_eq!(text(&turn(&mut socket, &create(json!(whole), &Value::Null))), "hello");
}

/// What Codex sends when a thread begins with a model of the smaller form: nothing yet. It must not fail, nor the turn after it.
#[test]
fn a_warm_up_of_nothing_is_one() {
    let server = scripted(&[("hi", "hello")]);
    let mut socket = server.socket();
    let mut warm = create(json!([]), &Value::Null);
    warm["generate"] = false.into();
    let warm = turn(&mut socket, &warm);
    assert_eq!(warm.last().unwrap()["response"]["usage"]["total_tokens"], 0);
    let events = turn(&mut socket, &previous(create(json!([user("hi")]), &Value::Null), &warm));
    assert_eq!(text(&events), "hello");
    socket.send(&create(json!([]), &Value::Null));
    let error = socket.next();
    assert_eq!((&error["status"], &error["error"]["param"]), (&json!(400), &json!("input")), "{error}");
}
