//! How fast a client on a WebSocket sees a real model write, beside what the engine makes.

use super::{Measured, Report, median};
use crate::Outcome;
use crate::wire::{Served, Settings, Socket, delta, is_last, user};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

const ROUNDS: usize = 5; // besides one that warms up
const TOKENS: u32 = 512; // of an answer
const FIRST_WORDS: usize = 3_600; // of the session's first message

/// Answers in one growing session that has some 4,000 tokens before the first of them; without guesses.
pub fn measure(program: &Path, model: &str) -> Outcome<Report> {
    let settings = Settings { model: Some(model), args: &["--no-speculation"], ..Settings::default() };
    let served = Served::start(program, &settings)?;
    let mut socket = served.socket()?;
    let (mut seen, mut made, mut depth) = (Vec::new(), Vec::new(), Vec::new());
    let mut previous = Value::Null;
    let first = format!("Remember this: {}", super::wire::words(0, FIRST_WORDS));
    Turn::take(&mut socket, &first, &mut previous)?;
    for round in 0..=ROUNDS {
        let said = format!("Write a long story about lighthouse number {round}.");
        let turn = Turn::take(&mut socket, &said, &mut previous)?;
        if round > 0 {
            seen.push(turn.seen_a_second()?);
            made.push(turn.made_a_second.ok_or("a turn without a rate")?);
            depth.push(turn.depth);
        }
    }
    let results = vec![
        Measured::alone("session_tokens", median(depth), ""),
        Measured::beside("served_tokens_per_second", median(seen), "", median(made)),
    ];
    Ok(Report {
        peers: vec![("served_tokens_per_second", "what the engine says it made".to_owned())],
        results,
    })
}

struct Turn {
    tokens: f64,
    made_a_second: Option<f64>,
    depth: f64,
    words: Option<[Instant; 2]>, // the first and the last
}

impl Turn {
    fn take(socket: &mut Socket, said: &str, previous: &mut Value) -> Outcome<Turn> {
        socket.send(
            &json!({"type": "response.create", "input": [user(said)], "previous_response_id": previous,
            "max_output_tokens": TOKENS, "temperature": 0, "store": false, "stream": true}),
        )?;
        let mut words = None;
        let mut last = loop {
            let event = socket.next()?;
            if delta(&event).is_some() {
                let now = Instant::now();
                words.get_or_insert([now; 2])[1] = now;
            }
            if is_last(&event) {
                break event;
            }
        };
        socket.timing()?;
        let (usage, metadata) = (&last["response"]["usage"], &last["response"]["metadata"]);
        let number =
            |value: &Value| value.as_f64().ok_or_else(|| format!("a turn without its tokens: {last}"));
        let (tokens, depth) = (number(&usage["output_tokens"])?, number(&usage["total_tokens"])?);
        let made_a_second = metadata["flint.tokens_per_second"].as_str().and_then(|rate| rate.parse().ok());
        *previous = last["response"]["id"].take();
        Ok(Turn { tokens, made_a_second, depth, words })
    }

    fn seen_a_second(&self) -> Outcome<f64> {
        let [first, last] = self.words.ok_or("an answer without text")?;
        Ok((self.tokens - 1.0) / (last - first).as_secs_f64())
    }
}
