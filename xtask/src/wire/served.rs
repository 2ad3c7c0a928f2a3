//! A server that ends with its owner.

use super::{MODEL, Socket};
use crate::Outcome;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// An answer that takes longer than this never comes.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct Served {
    child: Child,
    pub address: String, // host:port
    key: String,
    _home: tempfile::TempDir,
}

/// What is to be served.
#[derive(Debug, Default)]
pub struct Settings<'a> {
    pub model: Option<&'a str>,                 // else `MODEL`
    pub script: Option<&'a [(String, String)]>, // what is said and what is answered; else the model answers
    pub rate: Option<f64>,                      // forward passes a second of the script
    pub kv_tokens: Option<u32>,
}

impl Served {
    pub fn start(program: &Path, settings: &Settings<'_>) -> Outcome<Served> {
        let home = tempfile::tempdir()?;
        let mut command = Command::new(program);
        command
            .args(["serve", "--port", "0", "-m", settings.model.unwrap_or(MODEL)])
            .env("FLINT_HOME", home.path());
        if let Some(tokens) = settings.kv_tokens {
            command.args(["--kv-tokens", &tokens.to_string()]);
        }
        if let Some(lines) = settings.script {
            let script = home.path().join("script.json");
            std::fs::write(&script, played(lines, settings.rate).to_string())?;
            command.arg("--scripted").arg(script);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no standard output")?).read_line(&mut line)?;
        let address =
            line.trim().strip_prefix("listening on http://").and_then(|rest| rest.strip_suffix("/v1"));
        let address =
            address.ok_or_else(|| format!("the server did not start: it said {line:?}"))?.to_owned();
        let key = std::fs::read_to_string(home.path().join("key")).unwrap_or("none".into()).trim().to_owned();
        Ok(Served { child, address, key, _home: home })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The processes that it has started.
    pub fn workers(&self) -> Vec<u32> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid())).into_iter().flatten().flatten();
        let lists = threads.map(|thread| std::fs::read_to_string(thread.path().join("children")));
        let lists: Vec<String> = lists.map(Result::unwrap_or_default).collect();
        lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|pid| pid.parse().ok()).collect()
    }

    pub fn socket(&self) -> Outcome<Socket> {
        Socket::open(&self.address, &self.key, self.connect()?)
    }

    /// One request on a connection of its own; the events or the body follow.
    pub fn send(&self, method: &str, path: &str, body: &str) -> Outcome<BufReader<TcpStream>> {
        let mut stream = self.connect()?;
        let Served { address, key, .. } = self;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(&[head.as_bytes(), body.as_bytes()].concat())?;
        Ok(BufReader::new(stream))
    }

    /// The whole answer to a request without a body; none if there is no such route.
    pub fn get(&self, path: &str) -> Outcome<Option<String>> {
        let mut answer = String::new();
        self.send("GET", path, "")?.read_to_string(&mut answer)?;
        Ok(answer.starts_with("HTTP/1.1 200").then_some(answer))
    }

    fn connect(&self) -> Outcome<TcpStream> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It has nothing to lose: its folder goes with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The next event of a stream of server-sent events; none at its end.
pub fn next_event(stream: &mut impl BufRead) -> Outcome<Option<Value>> {
    Ok(next_data(stream)?.map(|data| serde_json::from_str(&data)).transpose()?)
}

/// The same as the text that it is.
pub fn next_data(stream: &mut impl BufRead) -> Outcome<Option<String>> {
    let mut line = String::new();
    while stream.read_line(&mut line)? > 0 {
        match line.trim_end().strip_prefix("data: ") {
            Some("[DONE]") => return Ok(None),
            Some(data) => return Ok(Some(data.to_owned())),
            None => line.clear(),
        }
    }
    Ok(None)
}

/// The file that the scripted device plays.
fn played(lines: &[(String, String)], rate: Option<f64>) -> Value {
    let line = |(said, answer): &(String, String)| {
        let cue = format!("{said}<|im_end|>\n<|im_start|>assistant\n");
        json!({"cue": cue, "answer": format!("{answer}<|im_end|>")})
    };
    json!({"rate": rate, "lines": lines.iter().map(line).collect::<Vec<_>>()})
}
