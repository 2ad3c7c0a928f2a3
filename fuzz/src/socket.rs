//! What must hold for any messages on one WebSocket of a server that runs: each is answered, the events of a lane are in
//! order and without a gap, every response comes to one end, and the next conversation finds the server as it was.
//!
//! A server that plays [`lines`] is told of by [`is_at`] first.

use flint_wire::Frame;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::sync::OnceLock;
use std::time::Duration;
use tungstenite::client::IntoClientRequest;
use tungstenite::{Error, Message, WebSocket};

/// Messages of one conversation that are sent; the rest of its bytes is left.
const MESSAGES_MAX: usize = 40;

/// Longer than any of these conversations takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(15);

static SERVER: OnceLock<(String, String)> = OnceLock::new();

/// What the server plays.
pub fn lines() -> Vec<(String, String)> {
    let call = "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": \"a\"}}\n</tool_call>";
    let long = "and another word ".repeat(40);
    let lines = [("hi", "hello"), ("go on", &long), ("look", call), ("", "so be it")];
    let line = |(said, answer)| {
        (format!("{said}<|im_end|>\n<|im_start|>assistant\n"), format!("{answer}<|im_end|>"))
    };
    lines.map(line).to_vec()
}

/// Where conversations are led, and with which key.
pub fn is_at(address: String, key: String) {
    SERVER.set((address, key)).expect("there is one server");
}

/// Lines. `?` waits for an event, `!` leaves, `#` begins a binary message, and all others are messages of text, in which `$`
/// stands for the response that was created last.
pub fn conversation(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut talk = Talk::begin();
    for line in text.lines().filter(|line| !line.is_empty()).take(MESSAGES_MAX) {
        match line.split_at_checked(1) {
            Some(("?", "")) if talk.is_owed() => talk.hear(),
            Some(("?", "")) => {}
            Some(("!", "")) => {
                drop(talk);
                return Talk::begin().says_hello();
            }
            Some(("#", rest)) => talk.send_binary(rest),
            _ => talk.send(&line.replace('$', &talk.latest)),
        }
    }
    while talk.is_owed() {
        talk.hear();
    }
    talk.says_hello();
}

/// One connection, and what is still owed on it.
struct Talk {
    socket: WebSocket<TcpStream>,
    answers: i64, // responses that have not ended, messages without an error, successors that were promised
    steers: i64,  // that nothing was said of
    lanes: HashMap<Option<String>, u64>, // the number that comes next
    latest: String,
}

impl Talk {
    fn begin() -> Talk {
        let (address, key) = SERVER.get().expect("a server");
        let mut request = format!("ws://{address}/v1/responses").into_client_request().expect("an address");
        request.headers_mut().insert("authorization", format!("Bearer {key}").parse().expect("a key"));
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).expect("a socket");
        let (socket, _) = tungstenite::client(request, stream).expect("the server takes connections");
        // Not before: a system call with a time limit is not begun again where a clock interrupts it.
        socket.get_ref().set_read_timeout(Some(PATIENCE)).expect("a socket");
        Talk { socket, answers: 0, steers: 0, lanes: HashMap::new(), latest: "resp_none".to_owned() }
    }

    fn send(&mut self, text: &str) {
        match Frame::parse(text) {
            Ok(Frame::Create(_)) | Err(_) => self.answers += 1,
            Ok(Frame::Steer { .. }) => self.steers += 1,
            Ok(Frame::Interrupt { .. } | Frame::Cancel { .. }) => {}
        }
        self.socket.send(Message::text(text)).expect("the connection stays open");
    }

    fn send_binary(&mut self, text: &str) {
        self.answers += 1;
        self.socket.send(Message::binary(text.as_bytes().to_vec())).expect("the connection stays open");
    }

    fn is_owed(&self) -> bool {
        assert!(self.answers >= 0 && self.steers >= 0, "more answers than messages");
        self.answers > 0 || self.steers > 0
    }

    fn hear(&mut self) {
        let event = self.next();
        let kind = event["type"].as_str().expect("events have a type").to_owned();
        match kind.as_str() {
            "error" => self.refused(&event),
            "response.steer.failed" => {
                self.steers -= 1;
                assert!(event["steer"]["input"].is_array(), "the input comes back: {event}");
            }
            _ => self.counted(&kind, &event),
        }
    }

    fn next(&mut self) -> Value {
        loop {
            let message = match self.socket.read() {
                Ok(message) => message,
                // The fuzzer's own clock rings.
                Err(Error::Io(error)) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => panic!("{error}; owed: {} answers, {} steers", self.answers, self.steers),
            };
            match message {
                Message::Text(text) => return serde_json::from_str(&text).expect("events are JSON"),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("not an event: {other:?}"),
            }
        }
    }

    fn refused(&mut self, event: &Value) {
        self.answers -= 1;
        let status = event["status"].as_u64().expect("errors have a status");
        assert!((400..500).contains(&status), "it is the message's fault: {event}");
        assert!(event["error"]["message"].as_str().is_some_and(|words| !words.is_empty()), "{event}");
    }

    /// An event of a response: the next one of its lane.
    fn counted(&mut self, kind: &str, event: &Value) {
        let lane = event["stream_id"].as_str().map(str::to_owned);
        let expected = if kind == "response.created" { 0 } else { self.lanes.remove(&lane).expect(kind) };
        assert_eq!(event["sequence_number"], expected, "{event}");
        match kind {
            "response.created" => {
                assert!(!self.lanes.contains_key(&lane), "one response of a lane after the other: {event}");
                self.latest = event["response"]["id"].as_str().expect("a name").to_owned();
            }
            "response.steer.accepted" | "response.steer.pending" => self.steers -= 1,
            "response.failed" => panic!("{event}"),
            "response.completed" | "response.cancelled" => return self.answers -= 1,
            // The successor of one that was steered has the same message to answer.
            "response.incomplete" if event["response"]["incomplete_details"]["reason"] == "steered" => return,
            "response.incomplete" => return self.answers -= 1,
            _ => {}
        }
        self.lanes.insert(lane, expected + 1);
    }

    /// Whatever was said before, a new lane works.
    fn says_hello(mut self) {
        self.send(
            &json!({"type": "response.create", "input": "hi", "stream_id": "last", "store": false})
                .to_string(),
        );
        let mut said = String::new();
        while self.is_owed() {
            let event = self.next();
            said.push_str(event["delta"].as_str().unwrap_or_default());
            match event["type"].as_str() {
                Some("response.completed") => self.answers -= 1,
                Some("error" | "response.failed" | "response.incomplete") => panic!("{event}"),
                _ => {}
            }
        }
        assert_eq!(said, "hello");
    }
}
