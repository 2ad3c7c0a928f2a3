//! The engine's promises, seen from its commands and events.

mod common;

use common::{command, engine, generate, options, request, run, step, tokens_of};
use flint_engine::device::scripted::{Fault, FaultKind, Line, Script};
use flint_engine::message::{
    Base, Break, BreakCause, Command, Counts, Event, Failure, FinishReason, Generate, Priority, SequenceId,
    Tenant,
};
use flint_engine::sample::{BadLogits, Sampling};
use flint_engine::step::Progress;

fn prompt(len: u32) -> Vec<u32> {
    (0..len).map(|i| (i * 37 + 11) % 256).collect()
}

fn finished(events: &[Event], wanted: u64) -> (FinishReason, Counts) {
    let found = events.iter().find_map(|event| match event {
        Event::Finished { sequence, reason, counts } if sequence.0 == wanted => Some((*reason, *counts)),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("sequence {wanted} did not finish: {events:?}"))
}

fn started(events: &[Event], wanted: u64) -> (u32, u32, Option<Break>) {
    let found = events.iter().rev().find_map(|event| match event {
        Event::Started { sequence, cached, new, broke } if sequence.0 == wanted => {
            Some((*cached, *new, *broke))
        }
        _ => None,
    });
    found.unwrap_or_else(|| panic!("sequence {wanted} did not start: {events:?}"))
}

/// What a fresh engine makes of these tokens.
fn alone(tokens: &[u32], sampling: &Sampling, max_tokens: u32) -> Vec<u32> {
    let mut engine = engine(options(Script::Noise));
    let request = Generate { sampling: sampling.clone(), ..request(1, Base::New, tokens, max_tokens) };
    generate(&mut engine, request);
    tokens_of(&run(&mut engine), 1)
}

#[test]
fn a_line_is_played_to_its_stop_token() {
    let line = Line { cue: vec![1, 2, 3], answer: vec![40, 41, 42] };
    let mut engine = engine(options(Script::Lines { lines: vec![line], end: 0 }));
    generate(&mut engine, Generate { stop_tokens: vec![0], ..request(1, Base::New, &[9, 1, 2, 3], 100) });
    let events = run(&mut engine);
    assert_eq!(tokens_of(&events, 1), [40, 41, 42, 0]);
    let counts = Counts { cached: 0, new: 4, generated: 4, ..Counts::default() };
    assert_eq!(finished(&events, 1), (FinishReason::Stop, counts));
}

#[test]
fn a_seed_gives_the_same_tokens_whatever_else_is_in_the_batch() {
    let sampling = |seed| Sampling { temperature: 1.0, seed, ..Sampling::default() };
    let mut engine = engine(options(Script::Noise));
    for id in 1..=20 {
        let request = request(id, Base::New, &prompt(30 * id as u32), 50);
        generate(&mut engine, Generate { sampling: sampling(id), ..request });
    }
    let events = run(&mut engine);
    for id in 1..=20 {
        assert_eq!(
            tokens_of(&events, id),
            alone(&prompt(30 * id as u32), &sampling(id), 50),
            "sequence {id}"
        );
    }
}

#[test]
fn the_next_turn_prefills_only_what_is_new() {
    let mut engine = engine(options(Script::Noise));
    generate(&mut engine, request(1, Base::New, &prompt(100), 20));
    let first = tokens_of(&run(&mut engine), 1);
    let before = engine.stats().rows_prefilled;
    generate(&mut engine, request(1, Base::Extend, &[5, 6, 7], 10));
    let events = run(&mut engine);
    assert_eq!(started(&events, 1), (120, 3, None));
    assert_eq!(engine.stats().rows_prefilled - before, 3);
    let history = [&prompt(100)[..], &first, &[5, 6, 7]].concat();
    assert_eq!(tokens_of(&events, 1), alone(&history, &Sampling::default(), 10));
}

#[test]
fn after_a_steer_only_the_new_tokens_are_prefilled() {
    let mut engine = engine(options(Script::Noise));
    generate(&mut engine, request(1, Base::New, &prompt(90), 1000));
    let mut events: Vec<Event> = (0..41).flat_map(|_| step(&mut engine)).collect();
    let said = tokens_of(&events, 1);
    let before = engine.stats().rows_prefilled;
    let steer = Command::Steer { sequence: SequenceId(1), tokens: prompt(17), max_tokens: 25 };
    let steered = command(&mut engine, steer);
    let counts = Counts { cached: 0, new: 90, generated: 41, ..Counts::default() };
    assert_eq!(steered, [Event::Steered { sequence: SequenceId(1), kept: 131, counts }]);
    events = run(&mut engine);
    assert_eq!(started(&events, 1), (131, 17, None));
    assert_eq!(engine.stats().rows_prefilled - before, 17);
    let history = [prompt(90), said, prompt(17)].concat();
    assert_eq!(tokens_of(&events, 1), alone(&history, &Sampling::default(), 25));
    assert_eq!(finished(&events, 1).1, Counts { cached: 131, new: 17, generated: 25, ..Counts::default() });
}

#[test]
fn variants_of_one_prefill_share_it_at_any_token() {
    let mut engine = engine(options(Script::Noise));
    generate(&mut engine, request(1, Base::New, &prompt(100), 0));
    assert_eq!(finished(&run(&mut engine), 1).0, FinishReason::Length);
    let base = |at| Base::Fork { of: SequenceId(1), at };
    for (id, at) in (2..).zip([1, 31, 32, 33, 64, 99, 100]) {
        generate(&mut engine, request(id, base(at), &[200 + id as u32], 40));
    }
    let events = run(&mut engine);
    for (id, at) in (2..).zip([1, 31, 32, 33, 64, 99, 100]) {
        assert_eq!(started(&events, id), (at, 1, None));
        let history = [&prompt(at), &[200 + id as u32][..]].concat();
        assert_eq!(tokens_of(&events, id), alone(&history, &Sampling::default(), 40), "fork at {at}");
    }
}

#[test]
fn a_fork_made_in_mid_generation_goes_its_own_way_and_leaves_its_parent_alone() {
    let mut engine = engine(options(Script::Noise));
    generate(&mut engine, request(1, Base::New, &prompt(40), 60));
    let early: Vec<Event> = (0..10).flat_map(|_| step(&mut engine)).collect();
    let fork = Command::Fork { sequence: SequenceId(2), of: SequenceId(1), at: 45 };
    assert_eq!(command(&mut engine, fork), []);
    generate(&mut engine, request(2, Base::Extend, &[77], 30));
    let events = [early, run(&mut engine)].concat();
    let parent = tokens_of(&events, 1);
    assert_eq!(parent, alone(&prompt(40), &Sampling::default(), 60));
    let history = [&prompt(40), &parent[..5], &[77]].concat();
    assert_eq!(tokens_of(&events, 2), alone(&history, &Sampling::default(), 30));
}

#[test]
fn a_truncated_sequence_goes_on_as_if_the_rest_had_never_been() {
    let mut engine = engine(options(Script::Noise));
    generate(&mut engine, request(1, Base::New, &prompt(70), 100));
    step(&mut engine);
    let ended = command(&mut engine, Command::Truncate { sequence: SequenceId(1), len: 50 });
    assert_eq!(finished(&ended, 1).0, FinishReason::Cancelled);
    generate(&mut engine, request(1, Base::Extend, &[4], 40));
    let events = run(&mut engine);
    assert_eq!(started(&events, 1), (50, 1, None));
    let history = [&prompt(50), &[4][..]].concat();
    assert_eq!(tokens_of(&events, 1), alone(&history, &Sampling::default(), 40));
}

#[test]
fn a_rewrite_says_at_which_token_it_broke() {
    let mut engine = engine(options(Script::Noise));
    generate(&mut engine, request(1, Base::New, &prompt(100), 0));
    run(&mut engine);
    let mut changed = prompt(110);
    changed[60] ^= 1;
    generate(&mut engine, request(1, Base::Rewrite, &changed, 5));
    let events = run(&mut engine);
    assert_eq!(started(&events, 1), (60, 50, Some(Break { at: 60, cause: BreakCause::Differs })));
    assert_eq!(tokens_of(&events, 1), alone(&changed, &Sampling::default(), 5));
}

#[test]
fn a_prefix_is_reused_by_the_same_tenant_only() {
    let mut engine = engine(options(Script::Noise));
    generate(&mut engine, request(1, Base::New, &prompt(100), 1));
    run(&mut engine);
    command(&mut engine, Command::Release { sequence: SequenceId(1) });
    generate(&mut engine, request(2, Base::New, &prompt(100), 1));
    generate(&mut engine, Generate { tenant: Tenant(2), ..request(3, Base::New, &prompt(100), 1) });
    let events = run(&mut engine);
    assert_eq!(started(&events, 2), (96, 4, None));
    assert_eq!(started(&events, 3), (0, 100, None));
}

#[test]
fn cancel_frees_the_seat_at_once_and_keeps_the_sequence() {
    let mut engine = engine(options(Script::Noise));
    generate(&mut engine, request(1, Base::New, &prompt(40), 500));
    step(&mut engine);
    let events = command(&mut engine, Command::Cancel { sequence: SequenceId(1) });
    assert_eq!(finished(&events, 1).0, FinishReason::Cancelled);
    assert_eq!(engine.step(&mut Vec::new()).unwrap(), Progress::Idle);
    assert_eq!(command(&mut engine, Command::Cancel { sequence: SequenceId(1) }), []);
    command(&mut engine, Command::Release { sequence: SequenceId(1) });
    let stats = engine.stats();
    assert_eq!((stats.sequences, stats.blocks_free + stats.blocks_cached), (0, stats.blocks));
}

#[test]
fn preempted_sequences_go_on_with_identical_tokens() {
    let mut tight = options(Script::Noise);
    tight.kv_blocks = 12;
    let mut engine = engine(tight);
    let sampling = |seed| Sampling { temperature: 1.0, frequency_penalty: 0.5, seed, ..Sampling::default() };
    for id in 1..=6 {
        let request = request(id, Base::New, &prompt(10 + id as u32), 150);
        generate(&mut engine, Generate { sampling: sampling(id), ..request });
    }
    let events = run(&mut engine);
    assert!(engine.stats().preemptions > 0);
    let mut recomputed = 0;
    for id in 1..=6 {
        let expected = alone(&prompt(10 + id as u32), &sampling(id), 150);
        assert_eq!(tokens_of(&events, id), expected, "sequence {id}");
        recomputed += finished(&events, id).1.recomputed;
    }
    assert!(recomputed > 0);
}

#[test]
fn an_evicted_sequence_is_computed_again_and_says_so() {
    let mut tight = options(Script::Noise);
    tight.kv_blocks = 4;
    let mut engine = engine(tight);
    generate(&mut engine, request(1, Base::New, &prompt(60), 0));
    run(&mut engine);
    generate(&mut engine, Generate { tenant: Tenant(2), ..request(2, Base::New, &prompt(100), 1) });
    run(&mut engine);
    generate(&mut engine, request(1, Base::Extend, &[9], 3));
    let events = run(&mut engine);
    assert_eq!(started(&events, 1), (0, 61, Some(Break { at: 0, cause: BreakCause::Evicted })));
    let history = [&prompt(60), &[9][..]].concat();
    assert_eq!(tokens_of(&events, 1), alone(&history, &Sampling::default(), 3));
}

#[test]
fn a_keystroke_goes_before_a_full_house_of_background_work() {
    let mut engine = engine(options(Script::Noise));
    for id in 1..=40 {
        let background = request(id, Base::New, &prompt(8), 200);
        generate(&mut engine, Generate { priority: Priority::Background, ..background });
    }
    step(&mut engine);
    generate(
        &mut engine,
        Generate { priority: Priority::Keystroke, ..request(99, Base::New, &prompt(20), 5) },
    );
    let events: Vec<Event> = (0..5).flat_map(|_| step(&mut engine)).collect();
    assert_eq!(finished(&events, 99).0, FinishReason::Length);
}

#[test]
fn a_resumed_generation_goes_on_exactly_where_the_lost_one_was() {
    let sampling = Sampling {
        temperature: 1.0,
        presence_penalty: 0.7,
        frequency_penalty: 0.4,
        repetition_penalty: 1.3,
        seed: 5,
        ..Sampling::default()
    };
    let whole = alone(&prompt(50), &sampling, 60);
    let mut engine = engine(options(Script::Noise));
    let tokens = [&prompt(50), &whole[..23]].concat();
    let request = Generate { resumed: 23, sampling, ..request(1, Base::New, &tokens, 60) };
    generate(&mut engine, request);
    let events = run(&mut engine);
    assert_eq!(tokens_of(&events, 1), whole[23..]);
    assert_eq!(finished(&events, 1).1.generated, 60);
}

#[test]
fn a_generation_resumed_at_its_very_end_tells_no_more() {
    let mut engine = engine(options(Script::Noise));
    generate(&mut engine, Generate { resumed: 5, ..request(1, Base::New, &prompt(50), 5) });
    let events = run(&mut engine);
    assert!(tokens_of(&events, 1).is_empty());
    assert_eq!(
        finished(&events, 1),
        (FinishReason::Length, Counts { new: 50, generated: 5, ..Counts::default() })
    );
}

#[test]
fn bad_logits_fail_their_sequence_and_are_never_reused() {
    let mut faulty = options(Script::Noise);
    faulty.fault = Some(Fault { pass: 2, kind: FaultKind::NotANumber });
    let mut engine = engine(faulty);
    generate(&mut engine, request(1, Base::New, &prompt(64), 100));
    let events = run(&mut engine);
    assert_eq!(tokens_of(&events, 1).len(), 2);
    let failure = Failure::Logits(BadLogits::NotANumber);
    assert_eq!(events.last(), Some(&Event::Failed { sequence: SequenceId(1), failure }));
    assert_eq!(engine.stats().blocks_free, engine.stats().blocks);
}

#[test]
fn the_context_ends_a_generation() {
    let mut short = options(Script::Noise);
    short.context = 50;
    let mut engine = engine(short);
    generate(&mut engine, request(1, Base::New, &prompt(45), 100));
    let events = run(&mut engine);
    assert_eq!(finished(&events, 1).0, FinishReason::Context);
    assert_eq!(tokens_of(&events, 1).len(), 5);
}

#[test]
fn one_sequence_may_fill_the_whole_pool_and_still_rewrite_its_end() {
    let mut tight = options(Script::Noise);
    tight.kv_blocks = 2;
    let mut engine = engine(tight);
    generate(&mut engine, request(1, Base::New, &prompt(63), 0));
    run(&mut engine);
    command(&mut engine, Command::Fork { sequence: SequenceId(2), of: SequenceId(1), at: 40 });
    generate(&mut engine, request(2, Base::Extend, &[1], 20));
    let events = run(&mut engine);
    let history = [&prompt(40), &[1][..]].concat();
    assert_eq!(tokens_of(&events, 2), alone(&history, &Sampling::default(), 20));
}

#[test]
fn what_cannot_be_done_is_refused_in_words() {
    let mut engine = engine(options(Script::Noise));
    generate(&mut engine, request(1, Base::New, &[1, 2], 100));
    let fork = |of, at| Base::Fork { of: SequenceId(of), at };
    let warm = Sampling { temperature: -1.0, ..Sampling::default() };
    let cases = [
        (request(1, Base::New, &[1], 1), "sequence 1 exists already: choose a new id"),
        (request(1, Base::Extend, &[1], 1), "sequence 1 is generating: cancel or steer it first"),
        (request(2, Base::Extend, &[1], 1), "sequence 2 is not known: it was released or never begun"),
        (request(2, Base::New, &[], 1), "the prompt is empty: at least one token is needed"),
        (request(2, Base::New, &[256], 1), "token 256 is not in the vocabulary of 256 tokens"),
        (
            request(2, Base::New, &[1; 2048], 1),
            "the sequence would have 2048 tokens, at most 2047 fit: shorten the prompt",
        ),
        (request(2, fork(1, 3), &[1], 1), "position 3 is past the end of sequence 1, which has 2 tokens"),
        (
            Generate { tenant: Tenant(2), ..request(2, fork(1, 1), &[1], 1) },
            "sequence 1 belongs to another tenant",
        ),
        (
            Generate { sampling: warm, ..request(2, Base::New, &[1], 1) },
            "temperature is -1, it must be from 0 to 100",
        ),
        (
            Generate { resumed: 2, ..request(2, Base::New, &[1], 1) },
            "2 tokens are said to be resumed, but only 1 were given",
        ),
        (
            Generate { stop_tokens: vec![1; 65], ..request(2, Base::New, &[1], 1) },
            "65 stop tokens were given, at most 64 are allowed",
        ),
        (
            Generate { references: vec![vec![]; 17], ..request(2, Base::New, &[1], 1) },
            "17 references were given, at most 16 are allowed",
        ),
        (
            Generate { references: vec![vec![1; 1 << 15]; 3], ..request(2, Base::New, &[1], 1) },
            "the references have 98304 tokens, at most 65536 are allowed",
        ),
        (
            Generate { references: vec![vec![1, 256]], ..request(2, Base::New, &[1], 1) },
            "token 256 is not in the vocabulary of 256 tokens",
        ),
    ];
    for (request, words) in cases {
        match &generate(&mut engine, request)[..] {
            [Event::Refused { failure, .. }] => assert_eq!(failure.to_string(), words),
            events => panic!("expected {words:?}, got {events:?}"),
        }
    }
    assert_eq!(engine.stats().sequences, 1);
}
