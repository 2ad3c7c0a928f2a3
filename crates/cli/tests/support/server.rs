//! A server of the real binary, and a client that speaks raw bytes to it.
#![allow(dead_code)]

use crate::support::{MODEL, PATIENCE, flint, model_file, stdout};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

pub struct Served {
    pub child: Child,
    pub address: String,
    pub home: tempfile::TempDir,
    pub errors: Receiver<String>, // lines
}

/// An answer as it came.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let named = |line: &&str| line.split(':').next().is_some_and(|own| own.eq_ignore_ascii_case(name));
        self.head.lines().find(named)?.split_once(':').map(|(_, value)| value.trim())
    }

    /// The events of a stream, in order.
    pub fn events(&self) -> Vec<Value> {
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
    }
}

impl Served {
    /// Starts one with these settings and arguments, in a home of its own.
    pub fn start(config: &str, args: &[&str]) -> Served {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("config.toml"), config).unwrap();
        Served::start_in(home, args)
    }

    pub fn start_in(home: tempfile::TempDir, args: &[&str]) -> Served {
        model_file();
        let mut command = flint();
        command.args(["serve", "--port", "0", "-m", MODEL, "--threads", "2"]).args(args);
        command.env("FLINT_HOME", home.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let errors = lines(child.stderr.take().unwrap());
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().split("://").nth(1).and_then(|rest| rest.strip_suffix("/v1"));
        let Some(address) = address.map(str::to_owned) else {
            panic!("it did not start: {line:?} {:?}", errors.iter().collect::<Vec<_>>());
        };
        Served { child, address, home, errors }
    }

    /// The local user's key.
    pub fn key(&self) -> String {
        std::fs::read_to_string(self.home.path().join("key")).unwrap().trim().to_owned()
    }

    /// `flint` with the same home.
    pub fn flint(&self, args: &[&str]) -> std::process::Output {
        flint().args(args).env("FLINT_HOME", self.home.path()).output().unwrap()
    }

    pub fn add_key(&self, name: &str) -> String {
        let output = self.flint(&["key", "add", name]);
        assert!(output.status.success(), "{output:?}");
        stdout(&output).trim().to_owned()
    }

    /// Sends a head as it is, with its request line, and leaves the answer to be read.
    pub fn open(&self, line: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut head = format!("{line}\r\n");
        if !headers.iter().any(|(name, _)| *name == "Host") {
            head += &format!("Host: {}\r\n", self.address);
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if !headers.iter().any(|(name, _)| *name == "Content-Length") {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        head += &format!("\r\n{body}");
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    /// HTTP/1.0, so that the answer ends with the connection and is not chunked.
    pub fn ask(&self, line: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        answer(self.open(&format!("{line} HTTP/1.0"), headers, body))
    }

    pub fn get(&self, key: &str, path: &str) -> Answer {
        self.ask(&format!("GET {path}"), &[("Authorization", &format!("Bearer {key}"))], "")
    }

    pub fn post(&self, key: &str, path: &str, body: &Value) -> Answer {
        let headers = [("Authorization", &*format!("Bearer {key}")), ("Content-Type", "application/json")];
        self.ask(&format!("POST {path}"), &headers, &body.to_string())
    }

    /// Begins a request whose answer is read as it comes.
    pub fn begin(&self, key: &str, path: &str, body: &Value) -> BufReader<TcpStream> {
        let headers = [("Authorization", &*format!("Bearer {key}")), ("Content-Type", "application/json")];
        BufReader::new(self.open(&format!("POST {path} HTTP/1.0"), &headers, &body.to_string()))
    }

    pub fn terminate(&self) {
        // SAFETY: the child is ours and has not been waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn answer(mut stream: impl Read) -> Answer {
    let mut bytes = Vec::new();
    // A connection that is reset after its answer has said all the same.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Answer { status: status.unwrap_or_default(), head: head.to_owned(), body: body.to_owned() }
}

/// The next event of a stream that is of this type.
pub fn event(stream: &mut impl BufRead, kind: &str) -> Value {
    let mut line = String::new();
    loop {
        line.clear();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream ended before {kind}");
        let Some(data) = line.strip_prefix("data: ") else { continue };
        let event: Value = serde_json::from_str(data).unwrap();
        if event["type"] == kind {
            return event;
        }
    }
}

/// Tries until it is so.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "it does not happen: {what}");
        std::thread::yield_now();
    }
}

/// The lines of a pipe, read as they come so that it never fills.
fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = sync_channel(100_000);
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// A command with a home that nobody else uses.
pub fn flint_at(home: &Path) -> Command {
    let mut command = flint();
    command.env("FLINT_HOME", home);
    command
}
