//! Guesses change nothing but the number of forward passes.

mod common;

use common::{Random, bytes, command, generate, options, request, run, tokens_of};
use flint_engine::batch::Batch;
use flint_engine::constrain::Constraint;
use flint_engine::device::scripted::{Script, Scripted, ScriptedOptions};
use flint_engine::draft::Pace;
use flint_engine::message::{Base, Command, Event, Generate, SequenceId};
use flint_engine::runner::{Runner, RunnerError, RunnerFacts};
use flint_engine::sample::Sampling;
use flint_engine::step::Engine;
use serde_json::json;

fn engine(options: ScriptedOptions, pace: Pace) -> Engine {
    let runner = Scripted::new(options).unwrap();
    Engine::new(Box::new(runner)).with_vocabulary(Box::new(|| Ok(bytes()))).with_pace(pace)
}

/// A model of a language: it mostly goes on as the bytes of its text do, and is sometimes surprised.
fn patchwork(random: &mut Random, len: usize) -> Vec<u32> {
    let words: Vec<Vec<u32>> =
        (0..12).map(|_| (0..3 + random.below(9)).map(|_| random.below(256) as u32).collect()).collect();
    let mut text = Vec::new();
    while text.len() < len {
        text.extend(&words[random.below(12) as usize]);
    }
    text.truncate(len);
    text
}

/// What was generated and told of each sequence, without what only says how it was computed.
fn told(events: &[Event], sequences: u64) -> Vec<Vec<String>> {
    let of = |id| {
        let own = events.iter().filter(move |event| event.sequence() == Some(SequenceId(id)));
        own.map(|event| match event {
            Event::Finished { reason, counts, .. } => format!("{reason:?} {}", counts.generated),
            Event::Started { .. } => "started".to_owned(),
            Event::Steered { kept, .. } => format!("steered after {kept}"),
            other => format!("{other:?}"),
        })
    };
    (1..=sequences).map(|id| of(id).collect()).collect()
}

fn samplings() -> Vec<Sampling> {
    let warm = Sampling { temperature: 0.7, seed: 3, ..Sampling::default() };
    vec![
        Sampling::default(),
        Sampling { logprobs: Some(3), ..warm.clone() },
        Sampling { top_k: 5, top_p: 0.9, min_p: 0.02, ..warm.clone() },
        Sampling { repetition_penalty: 1.2, frequency_penalty: 0.4, presence_penalty: 0.1, ..warm.clone() },
        Sampling { bias: vec![(7, 3.0), (9, -4.0)], logprobs: Some(0), ..Sampling::default() },
    ]
}

/// The same requests with and without guesses, alone and beside one another, over many scripts.
#[test]
fn tokens_and_all_that_is_told_of_them_are_the_same() {
    let mut accepted = 0;
    for seed in 0..40 {
        let mut random = Random(seed);
        let cycle = patchwork(&mut random, 90);
        let tight = ScriptedOptions { kv_blocks: 24, ..options(Script::Cycle(cycle.clone())) };
        let requests: Vec<Generate> = (1..)
            .zip(samplings())
            .map(|(id, sampling)| {
                let from = random.below(90) as usize;
                let prompt: Vec<u32> = cycle.iter().cycle().copied().skip(from).take(100).collect();
                let references = vec![patchwork(&mut random, 40), cycle.clone()];
                let stop_tokens = vec![cycle[random.below(90) as usize]];
                let stop_tokens = if random.below(2) == 0 { stop_tokens } else { Vec::new() };
                let request = request(id, Base::New, &prompt, 30 + random.below(120) as u32);
                Generate { sampling, references, stop_tokens, ..request }
            })
            .collect();
        let outcome = |speculate: bool| {
            let mut engine = engine(tight.clone(), Pace::Flat);
            let mut events = Vec::new();
            for request in &requests {
                events.extend(generate(&mut engine, Generate { speculate, ..request.clone() }));
            }
            events.extend(run(&mut engine));
            (told(&events, 5), engine.stats())
        };
        let (plain, without) = outcome(false);
        let (guessed, with) = outcome(true);
        assert_eq!(guessed, plain, "seed {seed}");
        assert_eq!((without.rows_drafted, without.rows_accepted), (0, 0));
        accepted += with.rows_accepted;
    }
    assert!(accepted > 2000, "{accepted}");
}

/// Tokens that a guess was right about leave the same KV behind: what follows is the same, too.
#[test]
fn all_that_is_done_to_a_sequence_afterwards_finds_it_the_same() {
    let mut accepted = 0;
    for seed in 0..60 {
        let outcome = |speculate: bool| {
            let mut random = Random(seed);
            let script = Script::Lines { lines: Vec::new(), end: 7 };
            let cycle = patchwork(&mut random, 60);
            let script = if seed % 3 == 0 { script } else { Script::Cycle(cycle.clone()) };
            let mut engine = engine(options(script), Pace::Flat);
            let ask =
                |engine: &mut Engine, request: Generate| generate(engine, Generate { speculate, ..request });
            let prompt: Vec<u32> = cycle.iter().cycle().copied().take(70).collect();
            let mut events = ask(&mut engine, request(1, Base::New, &prompt, 50));
            events.extend(run(&mut engine));
            let steer = Command::Steer { sequence: SequenceId(1), tokens: vec![5, 6], max_tokens: 40 };
            ask(&mut engine, request(1, Base::Extend, &[9], 33));
            events.extend(command(&mut engine, steer));
            events.extend(run(&mut engine));
            let at = random.below(120) as u32;
            ask(&mut engine, request(2, Base::Fork { of: SequenceId(1), at }, &[4], 60));
            command(&mut engine, Command::Truncate { sequence: SequenceId(1), len: 64 });
            ask(&mut engine, request(1, Base::Extend, &[8, 8], 60));
            events.extend(run(&mut engine));
            (told(&events, 2), engine.stats())
        };
        let (plain, _) = outcome(false);
        let (guessed, stats) = outcome(true);
        assert_eq!(guessed, plain, "seed {seed}");
        assert_eq!(stats.blocks_running, 0);
        accepted += stats.rows_accepted;
    }
    assert!(accepted > 2000, "{accepted}");
}

