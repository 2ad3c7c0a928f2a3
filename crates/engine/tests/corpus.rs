//! Replays the corpora of the fuzzers, with the fuzzers' own assertions: what was found once stays found.

#[path = "../../../fuzz/src/engine/mod.rs"]
mod promises;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

use flint_engine::constrain::{BadConstraint, Constraint};
use flint_engine::link::encode_frame;
use flint_engine::message::{
    Base, Break, BreakCause, Command, Counts, Event, Failure, FinishReason, Generate, Priority, SequenceId,
    Stats, Tenant, TokenLogprob, Verb,
};
use flint_engine::runner::RunnerFacts;
use flint_engine::sample::Sampling;
use serde::Serialize;

#[test]
fn gguf() {
    replay::corpus("gguf", promises::gguf);
}

#[test]
fn safetensors() {
    replay::corpus("safetensors", promises::safetensors);
}

#[test]
fn constrain() {
    replay::corpus("constrain", promises::constrain);
}

#[test]
fn link() {
    replay::corpus("link", promises::link);
}

const ONE: SequenceId = SequenceId(1);
const TWO: SequenceId = SequenceId(u64::MAX);

fn generate(base: Base, constraint: Option<Constraint>) -> Command {
    let bias = vec![(7, -1.5), (u32::MAX, f32::NAN)];
    let sampling = Sampling { temperature: 0.7, top_k: 40, bias, logprobs: Some(3), ..Sampling::default() };
    Command::Generate(Generate {
        sequence: TWO,
        base,
        tokens: vec![1, 300, 151_935],
        resumed: 1,
        max_tokens: 64,
        stop_tokens: vec![2],
        sampling,
        constraint,
        references: vec![vec![7, 151_000], vec![]],
        speculate: true,
        priority: Priority::Interactive,
        tenant: Tenant(9),
    })
}

fn commands() -> Vec<Command> {
    vec![
        generate(Base::New, None),
        generate(Base::Fork { of: ONE, at: 2 }, Some(Constraint::lark("start: /[a-z]+/".into()))),
        Command::Steer { sequence: ONE, tokens: vec![5; 40], max_tokens: 300 },
        Command::Cancel { sequence: ONE },
        Command::Truncate { sequence: ONE, len: 1000 },
        Command::Fork { sequence: TWO, of: ONE, at: 7 },
        Command::Release { sequence: TWO },
        Command::Stats,
        Command::Shutdown,
    ]
}

fn events() -> Vec<Event> {
    let counts = Counts { cached: 1, new: 200, generated: 3, recomputed: 0, drafted: 300, accepted: 2 };
    let top = vec![TokenLogprob { token: 5, logprob: -0.25 }, TokenLogprob { token: 6, logprob: -2.0 }];
    let broke = Some(Break { at: 3, cause: BreakCause::Evicted });
    vec![
        Event::Ready(RunnerFacts { vocab: 49_152, context: 8192, kv_blocks: 256 }),
        Event::Alive,
        Event::Started { sequence: ONE, cached: 3, new: 130, broke },
        Event::Token { sequence: ONE, token: 5, logprob: Some(-0.25), top },
        Event::Token { sequence: TWO, token: u32::MAX, logprob: Some(f32::NAN), top: vec![] },
        Event::Steered { sequence: ONE, kept: 9, counts },
        Event::Finished { sequence: ONE, reason: FinishReason::Length, counts },
        Event::Failed { sequence: ONE, failure: Failure::WorkerLost("signal 9".into()) },
        Event::Failed { sequence: TWO, failure: Failure::Constraint(BadConstraint::TooSlow) },
        Event::Refused { sequence: TWO, verb: Verb::Fork, failure: Failure::Unknown(ONE) },
        Event::Stats(Stats { steps: 1 << 40, ..Stats::default() }),
        Event::Fatal { message: "no memory: für 3 GiB".into() },
    ]
}

/// The cut of the reads, then the frames.
fn seed<T: Serialize>(cut: u8, messages: impl IntoIterator<Item = T>) -> Vec<u8> {
    let mut frames = vec![cut];
    messages.into_iter().for_each(|message| encode_frame(&message, &mut frames).expect("a frame"));
    frames
}

/// There is a frame of every kind to begin with. `UPDATE_CORPUS=1` writes them.
#[test]
fn the_corpus_has_every_message() {
    replay::has("link", "commands", &seed(3, commands()));
    replay::has("link", "events-of-one-step", &seed(0, [events()]));
    replay::has("link", "events-apart", &seed(200, events().into_iter().map(|event| vec![event])));
    for (at, command) in commands().into_iter().enumerate() {
        replay::has("link", &format!("command-{at}"), &seed(at as u8, [command]));
    }
    for (at, event) in events().into_iter().enumerate() {
        replay::has("link", &format!("event-{at}"), &seed(at as u8, [vec![event]]));
    }
}
