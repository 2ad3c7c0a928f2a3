//! One warm WebSocket: turns that go on, lanes, interrupts, steers. Events are read by the types of async-openai.

mod support;

use async_openai::types::responses::websocket::ResponsesServerEvent;
use serde_json::{Value, json};
use support::server::{Server, Socket, text};

fn create(input: Value) -> Value {
    json!({"type": "response.create", "model": support::MODEL, "input": input, "store": false})
}

fn user(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

/// What another implementation of the protocol makes of an event.
fn conforms(event: &Value) -> ResponsesServerEvent {
    serde_json::from_value(event.clone()).unwrap_or_else(|error| panic!("{error}: {event:#}"))
}

fn number(event: &Value, key: &str) -> u64 {
    let metadata = &event["response"]["metadata"];
    metadata[key].as_str().unwrap_or_else(|| panic!("no {key}: {metadata}")).parse().unwrap()
}

fn id(events: &[Value]) -> String {
    events[0]["response"]["id"].as_str().unwrap().to_owned()
}

/// Sends a turn and reads it to its end.
fn turn(socket: &mut Socket, frame: &Value) -> Vec<Value> {
    socket.send(frame);
    let events = socket.until("response.completed");
    events.iter().for_each(|event| drop(conforms(event)));
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], index, "{event}");
    }
    events
}

#[test]
fn a_turn_prefills_only_what_is_new() {
    let server = Server::start();
    let mut socket = server.socket();
    let mut warm_up = create(json!([user("Name a colour."), user("Any colour.")]));
    warm_up["generate"] = false.into();
    let warm = turn(&mut socket, &warm_up);
    assert_eq!(warm.last().unwrap()["response"]["output"], json!([]));
    let mut first = create(json!([user("Just one word.")]));
    first["previous_response_id"] = id(&warm).into();
    first["max_output_tokens"] = 400.into();
    let first = turn(&mut socket, &first);
    let end = first.last().unwrap();
    assert!(number(end, "flint.tokens_cached") > 20, "the warm-up was of use: {end}");
    let mut second = create(json!([user("Another.")]));
    second["previous_response_id"] = id(&first).into();
    let second = turn(&mut socket, &second);
    let usage = &end["response"]["usage"];
    let before = usage["total_tokens"].as_u64().unwrap();
    assert_eq!(
        number(second.last().unwrap(), "flint.tokens_cached"),
        before,
        "all of the first turn is kept"
    );
    assert!(second.last().unwrap()["response"]["metadata"]["flint.cache_break"].is_null());
}

/// A session is found again over another connection by the client's key, also while it is being warmed; where its prompt has
/// changed, the response says so.
#[test]
fn a_session_is_found_by_its_key_and_a_changed_prompt_is_told() {
    let server = Server::start();
    let request = |input: &[&str]| {
        let mut frame = create(input.iter().map(|text| user(text)).collect());
        frame["prompt_cache_key"] = "thread-1".into();
        frame
    };
    let warm = |input: &[&str]| {
        let mut frame = request(input);
        frame["generate"] = false.into();
        turn(&mut server.socket(), &frame).pop().unwrap()
    };
    let long = "A colour of the sky, of the sea, of the wood and of the road. ".repeat(8);
    let first = warm(&[&long, "Name one."]);
    let prompt = first["response"]["usage"]["input_tokens"].as_u64().unwrap();
    warm(&[&long, "Name one.", "Another."]);
    let mut changed = request(&[&long, "Draw one.", "Another."]);
    changed.as_object_mut().unwrap().remove("type");
    changed["max_output_tokens"] = 16.into();
    let response = server.post("/v1/responses", &changed).json();
    let event = json!({"response": response});
    let kept = number(&event, "flint.tokens_cached");
    let told = event["response"]["metadata"]["flint.cache_break"].as_str().expect("a break is told");
    assert!(told.ends_with("the prompt differs from the earlier one here"), "{told}");
    let at: u64 = told.trim_start_matches("at token ").split(':').next().unwrap().parse().unwrap();
    assert!(kept > prompt / 2 && (kept..prompt).contains(&at), "{told}, kept {kept} of {prompt}");
}

