//! A real model: what it says of a text, and whether it always says the same.

use super::alone::pace;
use super::cuda;
use crate::common;
use crate::golden_data::{Model, Text, nll, top};
use flint_engine::device::cpu::{Cpu, default_threads};
use flint_engine::device::plain::Plain;
use flint_engine::device::{Device, cuda::Cuda};
use flint_engine::limits::KV_BLOCK_TOKENS;
use flint_engine::load::ModelFile;
use flint_engine::message::Base;
use flint_engine::model::Loaded;
use flint_engine::sample::Sampling;
use flint_engine::step::Engine;
use std::path::Path;

/// Of the CPU's perplexity.
const DIFFERENCE_MAX: f64 = 0.005;
/// What `fast` may cost, in nats a token.
const KL_MAX: f64 = 0.02;
const ALONE_TOKENS: usize = 512;
const ROUNDING_TOKENS: usize = 128;
const DEPTH: usize = 4096;
const PROMPTS: usize = 16;
const ANSWER: u32 = 48;

pub fn real(name: &str, path: &Path) -> usize {
    let (chunk, expected) = Text::read(name);
    let cpu = Cpu::new(default_threads()).unwrap();
    let on_cpu = perplexity(path, cpu, &expected.tokens, chunk);
    let on_card = perplexity(path, cuda().replaying(), &expected.tokens, chunk);
    let (ratio, same) = (on_card.0 / on_cpu.0 - 1.0, agreement(&on_cpu.1, &on_card.1));
    println!(
        "{name}: perplexity {:.4} on cuda, {:.4} on the cpu ({:+.3}%), {:.4} by transformers; {same} of {} top tokens are the cpu's",
        on_card.0,
        on_cpu.0,
        100.0 * ratio,
        expected.perplexity,
        on_card.1.len()
    );
    usize::from(ratio.abs() > DIFFERENCE_MAX)
        + answers(path, &expected.tokens)
        + fast_beside_exact(path, &expected.tokens[..ALONE_TOKENS])
}

/// One token at a time in `fast`, and what `exact` says of the same text; then how fast both are.
fn fast_beside_exact(path: &Path, tokens: &[u32]) -> usize {
    let logits =
        |device: Cuda, chunk: usize| Model::load(path, device, 1, ALONE_TOKENS).logits(tokens, chunk);
    let exact = logits(cuda().replaying(), ALONE_TOKENS);
    let fast = logits(cuda().replaying().fast(), 1);
    let kl = compare("fast, one by one", &exact, &fast, tokens);
    for (name, device) in [("exact", cuda().replaying()), ("fast", cuda().replaying().fast())] {
        let file = ModelFile::open(path).unwrap();
        let loaded = Loaded::new(&file, device, DEPTH / KV_BLOCK_TOKENS + 64, &mut |_, _| ()).unwrap();
        pace(loaded, &format!("{name}, greedy, {DEPTH}"), DEPTH, &Sampling::default());
    }
    usize::from(kl > KL_MAX)
}

/// Tells how far logits are from those that count, and returns the distance in nats.
fn compare(name: &str, exact: &[Vec<f32>], found: &[Vec<f32>], tokens: &[u32]) -> f64 {
    let pairs = || exact.iter().zip(found);
    let same = pairs().filter(|(exact, found)| top(exact) == top(found)).count();
    let kl = pairs().map(|(exact, found)| divergence(exact, found)).sum::<f64>() / tokens.len() as f64;
    let perplexity = |logits: &[Vec<f32>]| {
        let nats: f64 = logits.iter().zip(&tokens[1..]).map(|(logits, &next)| nll(logits, next)).sum();
        (nats / (tokens.len() - 1) as f64).exp()
    };
    println!(
        "{name}, {} tokens: perplexity {:.4}, exact {:.4}; KL {kl:.2e} nats; top-1 the same for {same}",
        tokens.len(),
        perplexity(found),
        perplexity(exact)
    );
    kl
}

