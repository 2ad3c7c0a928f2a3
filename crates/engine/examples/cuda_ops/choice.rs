//! Tokens chosen by what the card tells of logits, which it changed as it was told, are those chosen by the logits on the host.

use super::cuda;
use crate::common::Given;
use crate::op_cases::{begin, buffer, config, norm, poisoned, simple_batch};
use crate::support::{Random, random_tensor, vector_tensor};
use flint_engine::batch::Batch;
use flint_engine::device::cuda::Cuda;
use flint_engine::device::{Device, Head};
use flint_engine::quant::Format;
use flint_engine::runner::{Runner, RunnerError, RunnerFacts};
use flint_engine::sample::{BadLogits, Change, Chunk, Sampler, Sampling, Shifts};

const ROWS: usize = 5;
const VOCAB: usize = 5003;
const HIDDEN: usize = 256;
const ROUNDS: usize = 600;
const POSITION: usize = 7;

/// Rows of logits on the card.
struct Rows {
    device: Cuda,
    weights: Head<Cuda>,
    x: <Cuda as Device>::Buffer,
    logits: <Cuda as Device>::Buffer,
    brought: usize, // rows that the host asked for
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
        let rows: Vec<Vec<f32>> = (0..ROWS).map(|_| random.normals(HIDDEN, 1.0)).collect();
        let x = buffer(&mut device, &rows);
        let logits = buffer(&mut device, &poisoned(ROWS, VOCAB));
        Rows { device, weights, x, logits, brought: 0 }
    }
}

impl Runner for Rows {
    fn facts(&self) -> RunnerFacts {
        RunnerFacts { vocab: VOCAB, context: 1, kv_blocks: 1 }
    }

    fn forward(&mut self, batch: &Batch) -> Result<(), RunnerError> {
        self.begin(batch)?;
        self.finish()
    }

    fn begin(&mut self, batch: &Batch) -> Result<(), RunnerError> {
        let batch = begin(&mut self.device, batch.clone());
        self.device.head(&self.weights, &self.x, &batch, &mut self.logits);
        self.device.submit();
        Ok(())
    }

    fn finish(&mut self) -> Result<(), RunnerError> {
        self.device.finish().map_err(|error| RunnerError(error.to_string()))
    }

    fn logits(&mut self, index: usize) -> &mut [f32] {
        self.brought += 1;
        self.device.read(&mut self.logits, index)
    }

    fn change(&mut self, index: usize, change: &Change<'_>) {
        self.device.change(&mut self.logits, index, change);
    }

    fn best(&mut self, index: usize) -> Option<u32> {
        self.device.best(&self.logits, index)
    }

    fn weigh(&mut self, index: usize, scale: f32, chunks: &mut Vec<Chunk>) -> Option<f32> {
        self.device.weigh(&self.logits, index, scale, chunks)
    }

    fn chunks_of_logits(&mut self, index: usize, wanted: &[u32]) -> &mut [f32] {
        self.device.read_chunks(&mut self.logits, index, wanted)
    }

    fn copy_block(&mut self, _: u32, _: u32) {}
}

/// One of some, mostly the first.
fn some(random: &mut Random, values: &[f32]) -> f32 {
    values[random.below(2 * values.len()).saturating_sub(values.len())]
}

fn sampling(random: &mut Random) -> Sampling {
    let biased = random.below(2) * random.below(40);
    Sampling {
        temperature: some(random, &[1.0, 0.0, 0.3, 1.7]),
        top_k: some(random, &[0.0, 20.0, 40.0]) as u32,
        top_p: some(random, &[1.0, 0.9, 0.7]),
        min_p: some(random, &[0.0, 0.02, 0.1]),
        repetition_penalty: some(random, &[1.0, 1.1, 0.8, 3.7]),
        presence_penalty: some(random, &[0.0, 0.3, -1.1]),
        frequency_penalty: some(random, &[0.0, 0.13, -0.7]),
        bias: (0..biased).map(|_| (random.below(VOCAB + 20) as u32, random.uniform(-4.0, 4.0))).collect(),
        seed: random.next(),
        logprobs: None,
    }
}

/// Many tokens, few, or none; more words than there are tokens, or fewer.
fn mask(random: &mut Random) -> Option<Vec<u32>> {
    let words = VOCAB.div_ceil(32) + random.below(5) - 2;
    let mut mask = match random.below(5) {
        0 => return None,
        1 => vec![u32::MAX; words],
        2 => vec![0; words],
        _ => (0..words).map(|_| random.next() as u32).collect(),
    };
    for _ in 0..random.below(20) {
        mask[random.below(words - 2)] ^= 1 << random.below(32);
    }
    Some(mask)
}

/// What is wanted of one row.
struct Wish {
    sampling: Sampling,
    shifts: Shifts,
    mask: Option<Vec<u32>>,
}

impl Wish {
    fn new(random: &mut Random) -> Wish {
        let sampling = sampling(random);
        let history: Vec<u32> = (0..random.below(400)).map(|_| random.below(VOCAB) as u32).collect();
        let shifts = Shifts::new(&sampling, &history, history.len() / 2, history.len());
        Wish { sampling, shifts, mask: mask(random) }
    }

    fn change(&self) -> Change<'_> {
        Change { allowed: self.mask.as_deref(), shifts: self.shifts.list() }
    }

    fn choose(&self, sampler: &mut Sampler, runner: &mut dyn Runner, row: usize) -> Result<u32, BadLogits> {
        sampler.choose(runner, row, &self.sampling, POSITION)
    }
}

fn bits(logits: &[f32]) -> impl Iterator<Item = u32> + '_ {
    logits.iter().map(|logit| logit.to_bits())
}

/// The number of tokens, and of rows of logits, that differ.
pub fn check() -> usize {
    let mut sampler = Sampler::new(VOCAB);
    let (mut chosen, mut failed, mut brought) = (0, 0, 0);
    for (seed, size) in [(51, 0.05), (52, 0.3), (53, 1.0)] {
        let random = &mut Random::new(seed);
        let mut rows = Rows::new(random, size);
        let mut batch = simple_batch(ROWS);
        batch.logit_rows = (0..ROWS as u32).collect();
        rows.forward(&batch).unwrap();
        let logits: Vec<Vec<f32>> = (0..ROWS).map(|row| rows.logits(row).to_vec()).collect();
        rows.brought = 0;
        for round in 0..ROUNDS {
            let wishes: Vec<Wish> = (0..ROWS).map(|_| Wish::new(random)).collect();
            let (early, look) = (round % 2 == 0, round % 5 == 4);
            rows.begin(&batch).unwrap();
            let change = |rows: &mut Rows, row: usize| rows.change(row, &wishes[row].change());
            (0..ROWS).filter(|_| early).for_each(|row| change(&mut rows, row));
            rows.finish().unwrap();
            for (row, wish) in wishes.iter().enumerate() {
                if !early {
                    change(&mut rows, row);
                }
                let mut host = Given(logits[row].clone());
                wish.change().apply(&mut host.0);
                let same = match look {
                    true => bits(rows.logits(row)).eq(bits(&host.0)),
                    false => {
                        chosen += 1;
                        wish.choose(&mut sampler, &mut rows, row) == wish.choose(&mut sampler, &mut host, 0)
                    }
                };
                failed += usize::from(!same);
            }
        }
        brought += rows.brought;
    }
    println!(
        "{:<24} {chosen} tokens chosen by what the card tells, {failed} differ; {brought} rows were brought",
        "choice"
    );
    failed + usize::from(chosen == 0 || brought > chosen / 2)
}
