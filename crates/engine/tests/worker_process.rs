//! Real worker processes that are killed, hang, abort and fail, and callers that only see a pause.
//!
//! The worker is this very test executable, started again with `FLINT_TEST_WORKER` set: it then runs the test
//! `worker_process` alone, which becomes the worker.

mod common;

use common::{bytes, engine, model_path, options, processor_time, request, run, tokens_of};
use flint_engine::constrain::Constraint;
use flint_engine::device::cpu::Cpu;
use flint_engine::device::scripted::{Fault, FaultKind, Script, Scripted, ScriptedOptions};
use flint_engine::load::ModelFile;
use flint_engine::message::{
    Base, Break, BreakCause, Command as Order, Event, Failure, FinishReason, Generate, SequenceId,
};
use flint_engine::model::Loaded;
use flint_engine::sample::Sampling;
use flint_engine::step::Engine;
use flint_engine::supervise::{EngineError, Generation, Handle, Options, Supervisor};
use flint_engine::worker;
use std::io::Read;
use std::process::{self, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const ROLE: &str = "FLINT_TEST_WORKER";
const PATIENCE: Duration = Duration::from_secs(20);

/// The role of a worker with a real model.
const REAL: &str = "real";

#[test]
fn worker_process() {
    match std::env::var(ROLE).ok().as_deref() {
        None => assert!(plan("abort", 3).get_args().any(|arg| arg == "worker_process")),
        Some("parent") => be_a_parent(),
        Some(role) => be_a_worker(role),
    }
}

/// `role` is "fault:pass".
fn be_a_worker(role: &str) {
    let (fault, pass) = role.split_once(':').unwrap();
    if fault == REAL {
        return be_a_real_worker();
    }
    let kind = match fault {
        "none" => None,
        "error" => Some(FaultKind::Error),
        "panic" => Some(FaultKind::Panic),
        "abort" => Some(FaultKind::Abort),
        "hang" => Some(FaultKind::Hang),
        "slow" => Some(FaultKind::Slow(Duration::from_millis(5))),
        "unloadable" => {
            let link = worker::link_from_stdin().unwrap();
            let error = flint_engine::runner::RunnerError("there is no such model".to_owned());
            worker::run(link, || Err(error)).unwrap_err();
            process::exit(1);
        }
        other => panic!("no fault is called {other}"),
    };
    let fault = kind.map(|kind| Fault { pass: pass.parse().unwrap(), kind });
    let options = ScriptedOptions { fault, ..options(Script::Noise) };
    let make =
        || Ok(Engine::new(Box::new(Scripted::new(options)?)).with_vocabulary(Box::new(|| Ok(bytes()))));
    let outcome = worker::run(worker::link_from_stdin().unwrap(), make);
    process::exit(i32::from(outcome.is_err()));
}

/// On two threads, however many cores there are.
fn be_a_real_worker() {
    let make = || {
        let file = ModelFile::open(&model_path("smollm2-135m")).unwrap();
        let runner = Loaded::new(&file, Cpu::new(2).unwrap(), 64, &mut |_, _| ()).unwrap();
        Ok(Engine::new(Box::new(runner)))
    };
    let outcome = worker::run(worker::link_from_stdin().unwrap(), make);
    process::exit(i32::from(outcome.is_err()));
}

/// Starts a worker that hangs, says so, and waits to be killed.
fn be_a_parent() {
    let supervisor = Supervisor::start(|| plan("hang", 1), Options::default()).unwrap();
    let generation = supervisor.handle().generate(request(1, Base::New, &[1], 10)).unwrap();
    let token = generation.next_within(PATIENCE).unwrap();
    assert!(token.is_some());
    eprintln!("hanging {}", supervisor.handle().worker_pid().unwrap());
    loop {
        thread::park();
    }
}

fn plan(fault: &str, pass: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "worker_process", "--nocapture"]).env(ROLE, format!("{fault}:{pass}"));
    command.stderr(Stdio::null());
    command
}

fn quick() -> Options {
    Options { hang_limit: Duration::from_millis(300), ..Options::default() }
}

/// A supervisor whose first workers have these faults; all later ones are well, if a little slow.
fn supervisor(faults: &'static [(&'static str, u64)]) -> Supervisor {
    let mut faults = faults.iter();
    let command = move || faults.next().map_or_else(|| plan("none", 0), |(fault, pass)| plan(fault, *pass));
    Supervisor::start(command, quick()).unwrap()
}

fn sampled(id: u64) -> Generate {
    let prompt: Vec<u32> = (0..40 + id as u32).map(|i| (i * 7 + id as u32) % 256).collect();
    let sampling =
        Sampling { temperature: 1.0, top_p: 0.95, frequency_penalty: 0.3, seed: id, ..Sampling::default() };
    Generate { sampling, ..request(id, Base::New, &prompt, 120) }
}

