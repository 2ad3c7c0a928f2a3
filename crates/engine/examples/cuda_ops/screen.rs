//! The likeliest tokens that are found without all of the head, against all logits.

use super::cuda;
use crate::op_cases::{begin, buffer, config, norm, simple_batch};
use crate::support::{Random, random_tensor, vector_tensor};
use flint_engine::device::cuda::Cuda;
use flint_engine::device::{Device, Head};
use flint_engine::limits::BATCH_LOGIT_ROWS_MAX;
use flint_engine::load::Tensor;
use flint_engine::quant::Format;

const HEADS: [(Format, [usize; 2]); 3] =
    [(Format::Q8_0, [40_009, 1888]), (Format::Q6K, [40_000, 1792]), (Format::Bf16, [36_013, 2880])];
const ROWS: [usize; 6] = [1, 2, 5, 8, 11, 16];

/// A head with its rounded rows, and a place for logits.
struct Rounded {
    device: Cuda,
    head: Head<Cuda>,
}

impl Rounded {
    fn new(random: &mut Random, matrix: &Tensor) -> Rounded {
        let mut device = cuda();
        let weight = vector_tensor("norm", &random.normals(matrix.cols(), 1.0));
        let norm = norm(&mut device, &weight);
        let head = Head { norm, matrix: device.matrix(std::slice::from_ref(matrix)).unwrap() };
        device.screen_head(&head.matrix).unwrap();
        device.ready(&config(4, 2, 32), BATCH_LOGIT_ROWS_MAX).unwrap();
        Rounded { device, head }
    }

    /// The likeliest token of each row as the card tells it, and all logits after that.
    fn look(&mut self, x: &[Vec<f32>], vocab: usize, greedy: bool) -> (Vec<Option<u32>>, Vec<Vec<f32>>) {
        let mut batch = simple_batch(x.len());
        batch.logit_rows = (0..x.len() as u32).collect();
        batch.greedy = greedy;
        let batch = begin(&mut self.device, batch);
        let x = buffer(&mut self.device, x);
        let mut logits = self.device.buffer(batch.rows(), vocab).unwrap();
        self.device.head(&self.head, &x, &batch, &mut logits);
        self.device.finish().unwrap();
        let best = (0..batch.rows()).map(|row| self.device.best(&logits, row)).collect();
        let rows = (0..batch.rows()).map(|row| self.device.read(&mut logits, row).to_vec()).collect();
        (best, rows)
    }
}

/// Rows as models have them, with some that stand out, one that is nothing, and one that is no number.
fn rows(random: &mut Random, count: usize, width: usize) -> Vec<Vec<f32>> {
    let mut rows: Vec<Vec<f32>> = (0..count).map(|_| random.normals(width, 1.0)).collect();
    for row in rows.iter_mut().step_by(3) {
        (0..8).for_each(|_| row[random.below(width)] *= 60.0);
    }
    if count > 8 {
        rows[4].fill(0.0);
        rows[7][width / 2] = f32::NAN;
    }
    rows
}

pub fn check() -> usize {
    let (mut failed, mut looked) = (0, 0);
    let mut random = Random::new(51);
    for (format, shape) in HEADS {
        let matrix = random_tensor(&mut random, "head", &shape, format);
        let mut rounded = Rounded::new(&mut random, &matrix);
        for count in ROWS {
            let x = rows(&mut random, count, shape[1]);
            let (wanted, logits) = rounded.look(&x, shape[0], false);
            let (found, brought) = rounded.look(&x, shape[0], true);
            let same =
                |(a, b): (&Vec<f32>, &Vec<f32>)| a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
            let differ = wanted.iter().zip(&found).filter(|(a, b)| a != b).count();
            let others = logits.iter().zip(&brought).filter(|&both| !same(both)).count();
            if differ + others > 0 {
                println!(
                    "  {} {shape:?}, {count} rows: {differ} tokens differ, {others} rows of logits",
                    format.name()
                );
            }
            (failed, looked) = (failed + differ + others, looked + count);
        }
    }
    println!("{:<24} {looked} rows looked through, {failed} differ", "rounded heads");
    failed
}
