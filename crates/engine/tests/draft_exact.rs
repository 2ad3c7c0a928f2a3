//! On tiny models of every architecture: with guesses the tokens are the same, and drawn from the same distribution.

mod common;
mod golden_data;

use common::{generate, request, run, tokens_of};
use flint_engine::device::Device;
use flint_engine::device::cpu::Cpu;
use flint_engine::device::plain::Plain;
use flint_engine::draft::Pace;
use flint_engine::limits::KV_BLOCK_TOKENS;
use flint_engine::load::ModelFile;
use flint_engine::message::{Base, Command, Generate, SequenceId};
use flint_engine::model::Loaded;
use flint_engine::sample::Sampling;
use flint_engine::step::Engine;
use golden_data::{MODELS, Prompt, Reference, files};
use std::collections::BTreeMap;
use std::path::Path;

fn engine<D: Device + 'static>(path: &Path, device: D) -> Engine {
    let file = ModelFile::open(path).unwrap();
    let blocks = 20 * file.config.context / KV_BLOCK_TOKENS;
    let runner = Loaded::new(&file, device, blocks, &mut |_, _| ()).unwrap();
    Engine::new(Box::new(runner)).with_pace(Pace::Flat)
}

/// All prompts side by side; each is expected to be answered like the one before it.
fn answers(engine: &mut Engine, prompts: &[Prompt], sampling: &Sampling, speculate: bool) -> Vec<Vec<u32>> {
    for (id, prompt) in (1..).zip(prompts) {
        let references = vec![prompt.greedy.clone(), prompts[0].greedy.clone()];
        let count = prompt.greedy.len() as u32;
        let request = request(id, Base::New, &prompt.tokens, count);
        generate(engine, Generate { references, speculate, sampling: sampling.clone(), ..request });
    }
    let events = run(engine);
    let answers = (1..=prompts.len() as u64).map(|id| {
        engine.command(&Command::Release { sequence: SequenceId(id) }, &mut Vec::new());
        tokens_of(&events, id)
    });
    answers.collect()
}

fn check<D: Device + 'static>(name: &str, device: impl Fn() -> D) {
    let Reference { prompts } = Reference::read(name);
    let warm = Sampling { temperature: 0.8, seed: 5, top_p: 0.95, ..Sampling::default() };
    for path in files(name) {
        for sampling in [Sampling::default(), warm.clone()] {
            let mut engine = engine(&path, device());
            let plain = answers(&mut engine, &prompts, &sampling, false);
            assert_eq!(engine.stats().rows_drafted, 0);
            let guessed = answers(&mut engine, &prompts, &sampling, true);
            let stats = engine.stats();
            println!("{}: {} of {} guesses", path.display(), stats.rows_accepted, stats.rows_drafted);
            assert_eq!(guessed, plain, "{} {sampling:?}", path.display());
            assert!(stats.rows_accepted > 20, "{stats:?}");
        }
    }
}

#[test]
fn on_the_cpu() {
    MODELS.iter().for_each(|name| check(name, || Cpu::new(2).unwrap()));
}

#[test]
fn on_the_plain_device() {
    ["llama", "gpt-oss"].iter().for_each(|name| check(name, Plain::default));
}

/// How often each pair of second and third token comes, over these seeds.
fn pairs(engine: &mut Engine, prompt: &Prompt, seeds: std::ops::Range<u64>, speculate: bool) -> Pairs {
    let mut found = Pairs::new();
    for seed in seeds {
        let sampling = Sampling { temperature: 1.0, top_k: 4, seed, ..Sampling::default() };
        let references = vec![prompt.greedy.clone()];
        let request =
            Generate { sampling, references, speculate, ..request(1, Base::New, &prompt.tokens, 3) };
        generate(engine, request);
        let tokens = tokens_of(&run(engine), 1);
        engine.command(&Command::Release { sequence: SequenceId(1) }, &mut Vec::new());
        *found.entry((tokens[1], tokens[2])).or_default() += 1;
    }
    found
}

type Pairs = BTreeMap<(u32, u32), u32>;

/// The chi-square statistic of two samples of equal size and its degrees of freedom; what is rare is one kind.
fn chi_square(one: &Pairs, two: &Pairs) -> (f64, f64) {
    let mut kinds: BTreeMap<Option<(u32, u32)>, (f64, f64)> = BTreeMap::new();
    for pair in one.keys().chain(two.keys().filter(|pair| !one.contains_key(pair))) {
        let count = |pairs: &Pairs| f64::from(pairs.get(pair).copied().unwrap_or(0));
        let common = count(one) + count(two) >= 20.0;
        let kind = kinds.entry(common.then_some(*pair)).or_default();
        *kind = (kind.0 + count(one), kind.1 + count(two));
    }
    let statistic = kinds.values().map(|(a, b)| (a - b).powi(2) / (a + b)).sum();
    (statistic, kinds.len() as f64 - 1.0)
}

/// Other seeds with guesses than without, so that nothing is equal by construction.
#[test]
fn what_is_drawn_keeps_its_distribution() {
    const SEEDS: u64 = 4000;
    let Reference { prompts } = Reference::read("llama");
    let mut engine = engine(&files("llama")[0], Cpu::new(1).unwrap());
    let mut accepted = 0;
    for prompt in &prompts[..2] {
        let plain = pairs(&mut engine, prompt, 0..SEEDS, false);
        let before = engine.stats().rows_accepted;
        let guessed = pairs(&mut engine, prompt, SEEDS..2 * SEEDS, true);
        accepted += engine.stats().rows_accepted - before;
        let (statistic, freedom) = chi_square(&plain, &guessed);
        // Six standard deviations, in Wilson and Hilferty's approximation.
        let bound = freedom * (1.0 - 2.0 / (9.0 * freedom) + 6.0 * (2.0 / (9.0 * freedom)).sqrt()).powi(3);
        println!("chi-square {statistic:.1} with {freedom} degrees of freedom, at most {bound:.1}");
        assert!(freedom >= 10.0 && statistic < bound, "{plain:?} {guessed:?}");
        // The test is sharp enough to see a distribution that is slightly off.
        let mut skewed = guessed.clone();
        let (most, count) = guessed.iter().max_by_key(|(_, count)| **count).unwrap();
        *skewed.get_mut(most).unwrap() -= count / 3;
        *skewed.entry((u32::MAX, 0)).or_default() += count / 3;
        assert!(chi_square(&plain, &skewed).0 > bound);
    }
    assert!(accepted > 500, "{accepted}");
}
