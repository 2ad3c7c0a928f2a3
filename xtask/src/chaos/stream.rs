//! One client, which knows what it must be told; and many at the same time.

use super::script::Line;
use super::{Row, Seed};
use crate::Outcome;
use crate::wire::{Served, Socket, delta, is_last, turn, user};
use serde_json::Value;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub const STACK_BYTES: usize = 512 << 10;
const PUT_OFF_MAX: usize = 600;

/// How many ask, and how often.
#[derive(Debug, Clone, Copy)]
pub struct Crowd {
    pub clients: usize,
    pub lasting: Duration, // each asks again until then; zero: once
}

/// An answer as it was told.
pub struct Told {
    pub text: String,
    pub tokens: usize,
}

impl Row {
    /// Asks for one answer and compares it. Whoever is told to come later does.
    pub fn ask(
        &mut self,
        socket: &mut Socket,
        line: &Line,
        events: &AtomicUsize,
        seed: &mut Seed,
    ) -> Outcome {
        let (said, expected) = line;
        for _ in 0..PUT_OFF_MAX {
            socket.send(&turn(&[user(said)]))?;
            let Some(told) = answer(socket, Vec::new(), events)? else {
                self.put_off += 1;
                std::thread::sleep(Duration::from_millis(100 + seed.below(400) as u64));
                continue;
            };
            self.compare(&told, expected);
            return Ok(());
        }
        Err(format!("{said:?} was put off {PUT_OFF_MAX} times").into())
    }

    pub fn compare(&mut self, told: &Told, expected: &str) {
        self.answers += 1;
        self.bytes += told.text.len();
        self.tokens += told.tokens;
        self.must(told.text == expected, || format!("expected {expected:?}, got {:?}", told.text));
    }
}

/// A whole answer, with its events in order, after those that were told already; none if the server has too much
/// to do.
pub fn answer(socket: &mut Socket, mut told: Vec<Value>, events: &AtomicUsize) -> Outcome<Option<Told>> {
    loop {
        let event = socket.next()?;
        events.fetch_add(1, Ordering::Relaxed);
        if is_refusal(&event) {
            return Ok(None);
        }
        told.push(event);
        let (number, event) = (told.len() - 1, &told[told.len() - 1]);
        if event["sequence_number"] != number {
            return Err(format!("event {number} is {event}").into());
        }
        if is_last(event) {
            let told = whole(&told)?;
            socket.timing()?;
            return Ok(Some(told));
        }
    }
}

/// Whether the server has said: later.
pub fn is_refusal(event: &Value) -> bool {
    event["type"] == "error" && matches!(event["status"].as_u64(), Some(429 | 503))
}

/// What all events of a response say. The last says the same as the deltas did.
pub fn whole(events: &[Value]) -> Outcome<Told> {
    let text: String = events.iter().filter_map(delta).collect();
    let last = events.last().ok_or("a response without events")?;
    let response = &last["response"];
    let said = &response["output"][0]["content"][0]["text"];
    if last["type"] != "response.completed" || *said != text {
        return Err(format!("after {text:?} the response ended as {last}").into());
    }
    let tokens = response["usage"]["output_tokens"].as_u64().ok_or("a response without usage")?;
    Ok(Told { text, tokens: tokens as usize })
}

/// All of a crowd at the same time, each with a socket of its own, while `meanwhile` happens. It is given the
/// number of events that all of them have seen.
pub fn many(
    served: &Served,
    lines: &[Line],
    Crowd { clients, lasting }: Crowd,
    seed: &mut Seed,
    meanwhile: impl FnOnce(&AtomicUsize) -> Outcome,
) -> Outcome<Row> {
    let (events, ready) = (AtomicUsize::new(0), Barrier::new(clients));
    let client = |mut seed: Seed| {
        let mut row = Row::default();
        let socket = served.socket();
        ready.wait();
        let end = Instant::now() + lasting;
        let outcome = socket.and_then(|mut socket| {
            loop {
                let line = &lines[seed.below(lines.len())];
                row.ask(&mut socket, line, &events, &mut seed)?;
                if Instant::now() >= end {
                    return Ok(());
                }
            }
        });
        row.wrong.extend(outcome.err().map(|error| error.to_string()));
        row
    };
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for _ in 0..clients {
            let (client, seed) = (&client, seed.split());
            let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
            threads.push(builder.spawn_scoped(scope, move || client(seed))?);
        }
        let outcome = meanwhile(&events);
        let mut row = Row::default();
        for thread in threads {
            row.add(thread.join().map_err(|_| "a client panicked")?);
        }
        outcome.map(|()| row)
    })
}
