//! A small HTTP/1.1 server on this machine that behaves as well or as badly as a test wants.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// A client that says nothing for so long is given up.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Clone)]
pub struct Request {
    pub path: String, // with the query
    pub nth: usize,   // requests for this path before
    headers: HashMap<String, String>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// N of `Range: bytes=N-`.
    pub fn from(&self) -> Option<usize> {
        self.header("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

#[derive(Debug, Clone, Default)]
pub struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    sent: Option<usize>, // bytes of the body before the connection is cut
}

impl Reply {
    pub fn status(status: u16) -> Reply {
        Reply { status, body: b"words of the server".to_vec(), ..Reply::default() }
    }

    pub fn whole(bytes: &[u8]) -> Reply {
        Reply { status: 200, body: bytes.to_vec(), ..Reply::default() }
    }

    pub fn redirect(to: String) -> Reply {
        Reply::status(302).with("Location", to)
    }

    /// What a good server says: the range that was asked for, if the file is still the one it was asked of.
    pub fn file(request: &Request, bytes: &[u8], tag: &str) -> Reply {
        let same = request.header("if-range").is_none_or(|wanted| wanted == tag);
        let reply = match request.from().filter(|_| same) {
            None => Reply::whole(bytes),
            Some(from) if from < bytes.len() => Reply::range(bytes, from),
            Some(_) => Reply::status(416).with("Content-Range", format!("bytes */{}", bytes.len())),
        };
        if tag.is_empty() { reply } else { reply.with("ETag", tag) }
    }

    pub fn range(bytes: &[u8], from: usize) -> Reply {
        let range = format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len());
        Reply { status: 206, body: bytes[from..].to_vec(), ..Reply::default() }.with("Content-Range", range)
    }

    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Reply {
        self.headers.push((name, value.into()));
        self
    }

    /// Cuts the connection after so many bytes of the body.
    pub fn cut(self, after: usize) -> Reply {
        Reply { sent: Some(after), ..self }
    }

    fn write(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        let mut head = format!("HTTP/1.1 {} reason\r\nConnection: close\r\n", self.status);
        if !self.headers.iter().any(|(name, _)| *name == "Content-Length") {
            head += &format!("Content-Length: {}\r\n", self.body.len());
        }
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        stream.write_all(head.as_bytes())?;
        stream.write_all(b"\r\n")?;
        stream.write_all(&self.body[..self.sent.unwrap_or(usize::MAX).min(self.body.len())])
    }
}

/// Serves until it is dropped.
pub struct Loopback {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Loopback {
    pub fn start(answer: impl Fn(&Request) -> Reply + Send + 'static) -> Loopback {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, stopped) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (seen, stop) = (requests.clone(), stopped.clone());
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                // A client may go away in the middle: that is its own affair.
                let _ = stream.and_then(|stream| serve(stream, &seen, &answer));
            }
        });
        Loopback { address, requests, stopped, thread: Some(thread) }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What was asked for since the last time.
    pub fn take_requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address); // wakes it
        self.thread.take().map(JoinHandle::join);
    }
}

fn serve(
    mut stream: TcpStream,
    seen: &Mutex<Vec<Request>>,
    answer: &impl Fn(&Request) -> Reply,
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let path = first.split(' ').nth(1).unwrap_or_default().to_string();
    let mut headers = HashMap::new();
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_string());
    }
    let request = {
        let mut seen = seen.lock().unwrap();
        let nth = seen.iter().filter(|request| request.path == path).count();
        seen.push(Request { path, nth, headers });
        seen[seen.len() - 1].clone()
    };
    answer(&request).write(&mut stream)
}
