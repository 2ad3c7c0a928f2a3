//! The agent against a stand-in of another vendor: the Responses API over SSE only, without a word of Flint's own.

mod support;

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use support::{PATIENCE, Terminal, flint, stderr, stdout};

/// What was asked: the head, and the body.
struct Asked {
    head: String,
    body: Value,
}

struct Vendor {
    address: String,
    asked: Receiver<Asked>,
    home: tempfile::TempDir,
}

impl Vendor {
    /// Answers each request with the next of these outputs, as a model of that name. It lists no models.
    fn start(model: &'static str, outputs: Vec<Value>) -> Vendor {
        Vendor::listing(&[], model, outputs)
    }

    fn listing(models: &'static [&str], model: &'static str, outputs: Vec<Value>) -> Vendor {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, asked) = sync_channel(100);
        std::thread::spawn(move || {
            let mut outputs = outputs.into_iter();
            for stream in listener.incoming().flatten() {
                let Some(request) = request(&stream) else { continue };
                match request.head.split(' ').take(2).collect::<Vec<_>>()[..] {
                    ["POST", "/v1/responses"] => answer(stream, model, outputs.next().unwrap_or_default()),
                    ["GET", "/v1/models"] if !models.is_empty() => {
                        let models: Vec<Value> = models.iter().map(|id| json!({"id": id})).collect();
                        say(stream, "200 OK", &json!({"data": models}))
                    }
                    ["POST", "/v1/responses/input_tokens"] => count(stream, model, &request.body),
                    _ => refuse(stream),
                }
                if sender.send(request).is_err() {
                    return;
                }
            }
        });
        Vendor { address, asked, home: tempfile::tempdir().unwrap() }
    }

    fn exec(&self, args: &[&str]) -> Output {
        let folder = tempfile::tempdir().unwrap();
        let mut command = self.command(folder.path());
        command.arg("exec").args(args).stdin(Stdio::null()).output().unwrap()
    }

    fn command(&self, folder: &Path) -> Command {
        let url = format!("model_providers.v.base_url=\"http://{}/v1\"", self.address);
        let mut command = flint();
        command.env("FLINT_HOME", self.home.path()).env("V_KEY", "sekret").current_dir(folder);
        command.args(["-c", "model_provider=\"v\"", "-c", &url, "-c", "model_providers.v.env_key=\"V_KEY\""]);
        command
    }

    fn asked(&self) -> Asked {
        loop {
            let asked = self.asked.recv_timeout(PATIENCE).unwrap();
            if asked.head.starts_with("POST") {
                return asked;
            }
        }
    }
}

fn request(stream: &TcpStream) -> Option<Asked> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let lower = head.to_lowercase();
    let length =
        lower.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Asked { head, body: serde_json::from_slice(&body).unwrap_or_default() })
}

fn refuse(mut stream: TcpStream) {
    let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
}

fn say(mut stream: TcpStream, status: &str, body: &Value) {
    let (body, length) = (body.to_string(), body.to_string().len());
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    let _ = stream.write_all((head + &body).as_bytes());
}

/// Tokens of an input, for those whose plan has the model.
fn count(stream: TcpStream, model: &str, asked: &Value) {
    match asked["model"] == model {
        true => say(stream, "200 OK", &json!({"object": "response.input_tokens", "input_tokens": 1})),
        false => {
            let message = "Your plan does not have vendor-max.";
            say(stream, "403 Forbidden", &json!({"error": {"code": "no_access", "message": message}}));
        }
    }
}

fn answer(mut stream: TcpStream, model: &str, item: Value) {
    let response = |status: &str, output: Value| {
        json!({"id": "resp_v", "object": "response", "status": status, "model": model, "output": output,
            "usage": {"input_tokens": 11, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 3}}})
    };
    let mut events = vec![
        json!({"type": "response.created", "response": response("in_progress", json!([]))}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": {"id": item["id"], "type": item["type"]}}),
    ];
    for text in item["content"][0]["text"].as_str().unwrap_or_default().split_inclusive(' ') {
        events.push(json!({"type": "response.output_text.delta", "item_id": item["id"], "delta": text}));
    }
    events.push(json!({"type": "response.output_item.done", "output_index": 0, "item": item}));
    events.push(json!({"type": "response.completed", "response": response("completed", json!([item]))}));
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let _ = stream.write_all(head.as_bytes());
    for event in events {
        let kind = event["type"].as_str().unwrap();
        let _ = stream.write_all(format!("event: {kind}\r\ndata: {event}\r\n\r\n").as_bytes());
    }
}

