//! The real server on a real socket.

use super::served::play;
use super::{MODEL, PATIENCE, flint, model_file};
use serde_json::Value;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Instant;
use tungstenite::client::IntoClientRequest;
use tungstenite::{Message, WebSocket};

/// A server that ends with the test.
pub struct Server {
    child: Child,
    pub address: String, // host:port
    pub key: String,
    pub home: tempfile::TempDir,
}

/// The answer to one request.
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
}

impl Server {
    /// Serves the small model.
    pub fn start() -> Server {
        Server::start_in(tempfile::tempdir().unwrap(), &[])
    }

    /// Serves another model.
    pub fn of(model: &str) -> Server {
        Server::start_in(tempfile::tempdir().unwrap(), &["-m", model])
    }

    /// Serves answers that are given, at a given number of tokens a second.
    pub fn scripted(lines: &[(&str, &str)], rate: f64) -> Server {
        Server::scripted_in(tempfile::tempdir().unwrap(), lines, rate, &[], &[])
    }

    /// With what is in a home already, more arguments and variables.
    pub fn scripted_in(
        home: tempfile::TempDir,
        lines: &[(&str, &str)],
        rate: f64,
        args: &[&str],
        variables: &[(&str, &str)],
    ) -> Server {
        let script = script(home.path(), lines, rate);
        Server::start_with(home, &[&["--scripted", &script], args].concat(), variables)
    }

    pub fn start_in(home: tempfile::TempDir, args: &[&str]) -> Server {
        Server::start_with(home, args, &[])
    }

    /// One that a limit on the size of files does not kill: writing fails, as on a disk that is full or broken.
    pub fn scripted_with_a_weak_disk(lines: &[(&str, &str)], rate: f64) -> Server {
        use std::os::unix::process::CommandExt;
        let home = tempfile::tempdir().unwrap();
        let script = script(home.path(), lines, rate);
        let mut command = command(home.path(), &["--scripted", &script], &[]);
        // SAFETY: ignoring a signal is all that is done between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
                Ok(())
            })
        };
        let (child, address) = listening(command, home.path());
        let key = read_key(home.path());
        Server { child, address, key, home }
    }

    /// No file of the server grows beyond so many bytes; none: as large as they like.
    pub fn limit_files(&self, bytes_max: Option<u64>) {
        let most = bytes_max.unwrap_or(libc::RLIM_INFINITY);
        let limit = libc::rlimit { rlim_cur: most, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the limit is read only, and the child has not been waited for.
        let outcome =
            unsafe { libc::prlimit(self.pid() as i32, libc::RLIMIT_FSIZE, &limit, std::ptr::null_mut()) };
        assert_eq!(outcome, 0);
    }

    fn start_with(home: tempfile::TempDir, args: &[&str], variables: &[(&str, &str)]) -> Server {
        let (child, address) = launch(home.path(), args, variables);
        let key = read_key(home.path());
        Server { child, address, key, home }
    }

    /// `kill -9`, then another server in the same home.
    pub fn restart(&mut self, args: &[&str]) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        (self.child, self.address) = launch(self.home.path(), args, &[]);
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has said on standard error so far.
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.home.path().join("said")).unwrap()
    }

    /// `flint` with the same home.
    pub fn flint(&self, args: &[&str]) -> Output {
        flint().args(args).env("FLINT_HOME", self.home.path()).output().unwrap()
    }

    /// SIGTERM.
    pub fn terminate(&self) {
        // SAFETY: the child is ours and has not been waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
    }

    /// Until it ends by itself.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub fn get(&self, path: &str) -> Answer {
        self.request("GET", path, None)
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.request("POST", path, Some(&body.to_string()))
    }

    pub fn request(&self, method: &str, path: &str, body: Option<&str>) -> Answer {
        let mut bytes = Vec::new();
        self.send(method, path, body).read_to_end(&mut bytes).unwrap();
        answer(&bytes)
    }

    /// The events of an answer, one by one as they come.
    pub fn stream(&self, method: &str, path: &str, body: Option<&str>) -> Stream {
        Stream::of(self.send(method, path, body))
    }

    fn send(&self, method: &str, path: &str, body: Option<&str>) -> TcpStream {
        let bearer = format!("Bearer {}", self.key);
        let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
        self.open(&format!("{method} {path}"), &headers, body.unwrap_or_default())
    }

    /// Sends exactly these headers, and those without which there is no request if they are not among them.
    pub fn open(&self, line: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        open(&self.address, line, headers, body)
    }

    /// The same, with the answer.
    pub fn ask(&self, line: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut bytes = Vec::new();
        // A connection that is reset after its answer has said all the same.
        let _ = self.open(line, headers, body).read_to_end(&mut bytes);
        answer(&bytes)
    }

    pub fn socket(&self) -> Socket {
        self.socket_with(&[])
    }

    /// With more headers in the upgrade.
    pub fn socket_with(&self, headers: &[(&'static str, &str)]) -> Socket {
        Socket::open(&self.address, &self.key, headers)
    }
}

/// The file that has a scripted model say these things, so many tokens a second.
pub fn script(folder: &Path, lines: &[(&str, &str)], rate: f64) -> String {
    play(folder, &lines.iter().map(cue_and_answer).collect::<Vec<_>>(), Some(rate))
}

/// How the prompt of a small model ends when this is said, and what it writes then.
pub fn cue_and_answer((said, answer): &(&str, &str)) -> (String, String) {
    (format!("{said}<|im_end|>\n<|im_start|>assistant\n"), format!("{answer}<|im_end|>"))
}

/// Sends a request with exactly these headers, and those without which there is none.
pub fn open(address: &str, line: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len().to_string();
    let needed = [("Host", address), ("Connection", "close"), ("Content-Length", &length)];
    let given = |name: &str| headers.iter().any(|(own, _)| *own == name);
    let mut head = format!("{line} HTTP/1.1\r\n");
    for (name, value) in needed.iter().filter(|(name, _)| !given(name)).chain(headers) {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all((head + "\r\n" + body).as_bytes()).unwrap();
    stream
}

/// Starts a server and waits until it listens.
fn launch(home: &Path, args: &[&str], variables: &[(&str, &str)]) -> (Child, String) {
    listening(command(home, args, variables), home)
}

fn command(home: &Path, args: &[&str], variables: &[(&str, &str)]) -> Command {
    model_file();
    let mut command = flint();
    command.args(["serve", "--port", "0"]).args(args).env("FLINT_HOME", home);
    command.envs(variables.iter().copied());
    if !args.contains(&"-m") {
        command.args(["-m", MODEL]);
    }
    command
}

fn listening(mut command: Command, home: &Path) -> (Child, String) {
    let said = home.join("said");
    let errors = OpenOptions::new().create(true).append(true).open(&said).unwrap();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("listening on ").and_then(|url| url.strip_suffix("/v1"));
    let address = url.and_then(|url| url.strip_prefix("http://").or(url.strip_prefix("https://")));
    let Some(address) = address.map(str::to_owned) else {
        panic!("it did not start: {line:?} {}", std::fs::read_to_string(said).unwrap());
    };
    (child, address)
}

/// Tries until it is so.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "it does not happen: {what}");
        std::thread::yield_now();
    }
}

