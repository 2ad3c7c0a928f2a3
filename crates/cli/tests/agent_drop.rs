//! A connection that breaks in mid-answer: the agent takes the answer up where it was.

mod support;

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, Sender, channel};
use support::server::Server;
use support::{flint, stderr, stdout};

/// Passes bytes on, but cuts the first connection when a word has gone by.
struct Cut {
    listener: TcpListener,
    address: String,
}

impl Cut {
    fn new() -> Cut {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        Cut { listener, address }
    }

    /// Tells the first line of each connection.
    fn start(self, server: &Server, word: &'static str) -> Receiver<String> {
        let (to, (lines, asked)) = (server.address.clone(), channel());
        std::thread::spawn(move || {
            let mut word = Some(word);
            for client in self.listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&to) else { continue };
                let (up, down) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let lines = lines.clone();
                std::thread::spawn(move || pass_up(up, server, &lines));
                let word = word.take();
                std::thread::spawn(move || pass_down(down, client, word));
            }
        });
        asked
    }
}

fn pass_up(mut client: TcpStream, mut server: TcpStream, lines: &Sender<String>) {
    let (mut bytes, mut first) = ([0; 4096], true);
    while let Ok(count @ 1..) = client.read(&mut bytes) {
        if std::mem::take(&mut first) {
            let line = String::from_utf8_lossy(&bytes[..count]).lines().next().unwrap_or_default().to_owned();
            let _ = lines.send(line);
        }
        if server.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
    let _ = server.shutdown(Shutdown::Both);
}

fn pass_down(mut server: TcpStream, mut client: TcpStream, word: Option<&str>) {
    let (mut bytes, mut seen) = ([0; 4096], String::new());
    while let Ok(count @ 1..) = server.read(&mut bytes) {
        if client.write_all(&bytes[..count]).is_err() {
            break;
        }
        seen += &String::from_utf8_lossy(&bytes[..count]);
        if word.is_some_and(|word| seen.contains(word)) {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
}

#[test]
fn an_answer_goes_on_where_its_connection_broke() {
    let words: Vec<String> = (0..150).map(|number| format!("n{number}")).collect();
    let long = words.join(" ");
    let look = format!("<tool_call>\n{}\n</tool_call>", json!({"name": "list", "arguments": {"path": "."}}));
    let (folder, home, other) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cut = Cut::new();
    let lines = [("tell it all", look.as_str()), ("", &long)];
    let server = Server::scripted_in(other, &lines, 300.0, &["--allow-host", &cut.address], &[]);
    std::fs::write(folder.path().join("a.txt"), "one\n").unwrap();
    let url = format!("model_providers.p.base_url=\"http://{}/v1\"", cut.address);
    let settings = [
        "model_provider=\"p\"",
        &url,
        "model_providers.p.supports_websockets=true",
        "model_providers.p.env_key=\"P_KEY\"",
    ];
    let asked = cut.start(&server, "n60");
    let mut command = flint();
    command.env("FLINT_HOME", home.path()).env("P_KEY", &server.key).stdin(Stdio::null());
    command.current_dir(folder.path()).arg("exec").args(settings.iter().flat_map(|set| ["-c", *set]));
    let output = command.args(["--json", "tell it all"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));

    let events =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>();
    let message = events.iter().rfind(|event| event["item"]["type"] == "agent_message").unwrap();
    assert_eq!(message["item"]["text"], long.as_str());
    let asked: Vec<String> = asked.try_iter().collect();
    let taken_up =
        |line: &&String| line.starts_with("GET /v1/responses/resp_") && line.contains("starting_after=");
    assert_eq!(asked.iter().filter(taken_up).count(), 1, "{asked:?}");
    // Nothing was written twice: the last event counts both answers, and the server counts no third.
    assert_eq!(events.last().unwrap()["flint"]["requests"], 2);
    let made = server.get("/v1/usage").json();
    let tokens = events.last().unwrap()["usage"]["output_tokens"].as_u64();
    assert_eq!(made["total"]["output_tokens"].as_u64(), tokens, "{made}");
}
