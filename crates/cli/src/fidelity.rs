//! What models say about a fixed text, and how far apart two of them are.

use crate::error::CliError;
use flint_engine::batch::Batch;
use flint_engine::limits::{BATCH_LOGIT_ROWS_MAX, KV_BLOCK_TOKENS};
use flint_engine::load::ModelFile;
use flint_engine::runner::Runner;
use flint_open::ModelText;
use serde::Serialize;
use std::time::{Duration, Instant};

const TEXT: &str = include_str!("../../../tests/golden/perplexity.txt");
pub const TOKENS: usize = 2048;
pub const CHUNK: usize = 512; // tokens that are computed together, afresh
const WHOLE_TOKENS: usize = 256; // whose distributions are compared whole: each takes as many numbers as the vocabulary has

/// What was said about one token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Said {
    pub surprise: f64, // nats
    pub top: usize,    // the most likely token
}

/// The first tokens of the text.
pub fn tokens(file: &ModelFile) -> Result<Vec<u32>, CliError> {
    let mut tokens = Vec::new();
    ModelText::read(file)?.tokenizer.encode_text(TEXT, &mut tokens)?;
    tokens.truncate(TOKENS);
    Ok(tokens)
}

/// Shows the logits before each token but the first, with that token, `rows` at a time, until the time is over.
pub fn read(
    runner: &mut dyn Runner,
    tokens: &[u32],
    rows: usize,
    time: Duration,
    show: &mut dyn FnMut(&[f32], u32),
) -> Result<(), CliError> {
    let begun = Instant::now();
    let blocks: Vec<u32> = (0..tokens.len().div_ceil(KV_BLOCK_TOKENS) as u32).collect();
    for (index, part) in tokens.chunks(rows).enumerate().take_while(|_| begun.elapsed() < time) {
        let first = index * rows;
        let mut batch = Batch::default();
        batch.push(part, first, &blocks, false);
        batch.logit_rows.extend(0..part.len() as u32);
        runner.forward(&batch).map_err(|error| CliError::Peer(error.to_string()))?;
        let next = tokens[first + 1..].iter().take(part.len());
        next.enumerate().for_each(|(row, &token)| show(runner.logits(row), token));
    }
    Ok(())
}

pub fn hear(logits: &[f32], token: u32) -> Said {
    let top = (0..logits.len()).fold(0, |top, id| if logits[id] > logits[top] { id } else { top });
    Said { surprise: total(logits, top) - logits[token as usize] as f64, top }
}

/// The logarithm of the sum of all exponentials.
fn total(logits: &[f32], top: usize) -> f64 {
    let largest = logits[top] as f64;
    let sum: f64 = logits.iter().map(|&logit| (logit as f64 - largest).exp()).sum();
    sum.ln() + largest
}

pub fn perplexity(said: &[Said]) -> f64 {
    let sum: f64 = said.iter().map(|said| said.surprise).sum();
    (sum / said.len().max(1) as f64).exp()
}

/// What a model said of the text, with the logits behind the first of it.
pub struct Heard {
    said: Vec<Said>,
    logits: Vec<Vec<f32>>,
}

impl Heard {
    pub fn of(runner: &mut dyn Runner, tokens: &[u32]) -> Result<Heard, CliError> {
        let mut heard = Heard { said: Vec::new(), logits: Vec::new() };
        for chunk in tokens.chunks(CHUNK) {
            read(runner, chunk, BATCH_LOGIT_ROWS_MAX, Duration::MAX, &mut |logits, token| {
                if heard.logits.len() < WHOLE_TOKENS {
                    heard.logits.push(logits.to_vec());
                }
                heard.said.push(hear(logits, token));
            })?;
        }
        Ok(heard)
    }
}

/// A model beside what was made of it.
#[derive(Debug, Serialize)]
pub struct Compared {
    pub tokens: usize,
    pub perplexity_before: f64,
    pub perplexity_after: f64,
    pub same_top: usize, // of `tokens`
    pub whole_tokens: usize,
    pub kl_nats: f64, // of what was made from its source, a token, on average of `whole_tokens`
    pub same_bits: bool, // of all logits of these
}

impl Compared {
    pub fn of(before: &Heard, after: &Heard) -> Compared {
        let pairs = || before.said.iter().zip(&after.said);
        let both = || before.logits.iter().zip(&after.logits);
        let kl: f64 = both().map(|(before, after)| divergence(before, after)).sum();
        let bits = |logits: &[f32]| logits.iter().map(|logit| logit.to_bits()).collect::<Vec<u32>>();
        Compared {
            tokens: before.said.len(),
            perplexity_before: perplexity(&before.said),
            perplexity_after: perplexity(&after.said),
            same_top: pairs().filter(|(before, after)| before.top == after.top).count(),
            whole_tokens: before.logits.len(),
            kl_nats: kl / before.logits.len().max(1) as f64,
            same_bits: both().all(|(before, after)| bits(before) == bits(after)),
        }
    }

    pub fn print(&self) {
        let Compared { tokens, perplexity_before: before, perplexity_after: after, same_top, .. } = self;
        let more = 100.0 * (after / before - 1.0);
        println!(
            "On {tokens} tokens of a fixed text: perplexity {before:.3} before, {after:.3} after ({more:+.2}%);"
        );
        let same = 100.0 * *same_top as f64 / (*tokens).max(1) as f64;
        print!("{same_top} most likely tokens are the same ({same:.1}%)");
        let Compared { whole_tokens, kl_nats, .. } = self;
        match self.same_bits {
            true => println!(", and of the first {whole_tokens} every bit of every logit."),
            false => println!("; divergence {kl_nats:.5} nats a token over the first {whole_tokens}."),
        }
    }
}

/// How many nats more the tokens of one distribution surprise the other.
fn divergence(of: &[f32], from: &[f32]) -> f64 {
    let top =
        |logits: &[f32]| (0..logits.len()).fold(0, |top, id| if logits[id] > logits[top] { id } else { top });
    let (of_total, from_total) = (total(of, top(of)), total(from, top(from)));
    let term = |(&of, &from): (&f32, &f32)| {
        let (of, from) = (f64::from(of) - of_total, f64::from(from) - from_total);
        of.exp() * (of - from)
    };
    of.iter().zip(from).map(term).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certainty_is_no_surprise() {
        let said = hear(&[0.0, 100.0, 0.0], 1);
        assert!(said.surprise.abs() < 1e-9 && said.top == 1);
        assert!((perplexity(&[hear(&[1.0; 8], 3)]) - 8.0).abs() < 1e-9);
    }

    #[test]
    fn only_what_differs_diverges() {
        assert!(divergence(&[1.0, 2.0, 3.0], &[2.0, 3.0, 4.0]).abs() < 1e-12);
        let expected = 0.5 * (0.5f64 / 0.25).ln() + 0.5 * (0.5f64 / 0.75).ln();
        assert!((divergence(&[0.0, 0.0], &[0.0, 3f32.ln()]) - expected).abs() < 1e-6);
    }
}