/// What 8-bit keys and values cost a real model: on the reference device, without a card.
pub fn rounding(name: &str, path: &Path) -> usize {
    let tokens = &Text::read(name).1.tokens[..ROUNDING_TOKENS];
    let logits =
        |device: Plain| Model::load(path, device, 1, ROUNDING_TOKENS).logits(tokens, ROUNDING_TOKENS);
    let (exact, rounded) = (logits(Plain::default()), logits(Plain::default().rounding_kv()));
    usize::from(compare("8-bit keys and values", &exact, &rounded, tokens) > KL_MAX)
}

/// How far the second distribution is from the first, in nats.
fn divergence(first: &[f32], second: &[f32]) -> f64 {
    let largest = |logits: &[f32]| f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let total = |logits: &[f32], most: f64| logits.iter().map(|&l| (f64::from(l) - most).exp()).sum::<f64>();
    let (a, b) = (largest(first), largest(second));
    let (all_a, all_b) = (total(first, a), total(second, b));
    let log_share = |logit: f32, most: f64, all: f64| f64::from(logit) - most - all.ln();
    let pairs = first.iter().zip(second);
    pairs
        .map(|(&x, &y)| {
            let share = log_share(x, a, all_a);
            share.exp() * (share - log_share(y, b, all_b))
        })
        .sum()
}

fn agreement(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).filter(|(a, b)| a == b).count()
}

/// The perplexity, and the most likely token at each place.
fn perplexity<D: Device + 'static>(path: &Path, device: D, tokens: &[u32], chunk: usize) -> (f64, Vec<u32>) {
    let mut model = Model::load(path, device, 1, chunk);
    let (mut nats, mut count, mut tops) = (0.0, 0, Vec::new());
    for tokens in tokens.chunks(chunk) {
        model.prefill(0, tokens, usize::MAX, &mut |position, logits| {
            tops.push(top(logits));
            let Some(&next) = tokens.get(position + 1) else { return };
            nats += nll(logits, next);
            count += 1;
        });
    }
    ((nats / f64::from(count)).exp(), tops)
}

fn engine(path: &Path, device: Cuda) -> Engine {
    let file = ModelFile::open(path).unwrap();
    let blocks = 16_384 / KV_BLOCK_TOKENS;
    Engine::new(Box::new(Loaded::new(&file, device, blocks, &mut |_, _| ()).unwrap()))
}

/// Answers of an engine to some prompts, all at once or one after the other, with or without guesses.
fn ask(
    engine: &mut Engine,
    first: u64,
    prompts: &[&[u32]],
    together: bool,
    speculate: bool,
) -> Vec<Vec<u32>> {
    let mut events = Vec::new();
    for (index, prompt) in prompts.iter().enumerate() {
        let mut request = common::request(first + index as u64, Base::New, prompt, ANSWER);
        request.speculate = speculate;
        events.extend(common::generate(engine, request));
        if !together {
            events.extend(common::run(engine));
        }
    }
    events.extend(common::run(engine));
    (0..prompts.len() as u64).map(|index| common::tokens_of(&events, first + index)).collect()
}

/// Greedy answers are the same alone, beside others, and with guesses; recorded batches and launched ones too.
fn answers(path: &Path, tokens: &[u32]) -> usize {
    let prompts: Vec<&[u32]> = (0..PROMPTS).map(|i| &tokens[i * 310..i * 310 + 12 + 19 * i]).collect();
    let mut recorded = engine(path, cuda().replaying());
    let alone = ask(&mut recorded, 1, &prompts, false, false);
    let differ = |what: &str, answers: &[Vec<u32>]| {
        let differing = answers.iter().zip(&alone).filter(|(a, b)| a != b || a.is_empty()).count();
        println!("{differing} of {PROMPTS} answers differ {what}");
        differing
    };
    differ("beside one another", &ask(&mut recorded, 101, &prompts, true, false))
        + differ("with guesses", &ask(&mut recorded, 201, &prompts, false, true))
        + differ("with guesses, beside one another", &ask(&mut recorded, 301, &prompts, true, true))
        + differ("where batches are not recorded", &ask(&mut engine(path, cuda()), 1, &prompts, true, false))
}
