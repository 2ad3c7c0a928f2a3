//! What the speed costs: perplexity on a fixed text, and how often the most likely token is that of the plain device.

use crate::error::CliError;
use crate::fidelity::{self, CHUNK, Said, hear, perplexity};
use crate::peer::PeerLogits;
use flint_engine::device::plain::Plain;
use flint_engine::limits::{BATCH_LOGIT_ROWS_MAX, KV_BLOCK_TOKENS};
use flint_engine::load::ModelFile;
use flint_engine::model::Loaded;
use flint_engine::runner::Runner;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

const PLAIN_TIME: Duration = Duration::from_secs(60); // as many tokens of a chunk as the plain device then has read
const PLAIN_ROWS: usize = 16; // that it reads at a time

/// On the first tokens of the text.
#[derive(Debug, Serialize)]
pub struct Fidelity {
    tokens: usize,
    perplexity: f64,
    plain_tokens: usize,
    plain_perplexity: f64,
    plain_ratio: f64, // perplexity on these tokens / the plain device's
    same_top: usize,  // of `plain_tokens`
    peer: Option<PeerFidelity>,
}

/// Beside llama.cpp, on all of these tokens.
#[derive(Debug, Serialize)]
struct PeerFidelity {
    perplexity: f64,
    ratio: f64, // perplexity / the peer's
    same_top: usize,
}

/// The peer, if there is to be one, is started with the rows that it has to read at a time.
pub fn measure(
    runner: &mut dyn Runner,
    path: &Path,
    start_peer: Option<impl FnOnce(usize) -> Result<PeerLogits, CliError>>,
) -> Result<Fidelity, CliError> {
    let file = ModelFile::open(path)?;
    let tokens = fidelity::tokens(&file)?;
    let mut own = Vec::new();
    for chunk in tokens.chunks(CHUNK) {
        own.extend(read(runner, chunk, BATCH_LOGIT_ROWS_MAX, Duration::MAX)?);
    }
    let blocks = CHUNK.div_ceil(KV_BLOCK_TOKENS);
    let mut plain = Loaded::new(&file, Plain::default(), blocks, &mut |_, _| ())?;
    let plain = read(&mut plain, &tokens[..CHUNK.min(tokens.len())], PLAIN_ROWS, PLAIN_TIME)?;
    let same = own.iter().zip(&plain).filter(|(own, plain)| own.top == plain.top).count();
    Ok(Fidelity {
        tokens: own.len(),
        perplexity: perplexity(&own),
        plain_tokens: plain.len(),
        plain_perplexity: perplexity(&plain),
        plain_ratio: perplexity(&own[..plain.len()]) / perplexity(&plain),
        same_top: same,
        peer: start_peer.map(|start| beside(start(CHUNK)?, &tokens, &own)).transpose()?,
    })
}

fn beside(mut peer: PeerLogits, tokens: &[u32], own: &[Said]) -> Result<PeerFidelity, CliError> {
    let mut said = Vec::new();
    for chunk in tokens.chunks(CHUNK) {
        peer.read(chunk, |at, logits| {
            said.extend(chunk.get(at + 1).map(|&token| hear(logits, token)));
        })?;
    }
    let same_top = own.iter().zip(&said).filter(|(own, said)| own.top == said.top).count();
    let theirs = perplexity(&said);
    Ok(PeerFidelity { perplexity: theirs, ratio: perplexity(own) / theirs, same_top })
}

/// What the model says about each token but the first, `rows` at a time, until the time is over.
fn read(runner: &mut dyn Runner, tokens: &[u32], rows: usize, time: Duration) -> Result<Vec<Said>, CliError> {
    let mut said = Vec::with_capacity(tokens.len());
    fidelity::read(runner, tokens, rows, time, &mut |logits, token| said.push(hear(logits, token)))?;
    Ok(said)
}

impl Fidelity {
    pub fn print(&self) {
        let Fidelity { tokens, perplexity, plain_tokens, plain_ratio, same_top, .. } = self;
        println!("Perplexity {perplexity:.3} on {tokens} tokens of a fixed text.");
        println!(
            "On the first {plain_tokens} of them {:+.2}% beside plain arithmetic; {same_top} most likely tokens are the same.",
            100.0 * (plain_ratio - 1.0)
        );
        if let Some(PeerFidelity { perplexity, ratio, same_top }) = &self.peer {
            let more = 100.0 * (ratio - 1.0);
            println!(
                "llama.cpp {perplexity:.3}: {more:+.2}% beside it; {same_top} most likely tokens are the same."
            );
        }
    }
}
