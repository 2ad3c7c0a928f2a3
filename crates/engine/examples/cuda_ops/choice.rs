//! Tokens chosen by what the card tells of logits are those chosen by the logits.

use super::cuda;
use crate::op_cases::{begin, buffer, config, norm, poisoned, simple_batch};
use crate::support::{Random, random_tensor, vector_tensor};
use flint_engine::batch::Batch;
use flint_engine::device::cuda::Cuda;
use flint_engine::device::{Device, Head};
use flint_engine::quant::Format;
use flint_engine::runner::{Runner, RunnerError, RunnerFacts};
use flint_engine::sample::{Chunk, Sampler, Sampling, Seen};

const ROWS: usize = 5;
const VOCAB: usize = 5003;
const HIDDEN: usize = 256;
const SEEDS: u64 = 60;

/// Rows of logits on the card.
struct Rows {
    device: Cuda,
    logits: <Cuda as Device>::Buffer,
}

impl Rows {
    fn new(random: &mut Random, size: f32) -> Rows {
        let mut device = cuda();
        let matrix = random_tensor(random, "head", &[VOCAB, HIDDEN], Format::Q8_0);
        let weights = Head {
            norm: norm(&mut device, &vector_tensor("norm", &random.normals(HIDDEN, size))),
            matrix: device.matrix(std::slice::from_ref(&matrix)).unwrap(),
        };
        device.ready(&config(4, 2, 32), ROWS).unwrap();
        let mut batch = simple_batch(ROWS);
        batch.logit_rows = (0..ROWS as u32).collect();
        let batch = begin(&mut device, batch);
        let rows: Vec<Vec<f32>> = (0..ROWS).map(|_| random.normals(HIDDEN, 1.0)).collect();
        let x = buffer(&mut device, &rows);
        let mut logits = buffer(&mut device, &poisoned(ROWS, VOCAB));
        device.head(&weights, &x, &batch, &mut logits);
        device.finish().unwrap();
        Rows { device, logits }
    }
}

impl Runner for Rows {
    fn facts(&self) -> RunnerFacts {
        RunnerFacts { vocab: VOCAB, context: 1, kv_blocks: 1 }
    }

    fn forward(&mut self, _: &Batch) -> Result<(), RunnerError> {
        Ok(())
    }

    fn logits(&mut self, index: usize) -> &mut [f32] {
        self.device.read(&mut self.logits, index)
    }

    fn best(&self, index: usize) -> Option<u32> {
        self.device.best(index)
    }

    fn weigh(&mut self, index: usize, scale: f32, chunks: &mut Vec<Chunk>) -> Option<f32> {
        self.device.weigh(&self.logits, index, scale, chunks)
    }

    fn chunks_of_logits(&mut self, index: usize, wanted: &[u32]) -> &mut [f32] {
        self.device.read_chunks(&mut self.logits, index, wanted)
    }

    fn copy_block(&mut self, _: u32, _: u32) {}
}

fn settings() -> Vec<Sampling> {
    let plain = Sampling { temperature: 1.0, ..Sampling::default() };
    vec![
        plain.clone(),
        Sampling { temperature: 0.3, ..plain.clone() },
        Sampling { top_p: 0.9, ..plain.clone() },
        Sampling { top_k: 20, ..plain.clone() },
        Sampling { top_k: 40, top_p: 0.8, min_p: 0.02, ..plain.clone() },
        Sampling { temperature: 1.7, min_p: 0.05, ..plain },
    ]
}

/// The number of tokens that differ.
pub fn check() -> usize {
    let (mut sampler, seen) = (Sampler::new(VOCAB), Seen::default());
    let (mut drawn, mut failed) = (0, 0);
    for (seed, size) in [(51, 0.05), (52, 0.3), (53, 1.0)] {
        // What the host was handed counts as written by it: the logits are looked at in a second device.
        let (mut rows, mut other) =
            (Rows::new(&mut Random::new(seed), size), Rows::new(&mut Random::new(seed), size));
        let logits: Vec<Vec<f32>> = (0..ROWS).map(|row| other.logits(row).to_vec()).collect();
        for sampling in settings() {
            for (row, seed) in (0..ROWS).flat_map(|row| (0..SEEDS).map(move |seed| (row, seed))) {
                let sampling = Sampling { seed, ..sampling.clone() };
                let told = sampler.sample_told(&mut rows, row, &sampling, 7);
                drawn += usize::from(told.is_some());
                let want =
                    sampler.sample(&mut logits[row].clone(), &sampling, &seen, 7).map(|(token, _)| token);
                failed += usize::from(told.is_some() && told != want.ok());
            }
        }
        for (row, logits) in logits.iter().enumerate() {
            let want =
                sampler.sample(&mut logits.clone(), &Sampling::default(), &seen, 7).map(|(token, _)| token);
            failed += usize::from(rows.best(row) != want.ok());
        }
    }
    println!("{:<24} {drawn} tokens drawn by what the card tells, {failed} differ", "choice");
    failed + usize::from(drawn == 0)
}
