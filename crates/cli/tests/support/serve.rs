//! `flint serve` as a process, and a client that speaks to it over a plain socket.

use super::{MODEL, PATIENCE, flint, model_file};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A server on a port of its own.
pub struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Waits until it listens.
    pub fn start(command: &mut Command) -> Server {
        model_file();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address =
            line.trim().strip_prefix("listening on http://").and_then(|rest| rest.strip_suffix("/v1"));
        let address = address.unwrap_or_else(|| panic!("it does not listen: {line:?}")).to_owned();
        Server { child, address }
    }

    /// With its data in this directory.
    pub fn with_data(data: &Path) -> Server {
        Server::start(serve(data).args(["-m", MODEL]))
    }

    /// `kill -9`, and gone when this returns.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn get(&self, path: &str) -> (u16, Value) {
        self.request("GET", path, None)
    }

    pub fn delete(&self, path: &str) -> (u16, Value) {
        self.request("DELETE", path, None)
    }

    pub fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.request("POST", path, Some(body))
    }

    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let (status, mut reader) = self.send(method, path, body);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        let json = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text:?}"));
        (status, json)
    }

    /// A stream of events that a GET or, with a body, a POST begins.
    pub fn stream(&self, path: &str, body: Option<&Value>) -> Events {
        let method = if body.is_some() { "POST" } else { "GET" };
        let (status, reader) = self.send(method, path, body);
        assert_eq!(status, 200);
        Events { reader }
    }

    /// Sends a request and reads up to the body of the answer.
    fn send(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, BufReader<TcpStream>) {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let body = body.map(Value::to_string).unwrap_or_default();
        let head = format!(
            "{method} /v1{path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        socket.write_all(head.as_bytes()).unwrap();
        socket.write_all(body.as_bytes()).unwrap();
        let mut reader = BufReader::new(socket);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status in {line:?}"));
        while line.trim() != "" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        (status, reader)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A failed test leaves no server behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command that serves from this data; the model is still to be said.
pub fn serve(data: &Path) -> Command {
    let mut command = flint();
    command.args(["serve", "--port", "0", "--data"]).arg(data);
    command
}

/// The events of a stream, as JSON text. Ends where the stream does, even if that is torn.
pub struct Events {
    reader: BufReader<TcpStream>,
}

impl Iterator for Events {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            // Each event is a chunk of its own, so its lines are whole whatever stands between chunks.
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(data.trim_end().to_owned());
            }
        }
    }
}
