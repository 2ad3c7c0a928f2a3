//! Perplexity of the real models on a fixed text, against transformers on the dequantised files.
//!
//! `cargo xtask golden perplexity` made tests/golden/perplexity.json from perplexity.txt beside it.

mod common;
mod golden_data;

use common::model_path;
use flint_engine::device::cpu::Cpu;
use golden_data::{Model, root, top};
use serde::Deserialize;

const DIFFERENCE_MAX: f64 = 0.005;

#[derive(Deserialize)]
struct Reference {
    chunk: usize, // tokens that are computed together, afresh
    models: Vec<Expected>,
}

#[derive(Deserialize)]
struct Expected {
    name: String,
    perplexity: f64,
    tokens: Vec<u32>,
    top: Vec<u32>, // the most likely token before each token but the first of a chunk
}

/// What was found on a text.
#[derive(Default)]
struct Found {
    nll: f64, // nats
    predicted: usize,
    agreed: usize, // top tokens
}

fn reference() -> Reference {
    let json = std::fs::read(root().join("perplexity.json")).unwrap();
    serde_json::from_slice(&json).unwrap()
}

/// Negative log-probability of a token.
fn nll(logits: &[f32], token: u32) -> f64 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max) as f64;
    let total: f64 = logits.iter().map(|&logit| (logit as f64 - largest).exp()).sum();
    total.ln() + largest - logits[token as usize] as f64
}

fn measure(model: &mut Model, tokens: &[u32], tops: &[u32], found: &mut Found) {
    model.prefill(0, tokens, usize::MAX, &mut |position, logits| {
        let Some(&next) = tokens.get(position + 1) else { return };
        found.nll += nll(logits, next);
        found.predicted += 1;
        found.agreed += usize::from(top(logits) == tops[position]);
    });
}

fn check(name: &str) {
    let Reference { chunk, models } = reference();
    let expected = models.into_iter().find(|model| model.name == name).unwrap();
    assert!(expected.tokens.len() >= 6000);
    let mut model = Model::load(&model_path(name), Cpu::new(2).unwrap(), 1, chunk);
    let mut found = Found::default();
    for (tokens, tops) in expected.tokens.chunks(chunk).zip(expected.top.chunks(chunk - 1)) {
        measure(&mut model, tokens, tops, &mut found);
    }
    let perplexity = (found.nll / found.predicted as f64).exp();
    let difference = perplexity / expected.perplexity - 1.0;
    println!(
        "{name}: perplexity {perplexity:.4}, reference {:.4} ({:+.3}%); {} of {} top tokens",
        expected.perplexity,
        100.0 * difference,
        found.agreed,
        found.predicted
    );
    assert!(difference.abs() <= DIFFERENCE_MAX, "{name}: off by {:+.3}%", 100.0 * difference);
}

#[test]
fn smollm2() {
    check("smollm2-135m");
}

#[test]
fn qwen25_coder() {
    check("qwen2.5-coder-1.5b");
}
