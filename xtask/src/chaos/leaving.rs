//! Clients go away in mid-stream. Their turns end within a step, nothing of them stays but what idle sequences may
//! keep, and who comes next is answered at once.

use super::script::{Line, long_line};
use super::stage::{Stage, wait_for_quiet};
use super::{Row, Seed};
use crate::Outcome;
use crate::wire::{Served, delta, head, next_event, turn, user};
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

/// Passes a second: the time that a server has to notice before another one begins is 50 ms.
const RATE: f64 = 20.0;
const WAVE_CLIENTS: usize = 50;
/// Clients that leave alone, so that what is computed after it is known of each.
const ALONE_MAX: usize = 20;
const ANSWER_WORDS: usize = 60;
const TOKENS_SEEN_MAX: usize = 20;
/// Idle sequences that a server keeps warm.
const IDLE_MAX: u64 = 256;

pub fn run(stage: &Stage<'_>, seed: &mut Seed) -> Outcome<Row> {
    let line = long_line(ANSWER_WORDS, seed);
    let served = stage.serve(std::slice::from_ref(&line), Some(RATE))?;
    let all = stage.plan.leaving;
    let alone = ALONE_MAX.min(all / 8);
    let mut most = 0;
    for _ in 0..alone {
        most = most.max(wave(&served, &line, 1, seed)?);
    }
    let mut together = 0;
    for start in (alone..all).step_by(WAVE_CLIENTS) {
        together += wave(&served, &line, WAVE_CLIENTS.min(all - start), seed)?;
    }
    let mean = together as f64 / (all - alone) as f64;
    let mut row = Row { faults: all, ..Row::default() };
    check_pool(&served, &mut row)?;
    let next = next_answer(&served, &line, &mut row, seed)?;
    // One is the step that runs while they leave. A machine that is busy may notice a step later.
    row.must(most <= 2 && mean <= 1.5, || format!("their turns went on: {most} steps, {mean:.2} on average"));
    row.note = format!(
        "tokens computed beyond what was seen: at most {most} of {alone} who left alone, {mean:.2} of the others; \
         the next answer began after {} ms",
        next.as_millis()
    );
    Ok(row)
}

/// Lets clients leave, each when it has seen a number of tokens. Says how many tokens were computed that none of
/// them has seen. The step that runs while a client leaves is one.
fn wave(served: &Served, line: &Line, clients: usize, seed: &mut Seed) -> Outcome<u64> {
    let computed = || served.metric("flint_rows_total", "kind=\"decode\"");
    let before = computed()?;
    let tokens: Vec<usize> = (0..clients).map(|_| 1 + seed.below(TOKENS_SEEN_MAX)).collect();
    std::thread::scope(|scope| {
        let leave = |(client, &tokens): (usize, &usize)| {
            scope.spawn(move || {
                let left = match client % 2 {
                    0 => leave_socket(served, line, tokens),
                    _ => leave_http(served, line, tokens),
                };
                left.map_err(|error| error.to_string())
            })
        };
        let threads: Vec<_> = tokens.iter().enumerate().map(leave).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a client panicked")?)
    })?;
    wait_for_quiet(served)?;
    // The first token of each comes from its prompt.
    let seen: usize = tokens.iter().map(|tokens| tokens - 1).sum();
    Ok((computed()? - before).saturating_sub(seen as u64))
}

fn leave_socket(served: &Served, (said, _): &Line, tokens: usize) -> Outcome {
    let mut socket = served.socket()?;
    // The second is never begun: it waits for the first.
    (0..2).try_for_each(|_| socket.send(&turn(&[user(said)])))?;
    let mut seen = 0;
    while seen < tokens {
        seen += usize::from(delta(&socket.next()?).is_some());
    }
    Ok(())
}

fn leave_http(served: &Served, (said, _): &Line, tokens: usize) -> Outcome {
    let mut stream = served.send("POST", "/v1/responses", &turn(&[user(said)]).to_string())?;
    head(&mut stream)?;
    let mut seen = 0;
    while seen < tokens {
        let event = next_event(&mut stream)?.ok_or("the stream ended by itself")?;
        seen += usize::from(delta(&event).is_some());
    }
    Ok(())
}

/// Nobody uses a block, and no more sequences are kept than may be.
fn check_pool(served: &Served, row: &mut Row) -> Outcome {
    let used = served.metric("flint_kv_blocks", "state=\"used\"")?;
    row.must(used == 0, || format!("{used} KV blocks are still in use"));
    let idle = served.metric("flint_sequences", "state=\"idle\"")?;
    row.must(idle <= IDLE_MAX, || format!("{idle} sequences are kept"));
    Ok(())
}

/// How long the next one waits for the first word; all of its answer is compared.
fn next_answer(served: &Served, line: &Line, row: &mut Row, seed: &mut Seed) -> Outcome<Duration> {
    let start = Instant::now();
    leave_http(served, line, 1)?;
    let first = start.elapsed();
    row.ask(&mut served.socket()?, line, &AtomicUsize::new(0), seed)?;
    Ok(first)
}