/// A warm turn renders the end of its prompt only; it must come to the same tokens as the whole.
#[test]
fn the_end_of_a_prompt_is_the_same_without_its_beginning() {
    let call = "I look.\n<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}\n</tool_call>";
    let odd = "And <|im_end|> <tool_call>\n again. ";
    let lines = [
        ("Hello.", call),
        ("one <two>\n</tool_response>", "Done."),
        (" again. ", "Fine."),
        ("Go on.", "Bye."),
    ];
    let home = tempfile::tempdir().unwrap();
    let server = Server::scripted_in(home, &lines, 1000.0, &["-m", "qwen2.5-coder-1.5b"], &[]);
    let mut socket = server.socket();
    let tools = json!([{"type": "function", "name": "read", "parameters": {"type": "object",
        "properties": {"path": {"type": "string"}}, "required": ["path"]}}]);
    let output = json!({"type": "function_call_output", "call_id": null, "output": "one <two>"});
    let developer = json!({"type": "message", "role": "developer", "content": "Be brief."});
    let turns = [vec![user("Hello.")], vec![output], vec![developer, user(odd)], vec![user("Go on.")]];
    let (mut history, mut previous) = (Vec::<Value>::new(), Value::Null);
    for (number, mut new) in turns.into_iter().enumerate() {
        if number == 1 {
            new[0]["call_id"] = history[2]["call_id"].clone();
        }
        history.extend(new.clone());
        let frame = json!({"type": "response.create", "model": "qwen2.5-coder-1.5b", "input": new, "store": false,
            "instructions": "You write code.", "tools": tools, "previous_response_id": previous});
        let events = turn(&mut socket, &frame);
        let response = &events.last().unwrap()["response"];
        let whole = json!({"model": "qwen2.5-coder-1.5b", "input": history, "instructions": "You write code.", "tools": tools});
        let whole = server.post("/v1/responses/input_tokens", &whole).json();
        assert_eq!(response["usage"]["input_tokens"], whole["input_tokens"], "turn {number}: {response:#}");
        assert!(response["metadata"]["flint.cache_break"].is_null(), "{response:#}");
        previous = response["id"].clone();
        history.extend(response["output"].as_array().unwrap().iter().cloned());
    }
}

/// A call that the model wrote as it should not have comes back to it as it should be.
#[test]
fn a_call_in_a_fence_is_read_again_in_tags() {
    let call = "```json\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}\n```";
    let tagged = "{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\none\n</tool_response>";
    let home = tempfile::tempdir().unwrap();
    let lines = [("Hello.", call), (tagged, "It was in tags.")];
    let server = Server::scripted_in(home, &lines, 1000.0, &["-m", "qwen2.5-coder-1.5b"], &[]);
    let mut socket = server.socket();
    let tools = json!([{"type": "function", "name": "read", "parameters": {"type": "object",
        "properties": {"path": {"type": "string"}}, "required": ["path"]}}]);
    let frame = |input: Value, previous: Value| {
        json!({"type": "response.create", "model": "qwen2.5-coder-1.5b", "input": input, "store": false,
            "tools": tools, "previous_response_id": previous})
    };
    let first = turn(&mut socket, &frame(json!([user("Hello.")]), Value::Null));
    let call = &first.last().unwrap()["response"]["output"][0];
    let output = json!([{"type": "function_call_output", "call_id": call["call_id"], "output": "one"}]);
    let second = turn(&mut socket, &frame(output, id(&first).into()));
    assert_eq!(text(&second), "It was in tags.");
    let (asked, end) = (&first.last().unwrap()["response"]["usage"]["input_tokens"], second.last().unwrap());
    assert_eq!(asked.as_u64(), Some(number(end, "flint.tokens_cached")), "the prompt stays warm");
    assert!(end["response"]["metadata"]["flint.cache_break"].is_null(), "{end}");
}

