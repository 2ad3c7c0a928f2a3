//! Some do not read at all. They cost the server its ring of events and nobody else anything. When they read at
//! last, a stored answer is told to its end; one that is not stored has been lost, and its connection ends.

use super::script::{Line, lines, long_line};
use super::stage::{Stage, wait_for_quiet};
use super::stream::{Crowd, many, whole};
use super::{Row, Seed};
use crate::Outcome;
use crate::wire::{Served, Socket, is_last, turn, user};
use serde_json::Value;
use std::time::{Duration, Instant};

/// More than the kernel and the ring hold of it together.
const ANSWER_WORDS: usize = 4000;
const OTHERS: usize = 20;
const ROUNDS: usize = 5;
/// Bytes of the server's memory that one may cost, and that the measurement may be wrong by, of all together.
const READER_BYTES_MAX: u64 = 256 << 10;
const NOISE_BYTES: u64 = 2 << 20;
/// Times as long that the others may take. They should notice nothing; two measurements are never the same.
const OTHERS_RATIO_MAX: f64 = 2.0;

pub fn run(stage: &Stage<'_>, seed: &mut Seed) -> Outcome<Row> {
    let (mut all, long) = (lines(seed), long_line(ANSWER_WORDS, seed));
    all.push(long.clone());
    let served = stage.serve(&all, None)?;
    let (lines, count) = (&all[..all.len() - 1], stage.plan.slow);
    let mut row = Row { faults: count, ..Row::default() };
    // The same by clients that read, so that what any turn leaves behind is there already.
    read_all(ask_all(&served, &long, count)?, &long, &mut row)?;
    let same = seed.split();
    let alone = others(&served, lines, &mut row, same.clone())?;
    let before = served.resident_bytes()?;
    let slow = ask_all(&served, &long, count)?;
    wait_for_quiet(&served)?;
    let more = served.resident_bytes()?.saturating_sub(before);
    let beside = others(&served, lines, &mut row, same)?;
    slow.into_iter().for_each(|slow| slow.check(&long, &mut row));
    let (each, ratio) = (more / count as u64, beside.as_secs_f64() / alone.as_secs_f64());
    row.must(more <= READER_BYTES_MAX * count as u64 + NOISE_BYTES, || format!("each costs {each} bytes"));
    row.must(ratio <= OTHERS_RATIO_MAX, || format!("the others took {ratio:.2}x the time"));
    row.note = format!("each costs {} KiB; the others took {ratio:.2}x the time", each >> 10);
    Ok(row)
}

/// The time that others need for their answers, at best.
fn others(served: &Served, lines: &[Line], row: &mut Row, mut seed: Seed) -> Outcome<Duration> {
    let crowd = Crowd { clients: OTHERS, lasting: Duration::ZERO };
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        row.add(many(served, lines, crowd, &mut seed, |_| Ok(()))?);
        best = best.min(start.elapsed());
    }
    Ok(best)
}

/// A client that has asked and does not read.
struct Slow {
    socket: Socket,
    stored: bool,
}

/// Every other one wants its answer stored.
fn ask_all(served: &Served, (said, _): &Line, count: usize) -> Outcome<Vec<Slow>> {
    let ask = |client: usize| {
        let (mut socket, stored) = (served.socket()?, client.is_multiple_of(2));
        let mut request = turn(&[user(said)]);
        request["store"] = stored.into();
        socket.send(&request)?;
        Ok(Slow { socket, stored })
    };
    (0..count).map(ask).collect()
}

/// All at the same time, to the end.
fn read_all(clients: Vec<Slow>, (_, expected): &Line, row: &mut Row) -> Outcome {
    let read = |mut client: Slow| {
        let (events, outcome) = client.events();
        outcome.and_then(|()| whole(&events)).map_err(|error| error.to_string())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = clients.into_iter().map(|client| scope.spawn(|| read(client))).collect();
        for thread in threads {
            row.compare(&thread.join().map_err(|_| "a client panicked")??, expected);
        }
        Ok(())
    })
}

impl Slow {
    /// All events up to the last, or to an error; and whether there was one.
    fn events(&mut self) -> (Vec<Value>, Outcome) {
        let mut events = Vec::new();
        while !events.last().is_some_and(is_last) {
            match self.socket.next() {
                Ok(event) if event["sequence_number"] == events.len() => events.push(event),
                Ok(event) => return (events, Err(format!("a hole before {event}").into())),
                Err(error) => return (events, Err(error)),
            }
        }
        (events, Ok(()))
    }

    /// Reads at last what it is told.
    fn check(mut self, (_, expected): &Line, row: &mut Row) {
        let (events, outcome) = self.events();
        if self.stored {
            match outcome.and_then(|()| whole(&events)) {
                Ok(told) => row.compare(&told, expected),
                Err(error) => row.wrong.push(format!("a slow reader of a stored answer: {error}")),
            }
            return;
        }
        let seen = events.len();
        let said = outcome.err().map(|error| error.to_string());
        let holes = said.as_ref().is_some_and(|said| said.contains("a hole"));
        row.must(said.is_some() && !holes, || {
            format!("a slow reader of an unstored answer saw {seen} events: {said:?}")
        });
    }
}
