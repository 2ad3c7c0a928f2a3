//! Times that clients notice, made short: the server as a library, with its real worker, on a real socket. How long an answer
//! takes is the script's to say, so nothing here waits by a clock of its own.

mod support;

use flint_server::Pace;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use support::model_file;
use support::served::{self, Play};
use support::server::{Socket, Stream, cue_and_answer, open, text};

const NEVER: Duration = Duration::from_secs(3600);

struct Served(served::Served);

impl Served {
    fn start(pace: Pace, lines: &[(&str, &str)], rate: f64) -> Served {
        Served::play(pace, &lines.iter().map(cue_and_answer).collect::<Vec<_>>(), rate)
    }

    fn play(pace: Pace, lines: &[(String, String)], rate: f64) -> Served {
        let home = tempfile::tempdir().unwrap();
        let script = served::play(home.path(), lines, Some(rate));
        let program = PathBuf::from(env!("CARGO_BIN_EXE_flint"));
        Served(served::Served::start(pace, home, &Play { program, model: model_file(), script }))
    }

    fn socket(&self) -> Socket {
        Socket::open(&self.0.address, &self.0.key, &[])
    }

    fn request(&self, line: &str, body: &Value) -> Stream {
        let bearer = format!("Bearer {}", self.0.key);
        let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
        Stream::of(open(&self.0.address, line, &headers, &body.to_string()))
    }
}

fn create(input: &str) -> Value {
    json!({"type": "response.create", "input": input, "store": false})
}

fn in_lane(lane: &str, mut frame: Value) -> Value {
    frame["stream_id"] = lane.into();
    frame
}

fn has_ended(event: &Value) -> bool {
    ["response.completed", "response.incomplete", "response.failed", "response.cancelled", "error"]
        .iter()
        .any(|kind| event["type"] == *kind)
}

/// All that a response tells on a socket.
fn to_its_end(socket: &mut Socket) -> Vec<Value> {
    let mut events = vec![socket.next()];
    while !has_ended(&events[events.len() - 1]) {
        events.push(socket.next());
    }
    events
}

/// How often it said that it is still being made, between its first two events and its first words, and after these.
fn beats(events: &[Value]) -> (usize, usize) {
    let first = events.iter().position(|event| event["type"] == "response.output_text.delta").unwrap();
    let count =
        |events: &[Value]| events.iter().filter(|event| event["type"] == "response.in_progress").count();
    (count(&events[2..first]), count(&events[first..]))
}

const OFTEN: Pace =
    Pace { heartbeat: Duration::from_millis(50), socket_open: NEVER, socket_last_turns: NEVER };

#[test]
fn who_waits_for_words_is_told_that_they_are_being_made() {
    // A second for each word: as many events could be sent in between as twenty.
    let served = Served::start(OFTEN, &[("go", "one two three")], 1.0);
    let mut socket = served.socket();
    socket.send(&create("go"));
    let body = json!({"input": "go", "stream": true});
    let stream = served.request("POST /v1/responses", &body);
    let over_http = stream.map(|event| serde_json::from_str(&event).unwrap());
    for events in [to_its_end(&mut socket), over_http.collect()] {
        assert_eq!(text(&events), "one two three");
        let (_, after) = beats(&events);
        assert!((4..200).contains(&after), "{after} signs of life in two seconds");
        for (number, event) in events.iter().enumerate() {
            assert_eq!(event["sequence_number"], number, "{event}");
        }
    }
}

/// Chunks without words, one for each time that the response says that it is still being made.
#[test]
fn streams_of_chat_and_completions_are_not_silent_either() {
    let chat_cue = "go<|im_end|>\n<|im_start|>assistant\n";
    let lines = [chat_cue, "def go("].map(|cue| (cue.to_owned(), "one two three<|im_end|>".to_owned()));
    let served = Served::play(OFTEN, &lines, 1.0);
    let messages = json!([{"role": "user", "content": "go"}]);
    let chat = json!({"messages": messages, "stream": true});
    let completion = json!({"prompt": "def go(", "stream": true});
    let is_empty = |chunk: &&Value| {
        let choice = &chunk["choices"][0];
        choice["finish_reason"].is_null() && (choice["delta"] == json!({}) || choice["text"] == "")
    };
    for (path, body) in [("chat/completions", chat), ("completions", completion)] {
        let stream = served.request(&format!("POST /v1/{path}"), &body);
        let chunks: Vec<Value> =
            stream.filter(|data| data != "[DONE]").map(|data| serde_json::from_str(&data).unwrap()).collect();
        let said = |chunk: &Value| {
            let choice = &chunk["choices"][0];
            choice["delta"]["content"].as_str().or(choice["text"].as_str()).unwrap_or_default().to_owned()
        };
        assert_eq!(chunks.iter().map(said).collect::<String>(), "one two three", "{path}");
        let beats = chunks.iter().filter(is_empty).count();
        assert!((4..200).contains(&beats), "{path}: {beats} signs of life in two seconds");
        let id = &chunks[0]["id"];
        assert!(chunks.iter().all(|chunk| chunk["id"] == *id && chunk["choices"][0]["index"] == 0));
    }
}

/// What may be the beginning of a string at which the answer stops is not told, though tokens come.
#[test]
fn tokens_that_say_nothing_yet_are_no_sign_of_life() {
    let held = "a b c d e f g h i j k l m n o p q r s t u v w x y z";
    let served = Served::start(OFTEN, &[("go", &format!("{held} and on"))], 30.0);
    let mut socket = served.socket();
    let mut frame = create("go");
    frame["stop"] = format!("{held} or not").into();
    socket.send(&frame);
    let events = to_its_end(&mut socket);
    assert_eq!(text(&events), format!("{held} and on"));
    let (before, _) = beats(&events);
    // Twenty-six words at 30 a second: some 800 ms.
    assert!(before >= 2, "{before} signs of life before the first words");
}

