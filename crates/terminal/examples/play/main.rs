//! Plays a made-up session, to look at and to measure with:
//! `cargo run -p flint-terminal --example play -- [TOKENS_A_SECOND] [--end|--panic]`.
//!
//! With `--end` it ends when all is played, otherwise with ctrl+c. Then it says how long events took from being sent to
//! being painted. With `--panic` it panics when all is played, to show that the terminal is given back.

mod script;

use flint_agent::talk::{Event, Order};
use flint_terminal::{Ended, Reply, Request, Setup, run};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, Sender, channel};

const TOKENS_A_SECOND: u64 = 2_000;

/// When each event was sent, and how long the painted ones took.
#[derive(Default)]
struct Times {
    sent: Vec<Instant>,
    painted: Vec<Duration>,
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rate = arguments.iter().find_map(|word| word.parse().ok()).unwrap_or(TOKENS_A_SECOND).max(1);
    let end = match arguments.iter().map(String::as_str).find(|word| word.starts_with("--")) {
        Some("--end") => End::Signal,
        Some("--panic") => End::Panic,
        Some(_) | None => End::Person,
    };
    let times = Arc::new(Mutex::new(Times::default()));
    let (orders, ordered) = channel(64);
    let (sender, events) = channel(1024);
    let (outside, requests) = channel(8);
    let setup = Setup {
        folder: "~/example".to_owned(),
        colour: std::env::var_os("NO_COLOR").is_none(),
        model: Some("made-up".to_owned()),
        notices: vec!["Nothing here is real: it is a script.".to_owned()],
        painted: Some(note_painted(times.clone())),
        ..Setup::default()
    };
    tokio::spawn(answer(requests));
    tokio::spawn(play(sender, ordered, rate, end, times.clone()));
    let ended: Ended = run(setup, orders, events, outside).await?;
    report(&ended, &mut times.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    Ok(())
}

/// Who ends the program.
#[derive(Clone, Copy)]
enum End {
    Person,
    Signal,
    Panic,
}

fn note_painted(times: Arc<Mutex<Times>>) -> Box<dyn FnMut(u64) + Send> {
    Box::new(move |count| {
        let now = Instant::now();
        let mut times = times.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for at in times.painted.len()..(count as usize).min(times.sent.len()) {
            let took = now.saturating_duration_since(times.sent[at]);
            times.painted.push(took);
        }
    })
}

/// Sends the script at its rate. Events that are due together are sent together.
async fn play(
    sender: Sender<Event>,
    mut ordered: Receiver<Order>,
    rate: u64,
    end: End,
    times: Arc<Mutex<Times>>,
) {
    let began = Instant::now();
    for (count, event) in script::events().into_iter().enumerate() {
        let due = began + Duration::from_micros(count as u64 * 1_000_000 / rate);
        tokio::time::sleep_until(due.into()).await;
        let now = Instant::now();
        times.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).sent.push(now);
        if sender.send(event).await.is_err() {
            return;
        }
    }
    // The last events are painted before the end.
    tokio::time::sleep(Duration::from_millis(200)).await;
    match end {
        End::Person => {}
        End::Signal => {
            let own = rustix::process::getpid();
            let _ = rustix::process::kill_process(own, rustix::process::Signal::TERM);
        }
        End::Panic => panic!("as was asked for"),
    }
    while ordered.recv().await.is_some() {}
}

async fn answer(mut requests: Receiver<Request>) {
    while let Some(Request { action, reply }) = requests.recv().await {
        let text = format!("A script cannot do this: {action:?}");
        let _ = reply.send(Reply::Notice(text));
    }
}

fn report(ended: &Ended, times: &mut Times) {
    times.painted.sort();
    let count = times.painted.len();
    let at = |percent: usize| times.painted.get((count * percent / 100).min(count.saturating_sub(1)));
    let millis = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1e3);
    println!(
        "{ended:?}: {count} events, from sent to painted: p50 {:.2} ms, p99 {:.2} ms, most {:.2} ms",
        millis(at(50)),
        millis(at(99)),
        millis(times.painted.last())
    );
}