/// What an engine that never fails makes of this request.
fn undisturbed(request: &Generate) -> Vec<u32> {
    let mut engine = engine(options(Script::Noise));
    engine.command(&Order::Generate(request.clone()), &mut Vec::new());
    tokens_of(&run(&mut engine), request.sequence.0)
}

fn rest(generation: &Generation) -> Vec<Event> {
    let next = || generation.next_within(PATIENCE).expect("the generation goes on");
    std::iter::from_fn(next).collect()
}

/// Takes events until `count` tokens were seen.
fn take(generation: &Generation, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while tokens_of(&events, generation.sequence().0).len() < count {
        events.push(generation.next_within(PATIENCE).unwrap().expect("there are more tokens"));
    }
    events
}

fn kill(handle: &Handle) {
    let pid = handle.worker_pid().unwrap().to_string();
    assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
}

fn reason(events: &[Event]) -> FinishReason {
    match events.last() {
        Some(Event::Finished { reason, .. }) => *reason,
        other => panic!("expected an end, found {other:?}"),
    }
}

#[test]
fn a_constrained_generation_survives_its_worker() {
    let constraint = Some(Constraint::lark("start: /[a-z]{60}/ \"{\" /([0-9],){20}/ \"}\"".to_owned()));
    let request = Generate { constraint, stop_tokens: vec![0], ..sampled(1) };
    let supervisor = supervisor(&[("slow", 0), ("slow", 0), ("slow", 0)]);
    let generation = supervisor.handle().generate(request.clone()).unwrap();
    let mut events = take(&generation, 30);
    kill(&supervisor.handle());
    events.extend(take(&generation, 35));
    kill(&supervisor.handle());
    events.extend(rest(&generation));
    assert_eq!(tokens_of(&events, 1), undisturbed(&request));
    assert_eq!((tokens_of(&events, 1).len(), reason(&events)), (102, FinishReason::Stop));
}

#[test]
fn a_worker_killed_in_mid_generation_costs_a_pause_only() {
    let supervisor = supervisor(&[("slow", 0), ("slow", 0)]);
    let handle = supervisor.handle();
    let generations: Vec<Generation> = (1..=5).map(|id| handle.generate(sampled(id)).unwrap()).collect();
    let mut early = take(&generations[0], 30);
    kill(&handle);
    let killed = Instant::now();
    early.extend(take(&generations[0], 20));
    assert!(killed.elapsed() < Duration::from_secs(1), "the pause was {:?}", killed.elapsed());
    for (id, generation) in (1..).zip(&generations) {
        let events = [if id == 1 { early.clone() } else { Vec::new() }, rest(generation)].concat();
        assert_eq!(tokens_of(&events, id), undisturbed(&sampled(id)), "sequence {id}");
        let started = events.iter().filter(|event| matches!(event, Event::Started { .. })).count();
        assert_eq!((started, reason(&events)), (1, FinishReason::Length));
    }
    assert_eq!(handle.deaths(), 1);
}

#[test]
fn every_kind_of_death_and_a_hang_is_survived() {
    for faults in [&[("error", 20)], &[("panic", 20)], &[("abort", 20)], &[("hang", 20)]] {
        let supervisor = supervisor(faults);
        let handle = supervisor.handle();
        let generations: Vec<Generation> = (1..=3).map(|id| handle.generate(sampled(id)).unwrap()).collect();
        for (id, generation) in (1..).zip(&generations) {
            let events = rest(generation);
            assert_eq!(tokens_of(&events, id), undisturbed(&sampled(id)), "{faults:?}, sequence {id}");
            let Some(Event::Finished { counts, .. }) = events.last() else { panic!("{events:?}") };
            assert_eq!((counts.new, counts.generated), (40 + id as u32, 120));
            assert!(id > 1 || counts.recomputed > 41, "the first was computed again: {counts:?}");
        }
        assert_eq!(handle.deaths(), 1);
    }
}

#[test]
fn three_deaths_in_a_minute_are_a_clean_error_until_a_restart_is_asked_for() {
    let supervisor = supervisor(&[("abort", 5), ("abort", 5), ("error", 5)]);
    let handle = supervisor.handle();
    let generations: Vec<Generation> = (1..=3).map(|id| handle.generate(sampled(id)).unwrap()).collect();
    for generation in &generations {
        let events = rest(generation);
        let Some(Event::Failed { failure: Failure::WorkerLost(reason), .. }) = events.last() else {
            panic!("expected a failure, found {events:?}")
        };
        assert_eq!(reason, "the device failed: scripted error at pass 5 (exit status: 1)");
    }
    let Err(EngineError::Down(reason)) = handle.generate(sampled(9)) else { panic!("it is down") };
    assert!(reason.contains("scripted error at pass 5"));
    assert_eq!((handle.deaths(), handle.worker_pid()), (3, None));
    handle.restart().unwrap();
    let events = rest(&handle.generate(sampled(9)).unwrap());
    assert_eq!(tokens_of(&events, 9), undisturbed(&sampled(9)));
}

