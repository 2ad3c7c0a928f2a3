//! Workers die while everyone streams, and nobody sees it.
//!
//! Three deaths of a server's worker within a minute are rightly the end of it, so each server has two.

use super::script::lines;
use super::stage::{Stage, kill, side_by_side, wait_for};
use super::stream::{Crowd, many};
use super::{Row, Seed};
use crate::Outcome;
use crate::wire::Served;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const DEATHS_A_SERVER: usize = 2;
const CLIENTS: usize = 16;
/// Passes a second, so that nobody is done before the deaths come.
const RATE: f64 = 100.0;
/// Events of which every answer has more: all deaths come while all answers are being written.
const EVENTS_MIN: usize = 30;

pub fn run(stage: &Stage<'_>, seed: &mut Seed) -> Outcome<Row> {
    let servers = stage.plan.worker_deaths.div_ceil(DEATHS_A_SERVER);
    let row = side_by_side(servers, seed, |seed| one_server(stage, seed))?;
    let note = format!("{servers} servers, {DEATHS_A_SERVER} deaths and {CLIENTS} sockets each");
    Ok(Row { note, ..row })
}

fn one_server(stage: &Stage<'_>, mut seed: Seed) -> Outcome<Row> {
    let lines = lines(&mut seed);
    let served = stage.serve(&lines, Some(RATE))?;
    let moments = moments(&mut seed);
    let crowd = Crowd { clients: CLIENTS, lasting: Duration::ZERO };
    let mut row = many(&served, &lines, crowd, &mut seed, |events| kill_at(&served, &moments, events))?;
    row.faults = moments.len();
    let deaths = served.metric("flint_worker_deaths_total", "")?;
    row.must(deaths == moments.len() as u64, || format!("the server tells {deaths} deaths"));
    let answers = row.answers;
    row.must(answers == CLIENTS, || format!("{answers} of {CLIENTS} were answered"));
    Ok(row)
}

/// How many events all clients together have seen when a worker dies.
fn moments(seed: &mut Seed) -> Vec<usize> {
    let share = CLIENTS * EVENTS_MIN / DEATHS_A_SERVER;
    (0..DEATHS_A_SERVER).map(|death| share * death + 1 + seed.below(share)).collect()
}

fn kill_at(served: &Served, moments: &[usize], events: &AtomicUsize) -> Outcome {
    let mut killed = Vec::new();
    for &moment in moments {
        wait_for("events", || (events.load(Ordering::Relaxed) >= moment).then_some(()))?;
        let worker = || served.workers().into_iter().find(|worker| !killed.contains(worker));
        let worker = wait_for("a worker", worker)?;
        kill(worker)?;
        killed.push(worker);
    }
    Ok(())
}
