//! Perplexity of the real models on a fixed text, against transformers on the dequantised files.
//!
//! `cargo xtask golden perplexity` made tests/golden/perplexity.json from perplexity.txt beside it.

mod common;
mod golden_data;

use common::model_path;
use flint_engine::device::cpu::Cpu;
use golden_data::{Model, Text, nll, top};

const DIFFERENCE_MAX: f64 = 0.005;

/// What was found on a text.
#[derive(Default)]
struct Found {
    nll: f64, // nats
    predicted: usize,
    agreed: usize, // top tokens
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
    let (chunk, expected) = Text::read(name);
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