#[test]
fn a_steer_sent_to_a_hanging_worker_takes_hold_in_the_next() {
    let supervisor = supervisor(&[("hang", 25)]);
    let handle = supervisor.handle();
    let generation = handle.generate(sampled(1)).unwrap();
    let early = take(&generation, 25);
    handle.steer(SequenceId(1), vec![3, 4, 5], 50).unwrap();
    let late = rest(&generation);
    let said = tokens_of(&early, 1);
    let steered = late.iter().find_map(|event| match event {
        Event::Steered { kept, counts, .. } => Some((*kept, counts.generated)),
        _ => None,
    });
    assert_eq!(steered, Some((41 + 25, 25)));
    let mut successor = sampled(1);
    successor.tokens.extend([&said[..], &[3, 4, 5]].concat());
    successor.max_tokens = 50;
    assert_eq!(tokens_of(&late, 1), undisturbed(&successor));
}

#[test]
fn a_steer_of_a_live_worker_is_followed_exactly() {
    let supervisor = supervisor(&[("slow", 0)]);
    let handle = supervisor.handle();
    let generation = handle.generate(sampled(1)).unwrap();
    let mut events = take(&generation, 10);
    handle.steer(SequenceId(1), vec![8, 9], 60).unwrap();
    events.extend(rest(&generation));
    let place = events.iter().position(|event| matches!(event, Event::Steered { .. })).unwrap();
    let before = tokens_of(&events[..place], 1);
    let started =
        Event::Started { sequence: SequenceId(1), cached: 41 + before.len() as u32, new: 2, broke: None };
    assert!(events[place..].contains(&started));
    let mut successor = sampled(1);
    successor.tokens.extend([&before[..], &[8, 9]].concat());
    successor.max_tokens = 60;
    assert_eq!(tokens_of(&events[place..], 1), undisturbed(&successor));
    // The generation is over: a steer that comes now is refused and disturbs nothing.
    let late = handle.steer(SequenceId(1), vec![1], 5).unwrap_err();
    assert_eq!(late.to_string(), "sequence 1 is not generating: there is nothing to steer");
}

#[test]
fn what_was_asked_of_a_hanging_worker_is_done_after_its_death() {
    let supervisor = supervisor(&[("hang", 5)]);
    let handle = supervisor.handle();
    let first = handle.generate(sampled(1)).unwrap();
    take(&first, 5);
    let others = [2, 3].map(|id| handle.generate(sampled(id)).unwrap());
    handle.cancel(SequenceId(1)).unwrap();
    handle.truncate(SequenceId(2), 20).unwrap();
    handle.fork(SequenceId(10), SequenceId(3), 30).unwrap();
    handle.release(SequenceId(3)).unwrap();
    for generation in [&first, &others[0], &others[1]] {
        assert_eq!(reason(&rest(generation)), FinishReason::Cancelled);
    }
    for (id, base, kept) in [(2, 2, 20), (10, 3, 30)] {
        let events = rest(
            &handle.generate(Generate { base: Base::Extend, ..request(id, Base::New, &[1], 9) }).unwrap(),
        );
        let whole = [&sampled(base).tokens[..kept], &[1]].concat();
        assert_eq!(tokens_of(&events, id), undisturbed(&request(id, Base::New, &whole, 9)));
    }
    let gone = handle.generate(request(3, Base::Extend, &[1], 1)).err().unwrap();
    assert_eq!(gone, EngineError::Refused(Failure::Unknown(SequenceId(3))));
}

#[test]
fn an_idle_sequence_outlives_its_worker() {
    let supervisor = supervisor(&[]);
    let handle = supervisor.handle();
    let first = tokens_of(&rest(&handle.generate(sampled(1)).unwrap()), 1);
    kill(&handle);
    let next = Generate { base: Base::Extend, tokens: vec![5], ..sampled(1) };
    let events = rest(&handle.generate(next).unwrap());
    let whole = [&sampled(1).tokens[..], &first, &[5]].concat();
    assert_eq!(tokens_of(&events, 1), undisturbed(&Generate { tokens: whole, ..sampled(1) }));
    let fork = Generate { base: Base::Fork { of: SequenceId(1), at: 41 }, tokens: vec![6], ..sampled(2) };
    let events = rest(&handle.generate(fork).unwrap());
    let whole = [&sampled(1).tokens[..], &[6]].concat();
    assert_eq!(tokens_of(&events, 2), undisturbed(&Generate { tokens: whole, ..sampled(2) }));
    assert!(events.iter().any(|event| matches!(event, Event::Started { cached: 41, new: 1, .. })));
    let mut rewritten = sampled(1);
    rewritten.tokens[35] ^= 1;
    let events = rest(&handle.generate(Generate { base: Base::Rewrite, ..rewritten.clone() }).unwrap());
    let broke = Break { at: 35, cause: BreakCause::Differs };
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::Started { broke: Some(found), .. } if *found == broke))
    );
    assert_eq!(tokens_of(&events, 1), undisturbed(&rewritten));
}