#[test]
fn a_steer_goes_on_from_the_last_token() {
    let server = Server::start();
    let mut socket = server.socket();
    socket.send(&create(json!([user("Write a long story about a lighthouse.")])));
    let mut events = vec![socket.next()];
    while text(&events).len() < 40 {
        events.push(socket.next());
    }
    let first = id(&events);
    socket.send(&json!({"type": "response.steer", "previous_response_id": first,
        "input": [user("Stop. Say only: done.")]}));
    events.extend(socket.until("response.incomplete"));
    events.iter().for_each(|event| drop(conforms(event)));
    let accepted = events.iter().find(|event| event["type"] == "response.steer.accepted").unwrap();
    assert_eq!(accepted["steer"]["previous_response_id"], first.as_str());
    let end = events.last().unwrap();
    assert_eq!(end["response"]["incomplete_details"]["reason"], "steered");
    let partial = end["response"]["output"][0]["content"][0]["text"].as_str().unwrap();
    assert_eq!(partial, text(&events), "what was written stays");
    let successor = socket.until("response.completed");
    successor.iter().for_each(|event| drop(conforms(event)));
    assert_eq!(successor[0]["type"], "response.created");
    assert_eq!(successor[0]["response"]["previous_response_id"], first.as_str());
    let (usage, last) = (&end["response"]["usage"], successor.last().unwrap());
    let (cached, new) = (number(last, "flint.tokens_cached"), number(last, "flint.tokens_prefilled"));
    assert_eq!(cached, usage["total_tokens"].as_u64().unwrap(), "every token so far keeps its KV");
    // <|im_end|> \n <|im_start|> user \n ... <|im_end|> \n <|im_start|> assistant \n
    assert!((10..30).contains(&new), "only the steer is prefilled: {new}");
    assert_eq!(last["response"]["usage"]["input_tokens"].as_u64().unwrap(), cached + new);
}

#[test]
fn an_interrupt_forgets_what_was_begun() {
    let server = Server::start();
    let mut socket = server.socket();
    socket.send(&create(json!([user("Write a long story about a lighthouse.")])));
    let mut events = vec![socket.next()];
    while text(&events).len() < 20 {
        events.push(socket.next());
    }
    let first = id(&events);
    socket
        .send(&json!({"type": "response.interrupt", "response_id": first, "mode": "discard_partial_items"}));
    events.extend(socket.until("response.incomplete"));
    let kinds: Vec<&str> = events.iter().rev().take(3).map(|event| event["type"].as_str().unwrap()).collect();
    let expected = ["response.incomplete", "response.output_item.interrupted", "response.interrupt.accepted"];
    assert_eq!(kinds, expected);
    let end = events.last().unwrap();
    assert_eq!(end["response"]["incomplete_details"]["reason"], "interrupted");
    assert_eq!(end["response"]["output"], json!([]));
    let mut next = create(json!([user("Say hi.")]));
    next["previous_response_id"] = first.into();
    next["max_output_tokens"] = 4.into();
    socket.send(&next);
    let next = socket.until("response.incomplete");
    assert!(number(next.last().unwrap(), "flint.tokens_cached") > 10, "the prompt's KV is kept");
}

#[test]
fn lanes_are_apart_and_each_in_order() {
    let lines = [("one", "the first answer"), ("two", "the second answer"), ("three", "the third answer")];
    let server = Server::scripted(&lines, 400.0);
    let mut socket = server.socket();
    for (lane, said) in [("a", "one"), ("b", "two"), ("a", "three")] {
        let mut frame = create(json!([user(said)]));
        frame["stream_id"] = lane.into();
        socket.send(&frame);
    }
    let (mut a, mut b) = (Vec::new(), Vec::new());
    while a.iter().chain(&b).filter(|event: &&Value| event["type"] == "response.completed").count() < 3 {
        let event = socket.next();
        conforms(&event);
        match event["stream_id"].as_str() {
            Some("a") => a.push(event),
            Some("b") => b.push(event),
            other => panic!("of lane {other:?}: {event}"),
        }
    }
    assert_eq!(text(&a), "the first answerthe third answer");
    assert_eq!(text(&b), "the second answer");
    // A fork: lane c goes on from what lane b said.
    let mut frame = create(json!([user("one")]));
    frame["stream_id"] = "c".into();
    frame["previous_response_id"] = id(&b).into();
    socket.send(&frame);
    assert_eq!(text(&socket.until("response.completed")), "the first answer");
}

