//! A server that ends with its owner.

use super::{MODEL, Socket};
use crate::Outcome;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// An answer that takes longer than this never comes.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct Served {
    command: Command,
    child: Child,
    pub address: String, // host:port
    key: String,
    layer: Option<Layer>,
    _home: tempfile::TempDir,
}

/// A connection, whatever lies between it and the network.
pub trait Duplex: Read + Write + Send {}

impl<T: Read + Write + Send> Duplex for T {}

/// What lies between all connections and the network: how the server is told, and what the client does.
pub struct Layer {
    pub args: Vec<OsString>,
    pub wrap: Box<Wrap>,
}

type Wrap = dyn Fn(TcpStream) -> Outcome<Box<dyn Duplex>> + Send + Sync;

/// What is to be served.
#[derive(Debug, Default)]
pub struct Settings<'a> {
    pub model: Option<&'a str>,                 // else `MODEL`
    pub script: Option<&'a [(String, String)]>, // what is said and what is answered; else the model answers
    pub rate: Option<f64>,                      // forward passes a second of the script
    pub kv_tokens: Option<u32>,
    pub config: Option<&'a str>, // what `config.toml` says
    pub args: &'a [&'a str],
}

impl Served {
    pub fn start(program: &Path, settings: &Settings<'_>) -> Outcome<Served> {
        Served::behind(None, program, settings)
    }

    pub fn behind(layer: Option<Layer>, program: &Path, settings: &Settings<'_>) -> Outcome<Served> {
        let home = tempfile::tempdir()?;
        let mut command = Command::new(program);
        command
            .args(["serve", "--port", "0", "-m", settings.model.unwrap_or(MODEL)])
            .args(settings.args)
            .env("FLINT_HOME", home.path());
        if let Some(tokens) = settings.kv_tokens {
            command.args(["--kv-tokens", &tokens.to_string()]);
        }
        if let Some(lines) = settings.script {
            let script = home.path().join("script.json");
            std::fs::write(&script, played(lines, settings.rate).to_string())?;
            command.arg("--scripted").arg(script);
        }
        if let Some(config) = settings.config {
            std::fs::write(home.path().join("config.toml"), config)?;
        }
        command.args(layer.iter().flat_map(|layer| &layer.args));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let (child, address) = launch(&mut command)?;
        let key = std::fs::read_to_string(home.path().join("key")).unwrap_or("none".into()).trim().to_owned();
        Ok(Served { command, child, address, key, layer, _home: home })
    }

    /// Starts it again, at another address, on the data that it has left.
    pub fn restart(&mut self) -> Outcome {
        self.end();
        (self.child, self.address) = launch(&mut self.command)?;
        Ok(())
    }

    fn end(&mut self) {
        // One that has ended by itself cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
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
    pub fn send(&self, method: &str, path: &str, body: &str) -> Outcome<BufReader<Box<dyn Duplex>>> {
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

    /// What the server's metrics say, summed over the samples with this label.
    pub fn metric(&self, name: &str, label: &str) -> Outcome<u64> {
        let mut page = String::new();
        self.send("GET", "/metrics", "")?.read_to_string(&mut page)?;
        let samples = page.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let labels = series.strip_prefix(name)?.strip_prefix('{')?;
            labels.contains(label).then(|| value.parse::<u64>().ok())?
        });
        let samples: Vec<u64> = samples.collect();
        match samples.is_empty() {
            true => Err(format!("the server does not tell {name}{{{label}}}").into()),
            false => Ok(samples.iter().sum()),
        }
    }

    /// Bytes of the server that are in memory.
    pub fn resident_bytes(&self) -> Outcome<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        Ok(kib.ok_or("the server's memory is not told")?.parse::<u64>()? << 10)
    }

    fn connect(&self) -> Outcome<Box<dyn Duplex>> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        match &self.layer {
            Some(layer) => (layer.wrap)(stream),
            None => Ok(Box::new(stream)),
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It has nothing to lose: its folder goes with it.
        self.end();
    }
}

/// Starts the server, and waits until it says where it is.
fn launch(command: &mut Command) -> Outcome<(Child, String)> {
    let mut child =
        command.spawn().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no standard output")?).read_line(&mut line)?;
    let url = line.trim().strip_prefix("listening on ").and_then(|rest| rest.strip_suffix("/v1"));
    match url.and_then(|url| url.split_once("://")).map(|(_, address)| address) {
        Some(address) => Ok((child, address.to_owned())),
        None => {
            let _ = child.kill();
            let _ = child.wait();
            Err(format!("the server did not start: it said {line:?}").into())
        }
    }
}

/// The head of an answer, as it came, up to its empty line.
pub fn head(stream: &mut impl BufRead) -> Outcome<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head)? == 0 {
            return Err(format!("the answer ended in its head: {head:?}").into());
        }
    }
    Ok(head)
}

/// The next event of a stream of server-sent events; none at its end, even if that is in the middle of a line.
pub fn next_event(stream: &mut impl BufRead) -> Outcome<Option<Value>> {
    Ok(next_data(stream)?.map(|data| serde_json::from_str(&data)).transpose()?)
}

/// The same as the text that it is.
pub fn next_data(stream: &mut impl BufRead) -> Outcome<Option<String>> {
    let mut line = String::new();
    while stream.read_line(&mut line)? > 0 && line.ends_with('\n') {
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