#[test]
fn a_caller_that_does_not_read_stops_nobody() {
    let supervisor = supervisor(&[]);
    let handle = supervisor.handle();
    let unread = handle.generate(Generate { max_tokens: 1500, ..sampled(1) }).unwrap();
    let other = rest(&handle.generate(sampled(2)).unwrap());
    assert_eq!(tokens_of(&other, 2), undisturbed(&sampled(2)));
    let late = rest(&unread);
    assert_eq!(tokens_of(&late, 1), undisturbed(&Generate { max_tokens: 1500, ..sampled(1) }));
}

#[test]
fn a_dropped_generation_stops_computing_and_keeps_its_sequence() {
    let supervisor = supervisor(&[("slow", 0)]);
    let handle = supervisor.handle();
    let generation = handle.generate(Generate { max_tokens: 1900, ..sampled(1) }).unwrap();
    take(&generation, 5);
    drop(generation);
    let deadline = Instant::now() + PATIENCE;
    while handle.stats(PATIENCE).unwrap().sequences_running > 0 {
        assert!(Instant::now() < deadline, "the generation still runs");
    }
    assert_eq!(handle.stats(PATIENCE).unwrap().sequences, 1);
}

/// Threads that have decoded spin for a moment and then sleep; nothing else wakes up to see whether there is work.
#[test]
fn an_idle_worker_uses_no_processor_time() {
    const IDLE: Duration = Duration::from_secs(4);
    for role in ["none", REAL] {
        let supervisor = Supervisor::start(move || plan(role, 0), Options::default()).unwrap();
        let handle = supervisor.handle();
        let said = rest(&handle.generate(sampled(1)).unwrap());
        assert_eq!((tokens_of(&said, 1).len(), reason(&said)), (120, FinishReason::Length), "{role}");
        let pid = handle.worker_pid().unwrap();
        let before = processor_time(pid);
        let (_keep, nothing) = mpsc::channel::<()>();
        nothing.recv_timeout(IDLE).unwrap_err();
        let used = processor_time(pid) - before;
        assert!(used * 100 < IDLE, "{role}: an idle worker used {used:?} of {IDLE:?}");
    }
}

#[test]
fn a_model_that_does_not_load_is_an_error_at_once() {
    let error = Supervisor::start(|| plan("unloadable", 0), quick()).err().unwrap();
    let words = "the engine is down: the device failed: there is no such model (exit status: 1)";
    assert_eq!(error.to_string(), words);
    let missing = Supervisor::start(|| Command::new("/no/such/program"), quick()).err().unwrap();
    assert!(missing.to_string().starts_with("the engine is down: the worker process could not be started"));
}

#[test]
fn dropping_the_supervisor_ends_worker_and_callers() {
    let supervisor = supervisor(&[("slow", 0)]);
    let handle = supervisor.handle();
    let generation = handle.generate(Generate { max_tokens: 1900, ..sampled(1) }).unwrap();
    take(&generation, 3);
    let pid = handle.worker_pid().unwrap();
    drop(supervisor);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(matches!(rest(&generation).last(), Some(Event::Failed { failure: Failure::WorkerLost(_), .. })));
    assert!(matches!(handle.generate(sampled(2)), Err(EngineError::Down(_))));
}

#[test]
fn even_a_hanging_worker_dies_with_its_parent() {
    let mut parent = plan("none", 0);
    parent.env(ROLE, "parent").stderr(Stdio::piped());
    let mut parent = parent.spawn().unwrap();
    let mut stderr = parent.stderr.take().unwrap();
    let (said, words) = mpsc::channel();
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = stderr.read(&mut buffer) {
            said.send(String::from_utf8_lossy(&buffer[..read]).into_owned()).unwrap();
        }
    });
    let mut heard = String::new();
    while !heard.contains("hanging ") || !heard.ends_with('\n') {
        heard += &words.recv_timeout(PATIENCE).unwrap();
    }
    let pid: u32 = heard.split("hanging ").nth(1).unwrap().trim().parse().unwrap();
    assert!(alive(pid), "the worker runs before its parent dies");
    parent.kill().unwrap();
    parent.wait().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while alive(pid) {
        assert!(Instant::now() < deadline, "the worker outlives its parent");
        thread::yield_now();
    }
}

/// Whether the process runs; one that is dead but not yet collected does not.
fn alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()).is_some_and(|state| state != "Z")
}
