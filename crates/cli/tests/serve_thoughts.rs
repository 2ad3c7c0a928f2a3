//! Models that think before they answer, through every door: in `<think>` marks, and in gpt-oss's own format.

mod support;

use serde_json::{Value, json};
use support::gpt_oss;
use support::server::{Server, Stream, events, text};

const THOUGHT: &str = "They greet. I greet.";
const WORDS: &str = "Hello to you.";

/// A server of each format that says the same.
fn servers() -> [(&'static str, Server); 2] {
    let tagged = format!("<think>\n{THOUGHT}\n</think>\n\n{WORDS}");
    let harmony = format!(
        "<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant\
         <|channel|>final<|message|>{WORDS}<|return|>"
    );
    [
        ("tagged", Server::scripted(&[("", &tagged)], 2000.0)),
        ("harmony", gpt_oss::scripted(&[("", &harmony)], 2000.0)),
    ]
}

fn create(input: &str) -> Value {
    json!({"type": "response.create", "input": input})
}

/// The types of events, each run of deltas as one.
fn kinds(events: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    kinds.dedup();
    kinds
}

fn joined(events: &[Value], kind: &str) -> String {
    let deltas = events.iter().filter(|event| event["type"] == kind);
    deltas.map(|event| event["delta"].as_str().unwrap()).collect()
}

#[test]
fn thoughts_are_an_item_before_the_words() {
    for (format, server) in servers() {
        let mut socket = server.socket();
        socket.send(&create("hi"));
        let on_socket = socket.until("response.completed");
        let body = json!({"input": "hi", "stream": true});
        let over_http = events(&server.post("/v1/responses", &body).body);
        for events in [on_socket, over_http] {
            let expected = [
                "response.created",
                "response.in_progress",
                "response.output_item.added",
                "response.reasoning_text.delta",
                "response.reasoning_text.done",
                "response.output_item.done",
                "response.output_item.added",
                "response.content_part.added",
                "response.output_text.delta",
                "response.output_text.done",
                "response.content_part.done",
                "response.output_item.done",
                "response.completed",
            ];
            assert_eq!(kinds(&events), expected, "{format}");
            assert_eq!(joined(&events, "response.reasoning_text.delta"), THOUGHT, "{format}");
            assert_eq!(text(&events), WORDS, "{format}");
            let response = &events.last().unwrap()["response"];
            let [thought, message] = response["output"].as_array().unwrap().as_slice() else {
                panic!("{response}")
            };
            let content = json!([{"type": "reasoning_text", "text": THOUGHT}]);
            assert_eq!((&thought["type"], &thought["content"]), (&json!("reasoning"), &content));
            assert_eq!(
                (&message["type"], &message["content"][0]["text"]),
                (&json!("message"), &json!(WORDS))
            );
            let usage = &response["usage"];
            let thoughts = usage["output_tokens_details"]["reasoning_tokens"].as_u64().unwrap();
            let all = usage["output_tokens"].as_u64().unwrap();
            // Five words and two stops, four words' worth of answer; marks count as neither or either.
            assert!(thoughts >= 6 && thoughts + 4 <= all, "{format}: {usage}");
        }
    }
}

#[test]
fn chat_shows_thoughts_beside_the_words() {
    for (format, server) in servers() {
        let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
        let whole = server.post("/v1/chat/completions", &body).json();
        let message = &whole["choices"][0]["message"];
        assert_eq!((&message["reasoning_content"], &message["content"]), (&json!(THOUGHT), &json!(WORDS)));
        assert!(
            whole["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64() >= Some(6),
            "{whole}"
        );
        body["stream"] = true.into();
        let chunks = events(&server.post("/v1/chat/completions", &body).body);
        let said = |key: &str| -> String {
            chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"][key].as_str()).collect()
        };
        assert_eq!((said("reasoning_content"), said("content")), (THOUGHT.into(), WORDS.into()), "{format}");
    }
}

/// Log-probabilities are told of the answer's own tokens: together these are the answer, and there is none of a thought or a mark.
#[test]
fn only_words_have_log_probabilities() {
    for (format, server) in servers() {
        let told = |entries: &Value| -> String {
            let entries = entries.as_array().unwrap_or_else(|| panic!("{format}: none"));
            assert!(entries.iter().all(|entry| entry["logprob"].as_f64().is_some_and(|value| value <= 0.0)));
            assert!(entries.iter().all(|entry| entry["top_logprobs"].as_array().unwrap().len() == 2));
            entries.iter().map(|entry| entry["token"].as_str().unwrap()).collect()
        };
        let body = json!({"input": "hi", "top_logprobs": 2, "include": ["message.output_text.logprobs"]});
        let response = server.post("/v1/responses", &body).json();
        assert_eq!(told(&response["output"][1]["content"][0]["logprobs"]), WORDS, "{format}");
        let mut body =
            json!({"messages": [{"role": "user", "content": "hi"}], "logprobs": true, "top_logprobs": 2});
        let whole = server.post("/v1/chat/completions", &body).json();
        assert_eq!(told(&whole["choices"][0]["logprobs"]["content"]), WORDS, "{format}");
        body["stream"] = true.into();
        let chunks = events(&server.post("/v1/chat/completions", &body).body);
        let mut streamed = String::new();
        for choice in chunks.iter().map(|chunk| &chunk["choices"][0]) {
            match choice["delta"]["content"].as_str() {
                Some(words) if !words.is_empty() => {
                    assert_eq!(told(&choice["logprobs"]["content"]), words, "{format}");
                    streamed += words;
                }
                _ => assert!(choice["logprobs"].is_null(), "{choice}"),
            }
        }
        assert_eq!(streamed, WORDS);
    }
}

/// Whoever names the last response, and whoever keeps the conversation and gives thoughts back as they came.
#[test]
fn a_turn_after_thoughts_is_warm() {
    for (format, server) in servers() {
        let mut socket = server.socket();
        let greeting = "Good day to you, to your house and to all who live in it. ".repeat(4);
        socket.send(&create(&greeting));
        let first = socket.until("response.completed").pop().unwrap()["response"].clone();
        let mut named = create("again");
        named["previous_response_id"] = first["id"].clone();
        let mut input = vec![json!({"role": "user", "content": greeting})];
        input.extend(first["output"].as_array().unwrap().clone());
        input.push(json!({"role": "user", "content": "again"}));
        let prompt = first["usage"]["input_tokens"].as_u64().unwrap();
        for frame in [named, json!({"type": "response.create", "input": input})] {
            socket.send(&frame);
            let events = socket.until("response.completed");
            assert_eq!(text(&events), WORDS, "{format}");
            let usage = &events.last().unwrap()["response"]["usage"];
            let cached = usage["input_tokens_details"]["cached_tokens"].as_u64().unwrap();
            assert!(cached >= prompt, "{format}: {cached} of {prompt} tokens that were known: {usage}");
        }
    }
}

/// gpt-oss thinks, calls, thinks on with what it was told, and answers.
#[test]
fn a_call_may_follow_thoughts() {
    let thought = |text: &str| format!("<|channel|>analysis<|message|>{text}<|end|><|start|>assistant");
    let call = thought("I look.")
        + "<|channel|>commentary to=functions.look <|constrain|>json<|message|>{\"at\": \"a\"}<|call|>";
    let answer = thought("It is red.") + "<|channel|>final<|message|>Red.<|return|>";
    let server = gpt_oss::scripted(&[("what colour?", &call), ("", &answer)], 2000.0);
    let parameters = json!({"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"],
        "additionalProperties": false});
    let tools = json!([{"type": "function", "name": "look", "description": "", "parameters": parameters}]);
    let body = json!({"input": "what colour?", "tools": tools, "stream": true});
    let mut stream: Stream = server.stream("POST", "/v1/responses", Some(&body.to_string()));
    let response = stream.event("response.completed")["response"].clone();
    let [thought, call] = response["output"].as_array().unwrap().as_slice() else { panic!("{response}") };
    assert_eq!(thought["content"][0]["text"], "I look.");
    assert_eq!((&call["name"], &call["arguments"]), (&json!("look"), &json!("{\"at\": \"a\"}")));
    let output = json!({"type": "function_call_output", "call_id": call["call_id"], "output": "red"});
    let body = json!({"input": [output], "previous_response_id": response["id"], "tools": tools});
    let response = server.post("/v1/responses", &body).json();
    assert_eq!(response["output"][1]["content"][0]["text"], "Red.", "{response}");
    // What was thought before the call is still there to be read, so nothing is computed again.
    assert!(response["metadata"]["flint.cache_break"].is_null(), "{response}");
}
