//! The tiny models of tests/golden with what transformers says of them, and a driver that runs models.
#![allow(dead_code)]

use flint_engine::batch::Batch;
use flint_engine::device::Device;
use flint_engine::limits::{BATCH_LOGIT_ROWS_MAX, KV_BLOCK_TOKENS};
use flint_engine::load::ModelFile;
use flint_engine::model::Loaded;
use flint_engine::runner::Runner;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// All tiny models.
pub const MODELS: [&str; 11] = [
    "llama",
    "llama3",
    "qwen2",
    "qwen3",
    "qwen3-moe",
    "gpt-oss",
    "gpt-oss-mxfp4",
    "gpt-oss-heads",
    "quantised",
    "quantised-moe",
    "qwen3-fp8",
];

/// What the reference says of real models on a fixed text.
#[derive(Deserialize)]
pub struct Text {
    pub chunk: usize, // tokens that are computed together, afresh
    models: Vec<Expected>,
}

#[derive(Deserialize)]
pub struct Expected {
    name: String,
    pub perplexity: f64,
    pub tokens: Vec<u32>,
    pub top: Vec<u32>, // the most likely token before each token but the first of a chunk
}

impl Text {
    /// The chunk, and what is expected of one model.
    pub fn read(name: &str) -> (usize, Expected) {
        let json = std::fs::read(root().join("perplexity.json")).unwrap();
        let Text { chunk, models } = serde_json::from_slice(&json).unwrap();
        (chunk, models.into_iter().find(|model| model.name == name).unwrap())
    }
}

/// Negative log-probability of a token.
pub fn nll(logits: &[f32], token: u32) -> f64 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max) as f64;
    let total: f64 = logits.iter().map(|&logit| (logit as f64 - largest).exp()).sum();
    total.ln() + largest - logits[token as usize] as f64
}

/// What the reference says of one tiny model.
#[derive(Deserialize)]
pub struct Reference {
    pub prompts: Vec<Prompt>,
}

#[derive(Deserialize)]
pub struct Prompt {
    pub tokens: Vec<u32>,
    pub top: Vec<u32>,               // the most likely token after each token
    pub greedy: Vec<u32>,            // how the prompt goes on
    pub logit_positions: Vec<usize>, // where logits are given
    #[serde(skip)]
    pub logits: Vec<Vec<f32>>, // (logit_positions, vocab)
}

/// The folder of the models; a program that runs elsewhere is told where.
pub fn root() -> PathBuf {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    std::env::var_os("FLINT_GOLDEN").map_or_else(built, PathBuf::from)
}

impl Reference {
    pub fn read(name: &str) -> Reference {
        let folder = root().join(name);
        let json = std::fs::read(folder.join("reference.json")).unwrap();
        let mut reference: Reference = serde_json::from_slice(&json).unwrap();
        let bytes = std::fs::read(folder.join("logits.bin")).unwrap();
        let values: Vec<f32> =
            bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let rows: usize = reference.prompts.iter().map(|prompt| prompt.logit_positions.len()).sum();
        let mut values = values.chunks_exact(values.len() / rows).map(<[f32]>::to_vec);
        for prompt in &mut reference.prompts {
            prompt.logits = values.by_ref().take(prompt.logit_positions.len()).collect();
        }
        reference
    }
}

/// The files of a tiny model: its Hugging Face folder, its GGUF file, or both.
pub fn files(name: &str) -> Vec<PathBuf> {
    let folder = root().join(name);
    let all = [folder.join("folder"), folder.join("model.gguf")];
    let found: Vec<PathBuf> = all.into_iter().filter(|path| path.exists()).collect();
    assert!(!found.is_empty(), "no model in {}", folder.display());
    found
}

/// A model with room for several sequences, each with its own blocks.
pub struct Model {
    runner: Box<dyn Runner>,
    batch: Batch,
    blocks: u32, // of one sequence
}

/// The next token of a sequence.
#[derive(Clone, Copy)]
pub struct Next {
    pub sequence: usize,
    pub position: usize,
    pub token: u32,
}

impl Model {
    pub fn load<D: Device + 'static>(path: &Path, device: D, sequences: usize, tokens: usize) -> Model {
        let file = ModelFile::open(path).unwrap_or_else(|error| panic!("{error}"));
        let blocks = tokens.div_ceil(KV_BLOCK_TOKENS);
        let runner = Loaded::new(&file, device, sequences * blocks, &mut |_, _| ());
        let runner = runner.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Model { runner: Box::new(runner), batch: Batch::default(), blocks: blocks as u32 }
    }

    /// The block table of a sequence; backwards, so that the order of blocks matters.
    fn table(&self, sequence: usize) -> Vec<u32> {
        let first = sequence as u32 * self.blocks;
        (first..first + self.blocks).rev().collect()
    }

    /// Computes a sequence from its beginning, `chunk` tokens at a time, and shows the logits after each.
    pub fn prefill(
        &mut self,
        sequence: usize,
        tokens: &[u32],
        chunk: usize,
        show: &mut dyn FnMut(usize, &[f32]),
    ) {
        let table = self.table(sequence);
        let chunk = chunk.min(BATCH_LOGIT_ROWS_MAX);
        for (index, part) in tokens.chunks(chunk).enumerate() {
            self.batch.clear();
            self.batch.push(part, index * chunk, &table, false);
            self.batch.logit_rows.extend(0..part.len() as u32);
            self.runner.forward(&self.batch).unwrap();
            for row in 0..part.len() {
                show(index * chunk + row, self.runner.logits(row));
            }
        }
    }

    /// One token more for each of several sequences, in one batch; returns their top tokens.
    pub fn decode(&mut self, next: &[Next]) -> Vec<u32> {
        self.batch.clear();
        for &Next { sequence, position, token } in next {
            let table = self.table(sequence);
            self.batch.push(&[token], position, &table, true);
        }
        self.runner.forward(&self.batch).unwrap();
        (0..next.len()).map(|row| top(self.runner.logits(row))).collect()
    }

    /// The logits after each token of a sequence.
    pub fn logits(&mut self, tokens: &[u32], chunk: usize) -> Vec<Vec<f32>> {
        let mut all = Vec::with_capacity(tokens.len());
        self.prefill(0, tokens, chunk, &mut |_, logits| all.push(logits.to_vec()));
        all
    }

    /// Prefills all prompts and decodes them side by side, `count` tokens each.
    pub fn greedy(&mut self, prompts: &[Prompt], chunk: usize, count: usize) -> Vec<Vec<u32>> {
        let mut next = Vec::new();
        for (sequence, prompt) in prompts.iter().enumerate() {
            let (position, mut token) = (prompt.tokens.len(), 0);
            self.prefill(sequence, &prompt.tokens, chunk, &mut |_, logits| token = top(logits));
            next.push(Next { sequence, position, token });
        }
        let mut answers: Vec<Vec<u32>> = next.iter().map(|next| vec![next.token]).collect();
        for _ in 1..count {
            let tokens = self.decode(&next);
            for ((next, answer), token) in next.iter_mut().zip(&mut answers).zip(tokens) {
                *next = Next { token, position: next.position + 1, ..*next };
                answer.push(token);
            }
        }
        answers
    }
}

/// The most likely token; the first of equals.
pub fn top(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.map_or(0, |(token, _)| token as u32)
}
