//! A stand-in of another vendor: the Responses API over SSE only, without a word of Flint's own.

use super::{PATIENCE, flint};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};

/// What was asked: the head, and the body.
pub struct Asked {
    pub head: String,
    pub body: Value,
}

pub struct Vendor {
    pub address: String,
    asked: Receiver<Asked>,
    pub home: tempfile::TempDir,
}

impl Vendor {
    /// Answers each request with the next of these outputs, an item or a list of them, as a model of that name. It lists
    /// no models.
    pub fn start(model: &'static str, outputs: Vec<Value>) -> Vendor {
        Vendor::listing(&[], model, outputs)
    }

    /// As each of these models when it is asked for.
    pub fn listing(models: &'static [&str], model: &'static str, outputs: Vec<Value>) -> Vendor {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, asked) = sync_channel(100);
        std::thread::spawn(move || {
            let mut outputs = outputs.into_iter();
            for stream in listener.incoming().flatten() {
                let Some(request) = request(&stream) else { continue };
                match request.head.split(' ').take(2).collect::<Vec<_>>()[..] {
                    ["POST", "/v1/responses"] => {
                        let asked = models.iter().find(|name| request.body["model"] == **name);
                        answer(stream, asked.unwrap_or(&model), outputs.next().unwrap_or_default());
                    }
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

    pub fn exec(&self, args: &[&str]) -> Output {
        let folder = tempfile::tempdir().unwrap();
        let mut command = self.command(folder.path());
        command.arg("exec").args(args).stdin(Stdio::null()).output().unwrap()
    }

    pub fn command(&self, folder: &Path) -> Command {
        let url = format!("model_providers.v.base_url=\"http://{}/v1\"", self.address);
        let mut command = flint();
        command.env("FLINT_HOME", self.home.path()).env("V_KEY", "sekret").current_dir(folder);
        command.args(["-c", "model_provider=\"v\"", "-c", &url, "-c", "model_providers.v.env_key=\"V_KEY\""]);
        command
    }

    pub fn asked(&self) -> Asked {
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

fn answer(mut stream: TcpStream, model: &str, output: Value) {
    let items = if output.is_array() { output } else { json!([output]) };
    let response = |status: &str, output: Value| {
        json!({"id": "resp_v", "object": "response", "status": status, "model": model, "output": output,
            "usage": {"input_tokens": 11, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 3}}})
    };
    let mut events =
        vec![json!({"type": "response.created", "response": response("in_progress", json!([]))})];
    for (index, item) in items.as_array().unwrap().iter().enumerate() {
        let begun = json!({"id": item["id"], "type": item["type"]});
        events.push(json!({"type": "response.output_item.added", "output_index": index, "item": begun}));
        for text in item["content"][0]["text"].as_str().unwrap_or_default().split_inclusive(' ') {
            events.push(json!({"type": "response.output_text.delta", "item_id": item["id"], "delta": text}));
        }
        events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
    }
    events.push(json!({"type": "response.completed", "response": response("completed", items)}));
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let _ = stream.write_all(head.as_bytes());
    for event in events {
        let kind = event["type"].as_str().unwrap();
        let _ = stream.write_all(format!("event: {kind}\r\ndata: {event}\r\n\r\n").as_bytes());
    }
}

pub fn message(text: &str) -> Value {
    json!({"id": "msg_v", "type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
}
