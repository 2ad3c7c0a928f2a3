//! What responses say about themselves and about what was left out, and what is refused in words.

mod support;

use serde_json::{Value, json};
use support::MODEL;
use support::server::{Answer, Server, text};

fn metadata<'a>(response: &'a Value, key: &str) -> &'a str {
    let metadata = &response["metadata"];
    metadata[key].as_str().unwrap_or_else(|| panic!("no {key}: {metadata}"))
}

fn number(response: &Value, key: &str) -> f64 {
    metadata(response, key).parse().unwrap_or_else(|error| panic!("{key}: {error}"))
}

fn ask(server: &Server, path: &str, body: &Value) -> Value {
    let answer = server.post(path, body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

fn answer(response: &Value) -> &str {
    response["output"][0]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{response}"))
}

fn refused(answer: &Answer, status: u16, code: &str, words: &[&str]) {
    let error = &answer.json()["error"];
    assert_eq!((answer.status, &error["code"]), (status, &json!(code)), "{error}");
    for word in words {
        assert!(error["message"].as_str().unwrap().contains(word), "{word} in {error}");
    }
}

#[test]
fn a_response_says_who_answered_and_where_the_time_went() {
    let server = Server::start();
    let models = server.get("/v1/models").json();
    let listed = &models["data"][0];
    let asked = json!({"model": MODEL, "input": "Name a colour.", "max_output_tokens": 8,
        "metadata": {"mine": "stays"}});
    let response = ask(&server, "/v1/responses", &asked);
    for (key, value) in [
        ("flint.model_asked", MODEL),
        ("flint.model_served", MODEL),
        ("flint.weights_sha256", listed["weights_sha256"].as_str().unwrap()),
        ("flint.quantisation", listed["quantisation"].as_str().unwrap()),
        ("flint.device", listed["device"].as_str().unwrap()),
        ("flint.engine", concat!("flint ", env!("CARGO_PKG_VERSION"))),
        ("flint.speculation", "on"),
        ("flint.fallback", "none"),
        ("flint.service_tier", "default"),
        ("flint.queue_ms", "0.000"),
        ("mine", "stays"),
    ] {
        assert_eq!(metadata(&response, key), value, "{key}");
    }
    let file = support::model_file();
    let digest = support::stdout(&support::succeeds(std::process::Command::new("sha256sum").arg(file)));
    assert!(digest.starts_with(metadata(&response, "flint.weights_sha256")), "{digest}");
    for key in ["flint.render_ms", "flint.prefill_ms", "flint.decode_ms", "flint.tokens_per_second"] {
        assert!(number(&response, key) > 0.0, "{key}");
    }
    let usage = &response["usage"];
    let counted = |key: &str| usage[key].as_f64().unwrap();
    assert_eq!(
        number(&response, "flint.tokens_cached") + number(&response, "flint.tokens_prefilled"),
        counted("input_tokens")
    );
    assert_eq!(number(&response, "flint.tokens_generated"), counted("output_tokens"));
}

#[test]
fn what_is_left_out_is_named() {
    let server = Server::scripted(&[("hi", "hello")], 2000.0);
    let tools = json!([
        {"type": "web_search", "external_web_access": false},
        {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}},
        {"type": "mcp", "server_label": "x", "server_url": "http://x.example"},
        {"type": "namespace", "name": "n", "tools": [{"type": "computer_use_preview"}]},
    ]);
    let asked = json!({"input": "hi", "tools": tools, "truncation": "auto", "colour": "red",
        "reasoning": {"effort": "high"}, "prediction": {"type": "content", "content": "hello"}});
    let response = ask(&server, "/v1/responses", &asked);
    assert_eq!(answer(&response), "hello");
    assert_eq!(metadata(&response, "flint.skipped_tools"), "web_search, mcp, computer_use_preview");
    // The scripted device guesses nothing, and the model does not think.
    let ignored = "truncation, colour, reasoning.effort, prediction";
    assert_eq!(metadata(&response, "flint.ignored_fields"), ignored);
    let chat = json!({"messages": [{"role": "user", "content": "hi"}], "store": true, "colour": "red"});
    let response = ask(&server, "/v1/chat/completions", &chat);
    assert_eq!(metadata(&response, "flint.ignored_fields"), "store, colour");
    let completion = json!({"prompt": "hi", "max_tokens": 1, "best_of": 2});
    let response = ask(&server, "/v1/completions", &completion);
    assert_eq!(metadata(&response, "flint.ignored_fields"), "best_of");
    let plain = ask(&server, "/v1/responses", &json!({"input": "hi"}));
    for key in ["flint.skipped_tools", "flint.ignored_fields", "flint.unenforced_tools"] {
        assert!(plain["metadata"][key].is_null(), "{key}: {plain}");
    }
}

#[test]
fn a_model_that_is_not_there_is_an_error_that_lists_what_is() {
    let server = Server::scripted(&[("hi", "hello")], 2000.0);
    let bodies = [
        ("/v1/responses", json!({"model": "gpt-5", "input": "hi"})),
        ("/v1/chat/completions", json!({"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}]})),
        ("/v1/completions", json!({"model": "gpt-5", "prompt": "hi"})),
    ];
    for (path, body) in bodies {
        refused(&server.post(path, &body), 404, "model_not_found", &["`gpt-5`", MODEL]);
    }
}

#[test]
fn what_the_model_cannot_read_is_refused_in_words() {
    let server = Server::scripted(&[("hi", "hello")], 2000.0);
    let message =
        |part: Value| json!([{"role": "user", "content": [{"type": "input_text", "text": "hi"}, part]}]);
    let image = json!({"type": "input_image", "image_url": "data:image/png;base64,AA=="});
    let chat_image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}});
    let output = json!([{"type": "function_call", "call_id": "c", "name": "view_image", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [image]}]);
    for (path, body, kind) in [
        ("/v1/responses", json!({"input": message(image.clone())}), "images"),
        ("/v1/responses", json!({"input": output}), "images"),
        ("/v1/responses", json!({"input": message(json!({"type": "input_file", "file_id": "f"}))}), "files"),
        (
            "/v1/responses",
            json!({"input": message(json!({"type": "input_audio", "input_audio": {}}))}),
            "audio",
        ),
        ("/v1/chat/completions", json!({"messages": message(chat_image)}), "images"),
        ("/v1/responses/input_tokens", json!({"input": message(image.clone())}), "images"),
    ] {
        let words = [&format!("{MODEL} reads text only"), kind];
        refused(&server.post(path, &body), 400, "unsupported_modality", &words);
    }
    let mut socket = server.socket();
    socket.send(&json!({"type": "response.create", "input": message(image)}));
    let error = socket.next();
    assert_eq!((&error["status"], &error["error"]["code"]), (&json!(400), &json!("unsupported_modality")));
    socket.send(&json!({"type": "response.create", "input": "hi"}));
    assert_eq!(text(&socket.until("response.completed")), "hello");
}

/// A guess is no promise: whatever the client expects, the tokens are those that would have come anyway.
#[test]
fn a_prediction_saves_time_and_changes_no_token() {
    let server = Server::start();
    let said = "Write a function in Python that returns the larger of two numbers, with a docstring.";
    let chat = |prediction: Option<&str>| {
        let prediction = prediction.map(|text| json!({"type": "content", "content": text}));
        let body = json!({"messages": [{"role": "user", "content": said}], "max_tokens": 120,
            "prediction": prediction});
        let response = ask(&server, "/v1/chat/completions", &body);
        let content = response["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
        (content, number(&response, "flint.tokens_accepted"), number(&response, "flint.tokens_drafted"))
    };
    let (plain, by_itself, _) = chat(None);
    let (right, accepted, drafted) = chat(Some(&plain));
    assert_eq!(right, plain);
    assert!(accepted <= drafted && accepted > by_itself + 20.0, "{accepted} of {drafted}, else {by_itself}");
    let wrong = plain.replace("def ", "fn ").replace("return", "yield");
    assert_ne!(wrong, plain);
    let (content, accepted_of_wrong, _) = chat(Some(&wrong));
    assert_eq!(content, plain);
    assert!(accepted_of_wrong < accepted, "{accepted_of_wrong} of what is wrong in places, {accepted}");
    // The same field of a response, streamed.
    let body = json!({"input": said, "max_output_tokens": 120, "prediction": {"content": plain}});
    let response = ask(&server, "/v1/responses", &body);
    assert_eq!(answer(&response), plain);
    assert!(number(&response, "flint.tokens_accepted") > by_itself + 20.0, "{response}");
    assert!(response["metadata"]["flint.ignored_fields"].is_null());
}

#[test]
fn a_prediction_is_named_where_nothing_is_guessed() {
    let server = Server::start_in(tempfile::tempdir().unwrap(), &["--no-speculation"]);
    let body = json!({"input": "Count to five.", "max_output_tokens": 20, "prediction": {"content": "1, 2, 3, 4, 5"}});
    let response = ask(&server, "/v1/responses", &body);
    assert_eq!(metadata(&response, "flint.speculation"), "off");
    assert_eq!(metadata(&response, "flint.ignored_fields"), "prediction");
    assert_eq!(number(&response, "flint.tokens_drafted"), 0.0);
}

#[test]
fn a_schema_that_cannot_be_honoured_is_refused_and_a_large_one_is_not() {
    let server = Server::start();
    let format = |schema: Value| {
        json!({"input": "An example.", "max_output_tokens": 200,
            "text": {"format": {"type": "json_schema", "name": "s", "schema": schema}}})
    };
    let impossible = json!({"type": "object", "properties": {"a": {"$ref": "http://x.example/schema"}}});
    let words = ["`text.format.schema` cannot be honoured", "x.example"];
    refused(&server.post("/v1/responses", &format(impossible.clone())), 400, "invalid_json_schema", &words);
    let member = |n: usize| (format!("p{n}"), json!({"type": "string", "description": "what it is for"}));
    let large = json!({"type": "object", "properties": (0..3000).map(member).collect::<serde_json::Map<_, _>>(),
        "required": [], "additionalProperties": false, "maxProperties": 1});
    assert!(large.to_string().len() > 150_000);
    ask(&server, "/v1/responses", &format(large));
    // Of tools, which are not the answer's form, it is said which are not held to their schemas.
    let tool =
        |name: &str, parameters: Value| json!({"type": "function", "name": name, "parameters": parameters});
    let tools = json!([tool("odd", impossible), tool("even", json!({"type": "object"}))]);
    let response =
        ask(&server, "/v1/responses", &json!({"input": "hi", "max_output_tokens": 2, "tools": tools}));
    assert_eq!(metadata(&response, "flint.unenforced_tools"), "odd");
}
