//! The server is killed, and started again on what it has stored. Its clients come back and read on, from the event
//! after the last that they have seen, and miss nothing.

use super::script::{Line, lines};
use super::stage::{Stage, kill, side_by_side, wait_for};
use super::stream::whole;
use super::{Row, Seed};
use crate::Outcome;
use crate::wire::{Served, head, is_last, next_event, turn, user};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const SERVERS: usize = 4;
const CLIENTS: usize = 8;
/// Passes a second: an answer takes about two seconds, and sees more than one death.
const RATE: f64 = 50.0;
/// Events that all clients together see between two deaths, at most.
const EVENTS_MAX: usize = 300;

pub fn run(stage: &Stage<'_>, seed: &mut Seed) -> Outcome<Row> {
    let deaths = stage.plan.server_deaths.div_ceil(SERVERS);
    let resumed = AtomicUsize::new(0);
    let row = side_by_side(SERVERS, seed, |seed| one_server(stage, deaths, &resumed, seed))?;
    let resumed = resumed.into_inner();
    let note = format!("{SERVERS} servers, {CLIENTS} streams each; {resumed} times a stream was read on");
    Ok(Row { note, ..row })
}

fn one_server(stage: &Stage<'_>, deaths: usize, resumed: &AtomicUsize, mut seed: Seed) -> Outcome<Row> {
    let lines = lines(&mut seed);
    let mut served = stage.serve(&lines, Some(RATE))?;
    let mut clients: Vec<Client<'_>> = (0..CLIENTS).map(|_| Client::new(&lines, seed.split())).collect();
    for _ in 0..deaths {
        one_life(&served, &mut clients, seed.below(EVENTS_MAX))?;
        served.restart()?;
    }
    let last = Life { ending: AtomicBool::new(true), ..Life::default() };
    live(&served, &mut clients, &last, || Ok(()))?;
    let mut row = Row { faults: deaths, ..Row::default() };
    for client in clients {
        resumed.fetch_add(client.resumed, Ordering::Relaxed);
        row.add(client.row);
    }
    Ok(row)
}

/// One life of the server, as its clients know it.
#[derive(Default)]
struct Life {
    events: AtomicUsize, // that were seen by all
    killed: AtomicBool,
    ending: AtomicBool, // nothing new is begun
}

/// Kills the server when its clients have seen this many events.
fn one_life(served: &Served, clients: &mut [Client<'_>], moment: usize) -> Outcome {
    let life = Life::default();
    live(served, clients, &life, || {
        wait_for("events", || (life.events.load(Ordering::Relaxed) >= moment).then_some(()))?;
        life.killed.store(true, Ordering::Relaxed);
        kill(served.pid())
    })
}

/// All clients read until the server is killed, or else to the end of what they have begun.
fn live(
    served: &Served,
    clients: &mut [Client<'_>],
    life: &Life,
    meanwhile: impl FnOnce() -> Outcome,
) -> Outcome {
    std::thread::scope(|scope| {
        clients.iter_mut().for_each(|client| drop(scope.spawn(|| client.live(served, life))));
        let outcome = meanwhile();
        // Else they would go on for ever after an error.
        life.ending.store(true, Ordering::Relaxed);
        outcome
    })
}

/// One that asks for stored answers, and remembers what it was told.
struct Client<'a> {
    lines: &'a [Line],
    line: &'a Line,
    events: Vec<Value>, // of the answer that it reads
    seed: Seed,
    resumed: usize, // times that it has read on
    row: Row,
}

impl<'a> Client<'a> {
    fn new(lines: &'a [Line], seed: Seed) -> Client<'a> {
        let (events, row) = Default::default();
        Client { lines, line: &lines[0], events, seed, resumed: 0, row }
    }

    fn live(&mut self, served: &Served, life: &Life) {
        while !(life.ending.load(Ordering::Relaxed) && self.events.is_empty()) {
            match self.read_on(served, life) {
                Ok(()) => {}
                Err(_) if life.killed.load(Ordering::Relaxed) => return,
                Err(error) => self.give_up(format!("without a death: {error}")),
            }
        }
    }

    /// Reads to the last event of the answer. An error is one of the connection.
    fn read_on(&mut self, served: &Served, life: &Life) -> Outcome {
        if !self.events.last().is_some_and(is_last) {
            let mut stream = self.open(served)?;
            let head = head(&mut stream)?;
            if !head.starts_with("HTTP/1.1 200") {
                self.give_up(format!("the server said {head:?}"));
                return Ok(());
            }
            while !self.events.last().is_some_and(is_last) {
                let event = next_event(&mut stream)?.ok_or("the stream ended before its last event")?;
                life.events.fetch_add(1, Ordering::Relaxed);
                if event["sequence_number"] != self.events.len() {
                    self.give_up(format!("event {} is {event}", self.events.len()));
                    return Ok(());
                }
                self.events.push(event);
            }
        }
        let again = self.read_again(served)?;
        self.row.must(again == self.events, || format!("told again: {again:?}, before: {:?}", self.events));
        match whole(&self.events) {
            Ok(told) => self.row.compare(&told, &self.line.1),
            Err(error) => self.row.wrong.push(error.to_string()),
        }
        self.events.clear();
        Ok(())
    }

    /// A new answer, or the rest of one that it knows.
    fn open(&mut self, served: &Served) -> Outcome<impl std::io::BufRead + use<>> {
        if let (Some(id), Some(last)) = (self.id(), self.events.len().checked_sub(1)) {
            let path = format!("/v1/responses/{id}?stream=true&starting_after={last}");
            self.resumed += 1;
            return served.send("GET", &path, "");
        }
        self.line = &self.lines[self.seed.below(self.lines.len())];
        let mut request = turn(&[user(&self.line.0)]);
        request["store"] = true.into();
        served.send("POST", "/v1/responses", &request.to_string())
    }

    /// The whole answer, as the server tells it to one who comes now.
    fn read_again(&self, served: &Served) -> Outcome<Vec<Value>> {
        let id = self.id().ok_or("a response without an id")?;
        let mut stream = served.send("GET", &format!("/v1/responses/{id}?stream=true"), "")?;
        let mut events = Vec::new();
        while !events.last().is_some_and(is_last) {
            events.push(next_event(&mut stream)?.ok_or("the stored stream ended before its last event")?);
        }
        Ok(events)
    }

    fn id(&self) -> Option<&'_ str> {
        self.events.first()?["response"]["id"].as_str()
    }

    /// Begins anew after something that should not have been.
    fn give_up(&mut self, wrong: String) {
        self.row.wrong.push(wrong);
        self.events.clear();
    }
}