/// A verbatim copy takes a fraction of the passes.
#[test]
fn a_copy_takes_few_passes() {
    let mut engine = engine(options(Script::Cycle((0..250).collect())), Pace::Flat);
    let prompt: Vec<u32> = (0..250).chain(0..10).collect();
    generate(&mut engine, Generate { speculate: true, ..request(1, Base::New, &prompt, 600) });
    let before = engine.stats().steps;
    let events = run(&mut engine);
    assert_eq!(tokens_of(&events, 1), (10..610).map(|i| i % 250).collect::<Vec<u32>>());
    let steps = engine.stats().steps - before;
    assert!(steps < 20, "{steps} steps for 600 tokens");
    let Some(Event::Finished { counts, .. }) = events.last() else { panic!("{events:?}") };
    assert!(counts.accepted >= 585 && counts.drafted >= counts.accepted, "{counts:?}");
}

/// What a caller expects is written at once if it comes.
#[test]
fn a_reference_is_guessed_from_its_beginning() {
    let cycle: Vec<u32> = (0..200).map(|i| i * 7 % 251).collect();
    let mut engine = engine(options(Script::Cycle(cycle.clone())), Pace::Flat);
    let references = vec![cycle[10..].to_vec()];
    let request = Generate { references, speculate: true, ..request(1, Base::New, &cycle[..10], 190) };
    generate(&mut engine, request);
    let before = engine.stats().steps;
    assert_eq!(tokens_of(&run(&mut engine), 1), cycle[10..]);
    assert!(engine.stats().steps - before < 8);
}

/// With a grammar the tokens are the same, and those that it forces come together.
#[test]
fn forced_tokens_come_together() {
    let schema = json!({
        "type": "object",
        "properties": {
            "a_rather_long_name": { "enum": ["one possibility", "another possibility"] },
            "another_rather_long_name": { "type": "array", "items": { "const": "the same" }, "maxItems": 3 },
        },
        "required": ["a_rather_long_name", "another_rather_long_name"],
        "additionalProperties": false,
    });
    for seed in 0..12 {
        let outcome = |speculate: bool| {
            let mut engine = engine(options(Script::Noise), Pace::Flat);
            let sampling = Sampling { temperature: 1.0, seed, ..Sampling::default() };
            let constraint = Some(Constraint::json_schema(&schema));
            let request = Generate { sampling, constraint, speculate, ..request(1, Base::New, &[1, 2], 200) };
            generate(&mut engine, request);
            let events = run(&mut engine);
            (told(&events, 1), engine.stats())
        };
        let (plain, without) = outcome(false);
        let (guessed, with) = outcome(true);
        assert_eq!(guessed, plain, "seed {seed}");
        let tokens = without.rows_decoded;
        assert!(with.rows_accepted * 2 > tokens, "{} of {tokens} tokens", with.rows_accepted);
    }
}

/// Passes that cost in proportion to their rows: guessing can gain nothing.
struct Proportional(Scripted);

impl Runner for Proportional {
    fn facts(&self) -> RunnerFacts {
        self.0.facts()
    }

    fn forward(&mut self, batch: &Batch) -> Result<(), RunnerError> {
        let begun = std::time::Instant::now();
        while begun.elapsed().as_micros() < 50 * batch.rows() as u128 {
            std::hint::spin_loop();
        }
        self.0.forward(batch)
    }

    fn logits(&mut self, index: usize) -> &mut [f32] {
        self.0.logits(index)
    }

    fn copy_block(&mut self, from: u32, to: u32) {
        self.0.copy_block(from, to);
    }
}

/// How many tokens are guessed where every guess costs as much as a token: a small vocabulary of random tokens, in which there
/// is always some match, and it is always wrong.
fn drafted_in_noise(pace: Pace) -> u64 {
    let runner = Scripted::new(options(Script::Noise)).unwrap();
    let mut engine = Engine::new(Box::new(Proportional(runner))).with_pace(pace);
    let sampling = Sampling { bias: (0..6).map(|token| (token, 100.0)).collect(), ..Sampling::default() };
    let request = Generate { sampling, speculate: true, ..request(1, Base::New, &[1, 2, 3, 4, 5], 1500) };
    generate(&mut engine, request);
    run(&mut engine);
    engine.stats().rows_drafted
}

#[test]
fn what_does_not_pay_is_left() {
    // Costs are measured by the clock, and a busy machine lets some guesses seem cheap.
    let (measured, all) = (drafted_in_noise(Pace::default()), drafted_in_noise(Pace::Flat));
    assert!(measured < all / 8, "{measured} guesses of {all}");
}
