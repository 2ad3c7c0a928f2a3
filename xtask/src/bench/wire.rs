//! What a turn costs besides the engine's own work, and how soon a client sees a token.

use super::llama::Llama;
use super::session::{self, Turn};
use super::{Measured, Report, median, tls};
use crate::Outcome;
use crate::wire::{Served, Settings, Socket, delta, is_last, next_data, turn, user};
use serde_json::{Value, json};
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

const SESSIONS: usize = 2;
const TURNS: usize = 96; // of one session: it then has about 90,000 tokens
const WARM_UP_TURNS: usize = 8; // of a session before these
const EARLY_TURNS: usize = 24; // up to about 31,000 tokens
const LATE_TURNS: usize = 10;
const STREAMED_TOKENS: usize = 500;
const CPU_TURNS: usize = 24; // of STREAMED_TOKENS each
const WARM_ROUNDS: usize = 9;
const STEERS: usize = 7;

pub fn measure(program: &Path) -> Outcome<Report> {
    let mut results = overheads(program, false)?;
    results.extend(overheads(program, true)?);
    results.extend(token_to_frame(program)?);
    results.push(cpu_per_token(program)?);
    let mut peers = vec![
        ("turn_overhead_ws_us", "the same turns over HTTP, the whole history in each".to_owned()),
        ("turn_overhead_wss_us", "the same over HTTPS; each turn's connection resumes a session".to_owned()),
    ];
    let (warm, peer) = warm(program)?;
    results.push(warm);
    peers.push(("ttft_warm_ms", peer));
    results.push(steer(program)?);
    Ok(Report { peers, results })
}

pub fn words(from: usize, count: usize) -> String {
    const WORDS: [&str; 12] =
        ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "runs", "home"];
    let words: Vec<&str> = (0..count).map(|at| WORDS[(from + at * 5 + at / 12) % WORDS.len()]).collect();
    words.join(" ")
}

/// The same sessions over one WebSocket and over one HTTP connection a turn.
fn overheads(program: &Path, secure: bool) -> Outcome<Vec<Measured>> {
    let turns: Vec<Turn> = (0..TURNS).map(Turn::new).collect();
    let lines: Vec<(String, String)> =
        turns.iter().enumerate().map(|(number, turn)| turn.line(number > 0)).collect();
    let folder = tempfile::tempdir()?;
    let model = session::model(folder.path())?;
    let model = Some(model.to_str().ok_or("a folder whose name is not text")?);
    let settings = Settings { model, script: Some(&lines), ..Settings::default() };
    let layer = secure.then(tls::layer).transpose()?;
    let served = Served::behind(layer, program, &settings)?;
    session_on_socket(&served, &turns[..WARM_UP_TURNS])?;
    session_on_http(&served, &turns[..WARM_UP_TURNS])?;
    let (mut socket, mut http) = (Vec::new(), Vec::new());
    for _ in 0..SESSIONS {
        socket.push(session_on_socket(&served, &turns)?);
        http.push(session_on_http(&served, &turns)?);
    }
    let last = socket[0].len();
    let parts = [0..last, 0..EARLY_TURNS, last - LATE_TURNS..last];
    let names = match secure {
        false => ["turn_overhead_ws_us", "turn_overhead_early_ws_us", "turn_overhead_late_ws_us"],
        true => ["turn_overhead_wss_us", "turn_overhead_early_wss_us", "turn_overhead_late_wss_us"],
    };
    let beside = |(name, part): (&'static str, Range<usize>)| {
        let of = |sessions: &[Vec<Overhead>]| middle(sessions, part.clone(), |turn| turn.us);
        Measured::beside(name, of(&socket), "us", of(&http))
    };
    let mut measured: Vec<Measured> = names.into_iter().zip(parts).map(beside).collect();
    if !secure {
        let render_us = middle(&socket, 0..last, |turn| turn.render_us);
        measured.push(Measured::alone("turn_render_ws_us", render_us, "us"));
    }
    Ok(measured)
}

fn middle(sessions: &[Vec<Overhead>], part: Range<usize>, of: fn(&Overhead) -> f64) -> f64 {
    median(sessions.iter().flat_map(|turns| turns[part.clone()].iter().map(of)).collect())
}