fn message(text: &str) -> Value {
    json!({"id": "msg_v", "type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

#[test]
fn a_tool_is_called_and_the_answer_told() {
    let call = json!({"id": "fc_v", "type": "function_call", "call_id": "call_v", "name": "shell",
        "arguments": "{\"command\": \"echo hi there\"}", "status": "completed"});
    let vendor = Vendor::start("vendor-1-2026-02-03", vec![call, message("It says hi.")]);
    let output = vendor.exec(&["-m", "vendor-1", "say hi"]);
    assert_eq!(
        (output.status.code(), stdout(&output).as_str()),
        (Some(0), "It says hi.\n"),
        "{}",
        stderr(&output)
    );
    let (first, second) = (vendor.asked(), vendor.asked());
    assert!(first.head.to_lowercase().contains("authorization: bearer sekret"), "{}", first.head);
    assert_eq!((&first.body["model"], &first.body["stream"]), (&json!("vendor-1"), &json!(true)));
    // Nothing of Flint's own goes to others, and all that was said goes again.
    assert!(!first.body.to_string().contains("x-flint"));
    assert_eq!(second.body["previous_response_id"], Value::Null);
    let items = second.body["input"].as_array().unwrap();
    let last = items.last().unwrap();
    assert_eq!((&last["type"], &last["call_id"]), (&json!("function_call_output"), &json!("call_v")));
    assert!(last["output"].as_str().unwrap().contains("hi there"), "{last}");
    assert!(items.len() == first.body["input"].as_array().unwrap().len() + 2, "{items:?}");
}

#[test]
fn another_model_is_not_taken_for_the_one_that_was_asked() {
    let vendor = Vendor::start("vendor-1-mini", vec![message("I am another.")]);
    let output = vendor.exec(&["-m", "vendor-1", "who are you?"]);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("vendor-1 was asked for, and vendor-1-mini answered"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_key_that_is_not_set_is_said() {
    let vendor = Vendor::start("vendor-1", Vec::new());
    let output = vendor.exec(&["-c", "model_providers.v.env_key=\"NOT_SET_KEY\"", "hello"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("NOT_SET_KEY is not set"), "{}", stderr(&output));
}

#[test]
fn a_model_that_is_listed_and_not_served_is_told_with_the_reason() {
    let vendor = Vendor::listing(&["vendor-1", "vendor-max"], "vendor-1", Vec::new());
    let folder = tempfile::tempdir().unwrap();
    let mut terminal =
        Terminal::open(vendor.command(folder.path()).args(["-m", "vendor-1"]).env("TERM", "xterm-256color"));
    terminal.wait_for("Do you trust it?");
    terminal.press("y\n");
    terminal.wait_for("enter");
    terminal.press("/model\r");
    terminal.wait_for("Your plan does not have vendor-max.");
}

#[test]
fn a_role_is_what_its_file_says_and_another_model_is_not_taken_for_its() {
    let call = json!({"id": "fc_v", "type": "function_call", "call_id": "call_v", "name": "agent",
        "arguments": "{\"role\": \"deep\", \"task\": \"think hard\"}", "status": "completed"});
    let (one, two) = (message("Very well."), message("As you say."));
    // There is no list of models here: who answered is seen by the answer.
    let vendor = Vendor::start("vendor-1", vec![call, one.clone(), one, two]);
    let role = "model = 'vendor-2'\nmodel_reasoning_effort = 'high'\ndeveloper_instructions = 'Be deep.'\n";
    std::fs::create_dir(vendor.home.path().join("agents")).unwrap();
    std::fs::write(vendor.home.path().join("agents/deep.toml"), role).unwrap();
    let output = vendor.exec(&["-m", "vendor-1", "-c", "model_reasoning_effort=low", "go deep"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let asked: Vec<Value> = std::iter::repeat_with(|| vendor.asked().body).take(4).collect();
    let tools = |body: &Value| body["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "agent");
    let own = asked.iter().find(|body| body["model"] == "vendor-2").unwrap();
    assert_eq!(own["reasoning"]["effort"], "high");
    assert!(own["instructions"].as_str().unwrap().ends_with("\nBe deep.\n") && !tools(own), "{own}");
    assert!(asked[0]["reasoning"]["effort"] == "low" && tools(&asked[0]), "{}", asked[0]);
    let last = asked.last().unwrap()["input"].to_string();
    assert!(last.contains("It failed: vendor-2 was asked for, and vendor-1 answered."), "{last}");
}
