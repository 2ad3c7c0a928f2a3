//! Prefill and decode of made-up weights in the shapes of known models: whole passes of the general path.

use super::cuda;
use flint_engine::batch::Batch;
use flint_engine::device::cuda::Cuda;
use flint_engine::limits::{BATCH_LOGIT_ROWS_MAX, KV_BLOCK_TOKENS};
use flint_engine::load::{MadeUp, ModelFile};
use flint_engine::model::Loaded;
use flint_engine::runner::Runner;
use std::time::Instant;

const CONTEXT: usize = 8192;
const BLOCKS: usize = CONTEXT / KV_BLOCK_TOKENS;
const DEPTH: usize = 4096;
const NEAR: usize = 300;
const VARIANTS: [usize; 6] = [1, 2, 4, 5, 8, 16];
const APART: usize = 31; // tokens
const CHUNK: usize = 512; // rows of a pass of prefill
const TOKENS: usize = 512; // that are used
const VERIFIED: [usize; 6] = [5, 8, 12, 16, 33, 64]; // rows of a pass, the logits of all of which are wanted

struct Made {
    model: Loaded<Cuda>,
    greedy: bool, // only the likeliest tokens are wanted
}

impl Made {
    fn new(name: &str) -> Option<Made> {
        let file = ModelFile::made_up(name, &MadeUp::named(name)?);
        Some(Made::of(&file, cuda().replaying().making_up().unwrap(), false))
    }

    /// Whose rows may round otherwise.
    fn fast(name: &str) -> Option<Made> {
        let file = ModelFile::made_up(name, &MadeUp::named(name)?);
        Some(Made::of(&file, cuda().replaying().fast().making_up().unwrap(), true))
    }

    fn of(file: &ModelFile, device: Cuda, greedy: bool) -> Made {
        Made { model: Loaded::new(file, device, BLOCKS, &mut |_, _| ()).unwrap(), greedy }
    }

    /// Milliseconds of a pass over `rows` rows of each of `sequences` sequences at `position`; the median.
    fn pass(&mut self, sequences: usize, rows: usize, position: usize, times: usize) -> f64 {
        self.pass_of([sequences, rows], 0, position, times)
    }

    /// The tokens of a sequence are `apart` further than those of the one before: with 0 all choose the same experts.
    fn pass_of(&mut self, [sequences, rows]: [usize; 2], apart: usize, position: usize, times: usize) -> f64 {
        let blocks: Vec<u32> = (0..BLOCKS as u32).collect();
        let mut took: Vec<f64> = (0..times)
            .map(|time| {
                let mut batch = Batch::default();
                for sequence in 0..sequences {
                    let token = |row: usize| ((row * 7 + sequence * apart + time) % TOKENS) as u32;
                    let tokens: Vec<u32> = (0..rows).map(token).collect();
                    batch.push(&tokens, position, &blocks, true);
                }
                if rows <= BATCH_LOGIT_ROWS_MAX {
                    batch.logit_rows = (0..batch.rows() as u32).collect();
                }
                batch.greedy = self.greedy;
                let begun = Instant::now();
                self.model.forward(&batch).unwrap();
                begun.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        took.sort_by(f64::total_cmp);
        took[took.len() / 2]
    }
}

fn names(only: &str) -> impl Iterator<Item = &'static str> {
    MadeUp::NAMES.into_iter().filter(move |name| name.contains(only))
}

pub fn bench(only: &str) -> usize {
    for name in names(only) {
        let Some(mut made) = Made::new(name) else { return 1 };
        made.pass(1, CHUNK, 0, 1);
        let begun = Instant::now();
        for chunk in 0..DEPTH / CHUNK {
            made.pass(1, CHUNK, CHUNK * chunk, 1);
        }
        let prefill = DEPTH as f64 / begun.elapsed().as_secs_f64();
        let [one, four, sixteen] = [1, 4, 16].map(|sequences| made.pass(sequences, 1, DEPTH, 12));
        let verify: Vec<String> =
            VERIFIED.iter().map(|&rows| format!("{rows} {:.3}", made.pass(1, rows, DEPTH, 12))).collect();
        println!(
            "{name:<20} prefill {DEPTH}: {prefill:.0} tok/s; at {DEPTH} tokens, ms: decode {one:.3} ({:.0} tok/s), of 4 {four:.3}, of 16 {sixteen:.3}; verify {}",
            1e3 / one,
            verify.join(", ")
        );
    }
    0
}

/// Decode alone, at 4,096 tokens.
pub fn decode(only: &str) -> usize {
    for name in names(only) {
        let Some(mut made) = Made::new(name) else { return 1 };
        made.pass(1, 1, DEPTH, 300);
        let ms = made.pass(1, 1, DEPTH, 60);
        println!("{name:<20} decode {ms:.3} ms ({:.0} tok/s)", 1e3 / ms);
    }
    0
}

/// Rows of as many sequences with the same beginning, as variants have them: all alike, and each another token. Once with all
/// logits, and once greedily in `fast`, where a row alone goes through the one kernel.
pub fn variants(only: &str) -> usize {
    for name in names(only) {
        let (Some(exact), Some(fast)) = (Made::new(name), Made::fast(name)) else { return 1 };
        for (precision, mut made) in [("exact", exact), ("fast", fast)] {
            for chunk in 0..DEPTH / CHUNK {
                made.pass(1, CHUNK, CHUNK * chunk, 1);
            }
            for depth in [NEAR, DEPTH] {
                let of =
                    |made: &mut Made, apart| VARIANTS.map(|rows| made.pass_of([rows, 1], apart, depth, 40));
                let (alike, others) = (of(&mut made, 0), of(&mut made, APART));
                let verify = VARIANTS.map(|rows| made.pass(1, rows, depth, 40));
                println!(
                    "{name:<20} {precision} at {depth}, rows {VARIANTS:?}, ms: alike {alike:.3?}, others {others:.3?}, of one sequence {verify:.3?}"
                );
            }
        }
    }
    0
}

/// One pass of so many rows at 4,096 tokens.
pub fn pass(name: &str, rows: usize) -> usize {
    let Some(mut made) = Made::new(name) else { return 1 };
    println!("{:.3} ms", made.pass(1, rows, DEPTH, 1));
    0
}