#[test]
fn a_steer_waits_for_the_outputs_of_calls() {
    let call = "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": \"it\"}}\n</tool_call>";
    let padded = format!("{call}{}", " and so on".repeat(200));
    let server = Server::scripted(&[("go", &padded), ("and be brief", "as you wish")], 100.0);
    let mut socket = server.socket();
    let parameters = json!({"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]});
    let tools = json!([{"type": "function", "name": "look", "description": "", "parameters": parameters}]);
    let mut frame = create(json!([user("go")]));
    frame["tools"] = tools.clone();
    frame["max_output_tokens"] = 120.into();
    socket.send(&frame);
    let mut events = socket.until("response.function_call_arguments.done");
    let first = id(&events);
    socket.send(
        &json!({"type": "response.steer", "previous_response_id": first, "input": [user("and be brief")]}),
    );
    events.extend(socket.until("response.incomplete"));
    let pending = events.iter().find(|event| event["type"] == "response.steer.pending").unwrap();
    conforms(pending);
    let required = &pending["required_input"][0];
    assert_eq!((&required["type"], &required["name"]), (&json!("function_call_output"), &json!("look")));
    let output = json!({"type": "function_call_output", "call_id": required["call_id"], "output": "nothing"});
    let mut next = create(json!([output]));
    next["previous_response_id"] = first.into();
    next["tools"] = tools;
    assert_eq!(text(&turn(&mut socket, &next)), "as you wish", "the steer came after the output");
}

#[test]
fn what_is_wrong_is_said_and_the_connection_stays() {
    let server = Server::scripted(&[("hi", "hello")], 1000.0);
    let mut socket = server.socket();
    let mut check = |frame: &str, code: &str| {
        socket.send_text(frame);
        let error = socket.next();
        assert_eq!((&error["type"], &error["error"]["code"]), (&json!("error"), &json!(code)), "{error}");
        conforms(&error);
    };
    check("{", "invalid_json");
    check("[]", "invalid_json");
    check(r#"{"type":"response.dance"}"#, "invalid_value");
    check(r#"{"type":"response.create","input":7}"#, "invalid_value");
    check(r#"{"type":"response.create","model":"gpt-5","input":"hi"}"#, "model_not_found");
    check(
        r#"{"type":"response.create","input":"hi","previous_response_id":"resp_0"}"#,
        "previous_response_not_found",
    );
    check(r#"{"type":"response.create","input":"hi","temperature":7}"#, "invalid_value");
    socket.send_binary(b"hi");
    assert_eq!(socket.next()["error"]["code"], "invalid_frame");
    let late = json!({"type": "response.steer", "previous_response_id": "resp_0", "input": "go left"});
    socket.send(&late);
    let failed = socket.next();
    conforms(&failed);
    assert_eq!(failed["steer"]["input"][0]["content"][0]["text"], "go left", "the input comes back");
    assert_eq!(text(&turn(&mut socket, &create(json!("hi")))), "hello");
}

#[test]
fn an_empty_delta_goes_on() {
    let server = Server::start();
    let mut socket = server.socket();
    let mut first = create(json!([user("Say hi.")]));
    first["max_output_tokens"] = 200.into();
    let first = turn(&mut socket, &first);
    let mut second = create(json!([]));
    second["previous_response_id"] = id(&first).into();
    second["max_output_tokens"] = 4.into();
    socket.send(&second);
    let end = socket.until("response.incomplete");
    assert_eq!(end.last().unwrap()["response"]["usage"]["output_tokens"], 4);
}

#[test]
fn a_client_that_asks_is_told_where_the_time_went() {
    let server = Server::scripted(&[("go", "one two three four five six")], 400.0);
    let mut socket = server.socket_with(&[("x-responsesapi-include-timing-metrics", "true")]);
    for _ in 0..2 {
        let events = turn(&mut socket, &create(json!([user("go")])));
        let timing = socket.next();
        assert_eq!(timing["type"], "responsesapi.websocket_timing");
        assert_eq!(timing["response_id"], id(&events).as_str());
        let metrics = &timing["timing_metrics"];
        let number = |key: &str| metrics[key].as_f64().unwrap_or_else(|| panic!("no {key}: {metrics}"));
        assert!(number("flint.tokens_timed") >= 6.0, "{metrics}");
        assert!(number("flint.token_to_frame_us_p50") <= number("flint.token_to_frame_us_p99"), "{metrics}");
        assert!(number("engine_service_total_ms") > 0.0, "{metrics}");
    }
}