fn session_on_socket(served: &Served, turns: &[Turn]) -> Outcome<Vec<Overhead>> {
    let mut socket = served.socket()?;
    let (mut previous, mut called, mut overheads) = (Value::Null, Value::Null, Vec::new());
    let mut input = session::beginning();
    for turn in turns {
        input.push(turn.item(called.as_str()));
        let mut frame = session::request(&std::mem::take(&mut input));
        frame["previous_response_id"] = previous;
        let start = Instant::now();
        socket.send(&frame)?;
        let last = last_of(|| socket.next_text())?;
        let took = start.elapsed();
        let mut last: Value = serde_json::from_str(&last)?;
        overheads.push(Overhead::of(took, &last)?);
        must_answer(turn, &last)?;
        socket.timing()?;
        called = last["response"]["output"][1]["call_id"].take();
        previous = last["response"]["id"].take();
    }
    // What comes before the first turn is new to the server in both cases.
    Ok(overheads.split_off(1))
}

fn session_on_http(served: &Served, turns: &[Turn]) -> Outcome<Vec<Overhead>> {
    let (mut history, mut called, mut overheads) = (session::beginning(), Value::Null, Vec::new());
    for turn in turns {
        history.push(turn.item(called.as_str()));
        let request = session::request(&history);
        let start = Instant::now();
        let mut stream = served.send("POST", "/v1/responses", &request.to_string())?;
        let last = last_of(|| next_data(&mut stream)?.ok_or_else(|| "the stream ended early".into()))?;
        let took = start.elapsed();
        let mut last: Value = serde_json::from_str(&last)?;
        overheads.push(Overhead::of(took, &last)?);
        must_answer(turn, &last)?;
        history.extend(last["response"]["output"].as_array().into_iter().flatten().cloned());
        called = last["response"]["output"][1]["call_id"].take();
    }
    Ok(overheads.split_off(1))
}

/// The last event of a response. The others are not read as JSON: what a client makes of them is its own affair.
fn last_of(mut next: impl FnMut() -> Outcome<String>) -> Outcome<String> {
    const ENDS: [&str; 4] = ["completed", "incomplete", "failed", "cancelled"];
    loop {
        let event = next()?;
        match event.strip_prefix("{\"type\":\"response.").and_then(|rest| rest.split('"').next()) {
            Some(kind) if ENDS.contains(&kind) => return Ok(event),
            Some(_) => {}
            // All else begins otherwise: what has to do with limits or times, and errors.
            None if event.contains("\"error\"") => return Err(event.into()),
            None => {}
        }
    }
}

fn must_answer(turn: &Turn, last: &Value) -> Outcome {
    match turn.is_answered_by(&last["response"]["output"]) {
        true => Ok(()),
        false => Err(format!("expected {:?} and {:?}, got {last}", turn.answer, turn.command).into()),
    }
}

/// Microseconds of a turn in which the engine had nothing to do, and those of them that made its prompt.
struct Overhead {
    us: f64,
    render_us: f64,
}

impl Overhead {
    fn of(wall: Duration, last: &Value) -> Outcome<Overhead> {
        let us = |key: &str| {
            let ms = last["response"]["metadata"][key].as_str().and_then(|ms| ms.parse::<f64>().ok());
            ms.map(|ms| ms * 1e3).ok_or_else(|| format!("a response without {key}: {last}"))
        };
        let engine_us = us("flint.prefill_ms")? + us("flint.decode_ms")?;
        Ok(Overhead { us: wall.as_secs_f64() * 1e6 - engine_us, render_us: us("flint.render_ms")? })
    }
}

fn must_be(answer: &str, expected: &str, last: &Value) -> Outcome {
    match answer == expected {
        true => Ok(()),
        false => Err(format!("expected {expected:?}, got {answer:?}: {last}").into()),
    }
}

/// One long answer, at the pace of a fast model.
fn token_to_frame(program: &Path) -> Outcome<Vec<Measured>> {
    let lines = [("go".to_owned(), words(0, STREAMED_TOKENS))];
    let settings = Settings { script: Some(&lines), rate: Some(200.0), ..Settings::default() };
    let served = Served::start(program, &settings)?;
    let mut socket = served.socket()?;
    let timing = streamed(&mut socket, &lines[0])?;
    let figure = |key: &str| timing[key].as_f64().ok_or_else(|| format!("no {key}: {timing}"));
    Ok(vec![
        Measured::alone("token_to_frame_p50_us", figure("flint.token_to_frame_us_p50")?, "us"),
        Measured::alone("token_to_frame_p99_us", figure("flint.token_to_frame_us_p99")?, "us"),
    ])
}

fn streamed(socket: &mut Socket, (said, expected): &(String, String)) -> Outcome<Value> {
    socket.send(&turn(&[user(said)]))?;
    let (answer, last) = socket.answer()?;
    must_be(&answer, expected, &last)?;
    socket.timing()
}

