//! Ten times as many turns as the server admits, all at once. Who is not admitted is told so at once, and when to
//! come back; who is gets the answer.

use super::script::{Line, lines};
use super::stage::{Stage, wait_for_quiet};
use super::stream::{STACK_BYTES, answer, is_refusal, whole};
use super::{Row, Seed};
use crate::Outcome;
use crate::wire::{Served, head, is_last, next_event, turn, user};
use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

const CONFIG: &str = "[limits]\nturns_running = 4\nturns_waiting = 12\n";
const ADMITTED: usize = 16;
const TURNS: usize = 10 * ADMITTED;
/// Passes a second: nobody is done before all have asked.
const RATE: f64 = 300.0;

pub fn run(stage: &Stage<'_>, seed: &mut Seed) -> Outcome<Row> {
    let lines = lines(seed);
    let served = stage.serve_with(&lines, Some(RATE), Some(CONFIG))?;
    let (mut row, mut refused) = (Row::default(), Vec::new());
    for _ in 0..stage.plan.bursts {
        burst(&served, &lines, seed, &mut row, &mut refused)?;
        wait_for_quiet(&served)?;
    }
    let (answers, turns, admitted) = (row.answers, TURNS * stage.plan.bursts, ADMITTED * stage.plan.bursts);
    row.faults = refused.len();
    row.must(answers >= admitted && answers + refused.len() == turns, || {
        format!("{answers} were answered and {} refused of {turns}", refused.len())
    });
    refused.sort();
    let at = |percent: usize| refused.get(refused.len() * percent / 100).or(refused.last()).copied();
    let [half, most, all] = [50, 99, 100].map(|percent| at(percent).unwrap_or_default());
    let max = stage.plan.refused_max;
    row.must(most <= max, || format!("99 of 100 were refused within {most:?}, not {max:?}"));
    row.note = format!(
        "{TURNS} turns at once where {ADMITTED} are admitted; refused within {half:.1?} p50, {most:.1?} p99, {all:.1?} at most"
    );
    Ok(row)
}

/// What became of one turn.
enum End {
    Answered(Row),
    Refused(Duration),
}

fn burst(
    served: &Served,
    lines: &[Line],
    seed: &mut Seed,
    row: &mut Row,
    refused: &mut Vec<Duration>,
) -> Outcome {
    let ready = Barrier::new(TURNS);
    let client = |number: usize, line: &Line| match number % 4 {
        0 => over_http(served, line, &ready),
        _ => over_socket(served, line, &ready),
    };
    let ends = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in 0..TURNS {
            let (client, line) = (&client, &lines[seed.below(lines.len())]);
            let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
            let work = move || client(number, line).map_err(|error| error.to_string());
            threads.push(builder.spawn_scoped(scope, work)?);
        }
        let ends =
            threads.into_iter().map(|thread| thread.join().map_err(|_| "a client panicked".to_owned()));
        Outcome::Ok(ends.collect::<Vec<_>>())
    })?;
    for end in ends {
        match end.and_then(|end| end) {
            Ok(End::Answered(answered)) => row.add(answered),
            Ok(End::Refused(after)) => refused.push(after),
            Err(error) => row.wrong.push(error),
        }
    }
    Ok(())
}

fn over_socket(served: &Served, (said, expected): &Line, ready: &Barrier) -> Outcome<End> {
    let socket = served.socket();
    ready.wait();
    let (mut socket, start) = (socket?, Instant::now());
    socket.send(&turn(&[user(said)]))?;
    let first = socket.next()?;
    if is_refusal(&first) {
        let after = start.elapsed();
        return match first["headers"]["retry-after"].is_string() {
            true => Ok(End::Refused(after)),
            false => Err(format!("refused without saying until when: {first}").into()),
        };
    }
    let told = answer(&mut socket, vec![first], &AtomicUsize::new(0))?;
    let mut row = Row::default();
    row.compare(&told.ok_or("refused after it had begun")?, expected);
    Ok(End::Answered(row))
}

fn over_http(served: &Served, (said, expected): &Line, ready: &Barrier) -> Outcome<End> {
    ready.wait();
    let start = Instant::now();
    let mut stream = served.send("POST", "/v1/responses", &turn(&[user(said)]).to_string())?;
    let head = head(&mut stream)?.to_lowercase();
    if ["http/1.1 429", "http/1.1 503"].iter().any(|status| head.starts_with(status)) {
        let after = start.elapsed();
        return match head.contains("retry-after: ") {
            true => Ok(End::Refused(after)),
            false => Err(format!("refused without saying until when: {head}").into()),
        };
    }
    let mut events = Vec::new();
    while !events.last().is_some_and(is_last) {
        events.push(next_event(&mut stream)?.ok_or_else(|| format!("the stream ended: {head}"))?);
    }
    let mut row = Row::default();
    row.compare(&whole(&events)?, expected);
    Ok(End::Answered(row))
}
