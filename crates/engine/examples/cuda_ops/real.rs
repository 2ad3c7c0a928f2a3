//! A real model: what it says of a text, and whether it always says the same.

use super::cuda;
use crate::common;
use crate::golden_data::{Model, Text, nll, top};
use flint_engine::device::cpu::{Cpu, default_threads};
use flint_engine::device::{Device, cuda::Cuda};
use flint_engine::limits::KV_BLOCK_TOKENS;
use flint_engine::load::ModelFile;
use flint_engine::message::Base;
use flint_engine::model::Loaded;
use flint_engine::step::Engine;
use std::path::Path;

/// Of the CPU's perplexity.
const DIFFERENCE_MAX: f64 = 0.005;
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
    usize::from(ratio.abs() > DIFFERENCE_MAX) + answers(path, &expected.tokens)
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