/// Of the server, without its worker.
fn cpu_per_token(program: &Path) -> Outcome<Measured> {
    let lines = [("go".to_owned(), words(0, STREAMED_TOKENS))];
    let served = Served::start(program, &Settings { script: Some(&lines), ..Settings::default() })?;
    let mut socket = served.socket()?;
    streamed(&mut socket, &lines[0])?;
    let before = cpu_seconds(served.pid())?;
    for _ in 0..CPU_TURNS {
        streamed(&mut socket, &lines[0])?;
    }
    let took = cpu_seconds(served.pid())? - before;
    let us = took * 1e6 / (CPU_TURNS * STREAMED_TOKENS) as f64;
    Ok(Measured::alone("server_cpu_per_token_us", us, "us"))
}

/// User and system time of a process, which Linux counts in hundredths of a second.
fn cpu_seconds(pid: u32) -> Outcome<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, in parentheses, may hold anything; the two times are the 12th and 13th field after it.
    let fields = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' ')).ok_or("not a process's stat")?;
    let ticks: Vec<f64> = fields.skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    Ok(ticks.iter().sum::<f64>() / 100.0)
}

/// Time to the first text in a session that has 1,800 tokens already, after a message of some 20.
fn warm(program: &Path) -> Outcome<(Measured, String)> {
    const MAX_TOKENS: u32 = 4;
    let served = Served::start(program, &Settings::default())?;
    let mut socket = served.socket()?;
    let mut llama = Llama::start(std::thread::available_parallelism()?.get())?;
    let (mut own, mut other, mut previous) = (Vec::new(), Vec::new(), Value::Null);
    for round in 0..=WARM_ROUNDS {
        let said = match round {
            0 => format!("Remember this: {}", words(0, 1_770)),
            _ => format!("Number {round}: what did the fox do?"),
        };
        let start = Instant::now();
        let mut frame = turn(&[user(&said)]);
        frame["previous_response_id"] = previous;
        frame["max_output_tokens"] = MAX_TOKENS.into();
        frame["temperature"] = 0.into();
        socket.send(&frame)?;
        let first = first_delta(&mut socket, start)?;
        let (_, mut last) = socket.answer()?;
        socket.timing()?;
        previous = last["response"]["id"].take();
        let peer = llama.as_mut().map(|llama| llama.turn(&said, MAX_TOKENS)).transpose()?;
        if round > 0 {
            own.push(first.as_secs_f64() * 1e3);
            other.extend(peer.map(|peer| peer.as_secs_f64() * 1e3));
        }
    }
    let own = median(own);
    Ok(match llama {
        Some(_) => {
            let peer = "llama.cpp's HTTP server on the same file, with its prompt cache".to_owned();
            (Measured::beside("ttft_warm_ms", own, "ms", median(other)), peer)
        }
        None => {
            let why = "none: run `flint bench -m smollm2-135m --peer llama.cpp` once to install llama.cpp";
            (Measured::alone("ttft_warm_ms", own, "ms"), why.to_owned())
        }
    })
}

fn first_delta(socket: &mut Socket, start: Instant) -> Outcome<Duration> {
    loop {
        let event = socket.next()?;
        if delta(&event).is_some() {
            return Ok(start.elapsed());
        }
        if is_last(&event) {
            return Err(format!("the answer has no text: {event}").into());
        }
    }
}

/// From a steer in the middle of an answer to the first text of what follows it.
fn steer(program: &Path) -> Outcome<Measured> {
    let served = Served::start(program, &Settings::default())?;
    let mut times = Vec::new();
    for _ in 0..STEERS {
        let mut socket = served.socket()?;
        socket.send(&turn(&[user("Write a long story about a lighthouse.")]))?;
        let created = socket.next()?;
        for _ in 0..10 {
            first_delta(&mut socket, Instant::now())?;
        }
        let start = Instant::now();
        let previous = &created["response"]["id"];
        socket.send(&json!({"type": "response.steer", "previous_response_id": previous,
            "input": [user("Stop. Write about a mountain.")]}))?;
        let (_, last) = socket.answer()?;
        if last["response"]["incomplete_details"]["reason"] != "steered" {
            return Err(format!("the answer was not steered: {last}").into());
        }
        times.push(first_delta(&mut socket, start)?.as_secs_f64() * 1e3);
    }
    Ok(Measured::alone("steer_to_token_ms", median(times), "ms"))
}
