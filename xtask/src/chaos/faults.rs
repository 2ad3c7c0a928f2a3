//! The kinds of trouble.

use super::stream::{Seen, many};
use super::{Line, Plan, Row, Seed};
use crate::Outcome;
use crate::wire::{Served, Socket, turn, user};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// No trouble but their number.
pub fn streams(served: &Served, lines: &[Line], plan: Plan, seed: &mut Seed) -> Outcome<Row> {
    many(served, lines, (plan.streams, plan.turns), seed, |_| Ok(format!("{} sockets", plan.streams)))
}

/// The worker dies while everyone streams, and nobody sees it.
pub fn deaths(served: &Served, lines: &[Line], plan: Plan, seed: &mut Seed) -> Outcome<Row> {
    // An answer is some 70 events: each death comes while most answers are still to be written.
    let share = plan.streams * plan.turns * 40 / (plan.deaths + 1);
    let moments: Vec<usize> = (0..plan.deaths).map(|death| share * death + 1 + seed.below(share)).collect();
    many(served, lines, (plan.streams, plan.turns), seed, |events| {
        let mut killed = Vec::new();
        for moment in moments {
            wait_for(|| (events.load(Ordering::Relaxed) >= moment).then_some(()))?;
            let worker = wait_for(|| served.workers().into_iter().find(|worker| !killed.contains(worker)))?;
            kill(worker)?;
            killed.push(worker);
        }
        wait_for(|| served.workers().into_iter().find(|worker| !killed.contains(worker)))?;
        Ok(format!("{} workers killed", killed.len()))
    })
}

/// Clients go away in the middle; nothing of them stays, and who comes next is answered at once.
pub fn leaving(served: &Served, lines: &[Line], plan: Plan, seed: &mut Seed) -> Outcome<Row> {
    let mut sockets = Vec::new();
    for _ in 0..plan.leaving {
        let mut socket = served.socket()?;
        socket.send(&turn(&[user(&lines[seed.below(lines.len())].0)]))?;
        sockets.push((socket, 1 + seed.below(20)));
    }
    for (socket, events) in &mut sockets {
        (0..*events).try_for_each(|_| socket.next().map(drop))?;
    }
    drop(sockets);
    let start = Instant::now();
    let mut row = Row::default();
    row.add(one(served, &lines[0], seed)?);
    let ms = start.elapsed().as_millis();
    row.note = format!("{} left; the next answer took {ms} ms; {}", plan.leaving, nothing_runs(served)?);
    Ok(row)
}

/// Some do not read at all. The others get their answers as fast as without them, and in the end they get theirs.
pub fn slow_readers(served: &Served, lines: &[Line], plan: Plan, seed: &mut Seed) -> Outcome<Row> {
    let others = (plan.streams / 10, plan.turns);
    let start = Instant::now();
    let mut row = many(served, lines, others, seed, |_| Ok(String::new()))?;
    let alone = start.elapsed();
    let mut slow: Vec<(Socket, &Line)> = Vec::new();
    for _ in 0..plan.slow {
        let (mut socket, line) = (served.socket()?, &lines[seed.below(lines.len())]);
        // As many turns as a lane takes. The kernel may still hold all of their answers.
        (0..SLOW_TURNS).try_for_each(|_| socket.send(&turn(&[user(&line.0)])))?;
        slow.push((socket, line));
    }
    let start = Instant::now();
    let beside = many(served, lines, others, seed, |_| Ok(String::new()))?;
    let ratio = start.elapsed().as_secs_f64() / alone.as_secs_f64();
    row.answers += beside.answers;
    row.bytes += beside.bytes;
    row.wrong.extend(beside.wrong);
    for (mut socket, line) in slow {
        row.wrong.extend(late(&mut socket, line).err().map(|error| format!("a slow reader: {error}")));
    }
    row.note = format!("{} that do not read; the others took {ratio:.2}x the time", plan.slow);
    Ok(row)
}

/// Turns that a client asks for without reading the answers. A lane takes 16, and one more while that runs.
const SLOW_TURNS: usize = 16;

/// Reads what waits for a client that did not.
fn late(socket: &mut Socket, (_, expected): &Line) -> Outcome {
    for _ in 0..SLOW_TURNS {
        let (answer, last) = socket.answer()?;
        if answer != *expected {
            return Err(format!("expected {expected:?}, got {answer:?}: {last}").into());
        }
        socket.timing()?;
    }
    Ok(())
}

fn one(served: &Served, line: &Line, seed: &mut Seed) -> Outcome<Seen> {
    let mut seen = Seen::default();
    seen.ask(&mut served.socket()?, line, &AtomicUsize::new(0), seed)?;
    Ok(seen)
}

/// What the server itself says about turns that run, if it says anything.
fn nothing_runs(served: &Served) -> Outcome<&'static str> {
    if served.get("/metrics")?.is_none() {
        return Ok("no metrics to ask");
    }
    wait_for(|| {
        let page = served.get("/metrics").ok().flatten()?;
        let mut running = page.lines().filter(|line| line.starts_with("flint_turns_running{"));
        running.all(|line| line.ends_with(" 0")).then_some(())
    })?;
    Ok("nothing runs")
}

fn kill(pid: u32) -> Outcome {
    match Command::new("kill").args(["-9", &pid.to_string()]).status()?.success() {
        true => Ok(()),
        false => Err(format!("the worker {pid} could not be killed").into()),
    }
}

fn wait_for<T>(mut found: impl FnMut() -> Option<T>) -> Outcome<T> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(found) = found() {
            return Ok(found);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err("what was waited for did not happen".into())
}