/// The events of a stream as JSON text. Ends where the stream does, even if that is torn.
pub struct Stream {
    lines: BufReader<TcpStream>,
}

impl Stream {
    pub fn of(stream: TcpStream) -> Stream {
        Stream { lines: BufReader::new(stream) }
    }

    /// The next event of this type.
    pub fn event(&mut self, kind: &str) -> Value {
        let events = self.map(|json| serde_json::from_str::<Value>(&json).unwrap());
        let mut found = events.filter(|event| event["type"] == kind);
        found.next().unwrap_or_else(|| panic!("the stream ended before {kind}"))
    }
}

impl Iterator for Stream {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.lines.read_line(&mut line).ok()? == 0 {
                return None;
            }
            // Each event is a chunk of its own, so its lines are whole whatever stands between chunks.
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(data.trim_end().to_owned());
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The local user's key.
fn read_key(home: &Path) -> String {
    std::fs::read_to_string(home.join("key")).unwrap_or("none".into()).trim().to_owned()
}

fn answer(bytes: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect(head);
    let body = match head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        true => dechunked(body),
        false => body.to_owned(),
    };
    Answer { status, head: head.to_owned(), body }
}

fn dechunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        whole.push_str(&rest[..size]);
        body = rest[size..].strip_prefix("\r\n").unwrap_or_default();
    }
    whole
}

/// The JSON of each `data:` line of an event stream.
pub fn events(body: &str) -> Vec<Value> {
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// One WebSocket.
pub struct Socket {
    socket: WebSocket<TcpStream>,
}

impl Socket {
    pub fn open(address: &str, key: &str, headers: &[(&'static str, &str)]) -> Socket {
        let mut request = format!("ws://{address}/v1/responses").into_client_request().unwrap();
        let bearer = format!("Bearer {key}").parse().unwrap();
        request.headers_mut().insert("authorization", bearer);
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (socket, _) = tungstenite::client(request, stream).unwrap();
        Socket { socket }
    }

    pub fn send(&mut self, frame: &Value) {
        self.send_text(&frame.to_string());
    }

    pub fn send_text(&mut self, text: &str) {
        self.socket.send(Message::text(text)).unwrap();
    }

    pub fn send_binary(&mut self, bytes: &[u8]) {
        self.socket.send(Message::binary(bytes.to_vec())).unwrap();
    }

    /// The next event.
    pub fn next(&mut self) -> Value {
        loop {
            match self.socket.read().unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("not an event: {other:?}"),
            }
        }
    }

    /// Whether the server has closed it, once it says anything.
    pub fn is_closed(&mut self) -> bool {
        !matches!(self.socket.read(), Ok(Message::Text(_) | Message::Binary(_)))
    }

    /// All events up to the first of this type, which is the last one.
    pub fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let event = self.next();
            let found = event["type"] == kind;
            let ends = [
                "error",
                "response.completed",
                "response.incomplete",
                "response.failed",
                "response.cancelled",
            ];
            let ended = ends.iter().any(|end| event["type"] == *end);
            events.push(event);
            if found {
                return events;
            }
            assert!(!ended, "no {kind}: {:?}", events.last());
        }
    }
}

/// The text of all deltas.
pub fn text(events: &[Value]) -> String {
    let deltas = events.iter().filter(|event| event["type"] == "response.output_text.delta");
    deltas.map(|event| event["delta"].as_str().unwrap()).collect()
}