/// A turn whose sequence is still being warmed is created at once, and is heard of until it begins.
#[test]
fn a_warm_up_is_not_waited_for_in_silence() {
    let served = Served::start(OFTEN, &[("go", "so be it")], 1.0);
    let mut socket = served.socket();
    let long = "A colour of the sky, of the sea, of the wood and of the road. ".repeat(150);
    let mut warm = create(&long);
    warm["generate"] = false.into();
    socket.send(&warm);
    let warm = to_its_end(&mut socket).pop().unwrap()["response"].clone();
    let prompt = warm["usage"]["input_tokens"].as_u64().unwrap();
    let turn = |input: &str| {
        let mut frame = create(input);
        frame["previous_response_id"] = warm["id"].clone();
        frame
    };
    socket.send(&turn("go"));
    let created = socket.next();
    assert_eq!(created["type"], "response.created");
    assert!(prefilled(&served) < prompt, "the warm-up is still under way: {prompt} tokens");
    while socket.next()["sequence_number"].as_u64() < Some(4) {}
    assert!(prefilled(&served) < prompt, "it was heard of meanwhile");
    let id = created["response"]["id"].clone();
    socket.send(&json!({"type": "response.steer", "previous_response_id": id, "input": "stop"}));
    let late =
        std::iter::repeat_with(|| socket.next()).find(|event| event["type"] == "response.steer.failed");
    assert_eq!(late.unwrap()["steer"]["input"][0]["content"][0]["text"], "stop");
    socket.send(&json!({"type": "response.cancel", "response_id": id}));
    assert_eq!(to_its_end(&mut socket).pop().unwrap()["type"], "response.cancelled");
    assert!(prefilled(&served) < prompt, "it was stopped before it began");
    // What was being warmed is warm.
    socket.send(&turn("go"));
    let end = to_its_end(&mut socket);
    assert_eq!(text(&end), "so be it");
    let cached = end.last().unwrap()["response"]["metadata"]["flint.tokens_cached"].as_str().unwrap();
    assert_eq!(cached, prompt.to_string());
}

/// Tokens of prompts that the worker has computed.
fn prefilled(served: &Served) -> u64 {
    let bearer = format!("Bearer {}", served.0.key);
    let stream = open(&served.0.address, "GET /metrics", &[("Authorization", &bearer)], "");
    let page = std::io::read_to_string(stream).unwrap();
    let line = page.lines().find(|line| line.starts_with("flint_rows_total{") && line.contains("prefill"));
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

const LIMIT: &str = "websocket_connection_limit_reached";

fn is_limit(event: &Value) -> bool {
    event["type"] == "error" && event["error"]["code"] == LIMIT
}

#[test]
fn a_connection_without_work_ends_when_it_was_open_for_its_time() {
    let short = Pace { socket_open: Duration::from_millis(200), heartbeat: NEVER, socket_last_turns: NEVER };
    let served = Served::start(short, &[("hi", "hello")], 1000.0);
    let mut socket = served.socket();
    let last = socket.next();
    assert!(is_limit(&last), "{last}");
    assert_eq!((&last["status"], &last["stream_id"]), (&json!(400), &Value::Null));
    assert!(socket.is_closed());
    let mut another = served.socket();
    another.send(&create("hi"));
    assert_eq!(text(&to_its_end(&mut another)), "hello");
}

/// What runs when the time is over is told to its end; nothing new begins.
#[test]
fn a_turn_that_runs_when_its_connection_ends_is_finished() {
    let long = "and another word ".repeat(20);
    let short = Pace { socket_open: Duration::from_millis(500), heartbeat: NEVER, socket_last_turns: NEVER };
    let served = Served::start(short, &[("go on", &long), ("hi", "hello")], 20.0);
    let mut socket = served.socket();
    socket.send(&in_lane("long", create("go on")));
    let mut of_long = Vec::new();
    let refusal = loop {
        socket.send(&in_lane("short", create("hi")));
        let end = loop {
            let event = socket.next();
            match event["stream_id"] == "long" {
                true => of_long.push(event),
                false if has_ended(&event) => break event,
                false => {}
            }
        };
        if end["type"] == "error" {
            break end;
        }
    };
    assert!(is_limit(&refusal) && refusal["stream_id"] == "short", "{refusal}");
    assert!(!of_long.iter().any(has_ended), "it still runs");
    while !of_long.last().is_some_and(has_ended) {
        of_long.push(socket.next());
    }
    assert_eq!(of_long.last().unwrap()["type"], "response.completed");
    assert_eq!(text(&of_long), long);
    let last = socket.next();
    assert!(is_limit(&last) && last["stream_id"].is_null(), "{last}");
    assert!(socket.is_closed());
}

#[test]
fn a_turn_cannot_keep_its_connection_open_for_ever() {
    let (soon, later) = (Duration::from_millis(200), Duration::from_millis(300));
    let short = Pace { socket_open: soon, heartbeat: NEVER, socket_last_turns: later };
    let served = Served::start(short, &[("go on", &"and another word ".repeat(400))], 20.0);
    let mut socket = served.socket();
    let mut frame = create("go on");
    frame["store"] = true.into();
    socket.send(&frame);
    let events = to_its_end(&mut socket);
    assert!(is_limit(events.last().unwrap()) && text(&events).contains("word"), "{:?}", events.last());
    assert!(socket.is_closed());
    // Nobody reads it any more, so it is stopped.
    let id = events[0]["response"]["id"].as_str().unwrap();
    let stored = served.request(&format!("GET /v1/responses/{id}?stream=true"), &Value::Null);
    assert!(stored.last().unwrap().contains("response.cancelled"));
}
