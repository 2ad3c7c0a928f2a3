//! One client, which knows what it must be told; and many at the same time.

use super::{Line, Row, Seed};
use crate::Outcome;
use crate::wire::{Served, Socket, delta, is_last, turn, user};
use serde_json::Value;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const STACK_BYTES: usize = 512 << 10;
const PUT_OFF_MAX: usize = 600;

/// What one client saw.
#[derive(Debug, Default)]
pub struct Seen {
    answers: usize,
    bytes: usize,
    put_off: usize,
    wrong: Vec<String>,
}

impl Seen {
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
            match answer(socket, events)? {
                Some(answer) => {
                    self.answers += 1;
                    self.bytes += answer.len();
                    if answer != *expected {
                        self.wrong.push(format!("expected {expected:?}, got {answer:?}"));
                    }
                    return Ok(());
                }
                None => {
                    self.put_off += 1;
                    std::thread::sleep(Duration::from_millis(100 + seed.below(400) as u64));
                }
            }
        }
        Err(format!("{said:?} was put off {PUT_OFF_MAX} times").into())
    }
}

/// The text of a whole answer, with its events in order; none if the server has too much to do.
fn answer(socket: &mut Socket, events: &AtomicUsize) -> Outcome<Option<String>> {
    let mut text = String::new();
    for number in 0.. {
        let event = socket.next()?;
        events.fetch_add(1, Ordering::Relaxed);
        if event["type"] == "error" && matches!(event["status"].as_u64(), Some(429 | 503)) {
            return Ok(None);
        }
        if event["sequence_number"] != number {
            return Err(format!("event {number} is {event}").into());
        }
        text.push_str(delta(&event).unwrap_or_default());
        if is_last(&event) {
            whole(&event, &text)?;
            socket.timing()?;
            break;
        }
    }
    Ok(Some(text))
}

/// The last event says the same as the deltas did.
fn whole(last: &Value, text: &str) -> Outcome {
    let said = &last["response"]["output"][0]["content"][0]["text"];
    match last["type"] == "response.completed" && said == text {
        true => Ok(()),
        false => Err(format!("after {text:?} the response ended as {last}").into()),
    }
}

/// This many clients at the same time, each with a socket of its own, while `meanwhile` happens. It is given the
/// number of events that all of them have seen.
pub fn many(
    served: &Served,
    lines: &[Line],
    (streams, turns): (usize, usize),
    seed: &mut Seed,
    meanwhile: impl FnOnce(&AtomicUsize) -> Outcome<String>,
) -> Outcome<Row> {
    let (events, ready) = (AtomicUsize::new(0), Barrier::new(streams));
    let client = |mut seed: Seed| {
        let mut seen = Seen::default();
        let socket = served.socket();
        ready.wait();
        let outcome = socket.and_then(|mut socket| {
            (0..turns).try_for_each(|_| {
                let line = &lines[seed.below(lines.len())];
                seen.ask(&mut socket, line, &events, &mut seed)
            })
        });
        seen.wrong.extend(outcome.err().map(|error| error.to_string()));
        seen
    };
    std::thread::scope(|scope| {
        let mut clients = Vec::new();
        for _ in 0..streams {
            let (client, seed) = (&client, seed.split());
            let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
            clients.push(builder.spawn_scoped(scope, move || client(seed))?);
        }
        let note = meanwhile(&events);
        let mut row = Row::default();
        for client in clients {
            row.add(client.join().map_err(|_| "a client panicked")?);
        }
        row.note = note?;
        Ok(row)
    })
}

impl Row {
    pub fn add(&mut self, seen: Seen) {
        self.answers += seen.answers;
        self.bytes += seen.bytes;
        self.put_off += seen.put_off;
        self.wrong.extend(seen.wrong);
    }
}
