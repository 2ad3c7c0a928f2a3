//! Every operation of the CPU device against the plain one, on random weights and odd shapes, for every
//! instruction set that this machine has.

mod op_cases;
mod support;

use flint_engine::batch::Batch;
use flint_engine::device::cpu::{Cpu, Isa};
use flint_engine::device::plain::Plain;
use flint_engine::device::{Activation, Device};
use flint_engine::quant::Format;
use op_cases::{
    Attend, BLOCKS, Case, Errors, Gated, Logits, Mixed, Project, ROWS_MAX, Visit, attend_case, buffer,
    poisoned, read_all,
};
use std::ops::Range;
use support::{Random, random_tensor, vector_tensor};

/// Compares each case on the CPU device of every instruction set.
struct Compare;

impl Visit for Compare {
    fn case<C: Case>(&mut self, name: &str, case: &C, most: Errors) {
        let want = case.run(&mut Plain::default());
        for isa in Isa::available() {
            // Two threads cut few rows otherwise than three do.
            for threads in [1, 2, 3] {
                let mut cpu = Cpu::with_isa(threads, isa).unwrap();
                let found = Errors::of(&want, &case.run(&mut cpu));
                let what = format!("{name} on {}, {threads} threads: {found:?}", isa.name());
                println!("{what}");
                assert!(found.all <= most.all && found.one <= most.one, "{what}, more than {most:?}");
            }
        }
    }
}

#[test]
fn products_of_every_format_and_row_count() {
    op_cases::products(&mut Compare);
}

#[test]
fn products_of_long_rows() {
    op_cases::wide_products(&mut Compare);
}

#[test]
fn products_of_stacked_tensors_in_different_formats() {
    op_cases::stacked_products(&mut Compare);
}

#[test]
fn products_of_ordinary_inputs_lose_little_to_eight_bits() {
    op_cases::ordinary_products(&mut Compare);
}

#[test]
fn attention_of_many_shapes() {
    op_cases::attention_shapes(&mut Compare);
}

#[test]
fn attention_over_several_chunks() {
    op_cases::attention_chunks(&mut Compare);
}

#[test]
fn attention_of_long_heads() {
    op_cases::attention_of_long_heads(&mut Compare);
}

#[test]
fn gated_mlp_of_odd_widths() {
    op_cases::gated(&mut Compare);
}

#[test]
fn mixtures_of_experts() {
    op_cases::mixtures(&mut Compare);
}

#[test]
fn a_mixture_and_the_attention_behind_it() {
    op_cases::joints(&mut Compare);
}

#[test]
fn logits_of_chosen_rows() {
    op_cases::logits(&mut Compare);
}

#[test]
fn embeddings_are_exact() {
    op_cases::embeddings(&mut Compare);
}

#[test]
fn copied_blocks_hold_the_same() {
    op_cases::copied_blocks(&mut Compare);
}

/// Rows of a batch, cut into batches so that each tile of rows occurs, and both ways of sharing a product: two threads share
/// the rows of 16 to 64, three its columns.
const ROWS: usize = 40;
const PIECES: [Range<usize>; 6] = [0..1, 1..3, 3..6, 6..11, 11..23, 23..ROWS];

/// Rows have the same bits all together and in pieces, with each instruction set on any number of threads.
fn rows_are_the_same<C: Case>(what: &str, width: usize, of: impl Fn(Range<usize>) -> C) {
    for isa in Isa::available() {
        let run = |threads, rows| of(rows).run(&mut Cpu::with_isa(threads, isa).unwrap());
        let want = run(1, 0..ROWS);
        for threads in [1, 2, 3] {
            for rows in std::iter::once(0..ROWS).chain(PIECES) {
                let got = run(threads, rows.clone());
                let same = same_bits(&got, &want[rows.start * width..rows.end * width]);
                assert!(same, "{what}: rows {rows:?} differ on {}, {threads} threads", isa.name());
            }
        }
    }
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

fn normal_rows(random: &mut Random, width: usize) -> Vec<Vec<f32>> {
    (0..ROWS).map(|_| random.normals(width, 1.0)).collect()
}

/// All but FP8, whose scales lie apart: it is packed as one of the others.
fn formats() -> impl Iterator<Item = Format> {
    Format::ALL.into_iter().filter(|format| *format != Format::Fp8)
}

#[test]
fn a_row_of_a_product_is_the_same_in_any_batch() {
    let mut random = Random::new(11);
    for format in formats() {
        let parts = vec![random_tensor(&mut random, "a", &[70, 512], format)];
        let (input, x) = (normal_rows(&mut random, 512), normal_rows(&mut random, 70));
        let bias = Some(vector_tensor("bias", &random.normals(70, 1.0)));
        rows_are_the_same(format.name(), 70, |rows| Project {
            parts: parts.clone(),
            bias: bias.clone(),
            input: input[rows.clone()].to_vec(),
            x: x[rows].to_vec(),
        });
    }
}

#[test]
fn a_row_of_a_gated_mlp_is_the_same_in_any_batch() {
    let mut random = Random::new(14);
    for [gate, up] in formats().map(|format| [format; 2]).chain([[Format::Q4K, Format::Q6K]]) {
        let norm = vector_tensor("norm", &random.normals(256, 1.0));
        let gate = random_tensor(&mut random, "gate", &[75, 256], gate);
        let up = random_tensor(&mut random, "up", &[75, 256], up);
        let x = normal_rows(&mut random, 256);
        let what = format!("gated {} and {}", gate.format.name(), up.format.name());
        rows_are_the_same(&what, 75, |rows| Gated {
            norm: norm.clone(),
            gate: gate.clone(),
            up: up.clone(),
            x: x[rows].to_vec(),
        });
    }
}

#[test]
fn a_row_of_a_mixture_is_the_same_in_any_batch() {
    let mut random = Random::new(15);
    for format in [Format::F32, Format::Bf16, Format::Q8_0, Format::Mxfp4, Format::Q4K, Format::Q6K] {
        let (experts, ffn, hidden) = (5, 256, 256);
        let mut tensor = |name, shape: &[usize]| random_tensor(&mut random, name, shape, format);
        let weights = [
            tensor("gate", &[experts, ffn, hidden]),
            tensor("up", &[experts, ffn, hidden]),
            tensor("down", &[experts, hidden, ffn]),
        ];
        let case = Mixed {
            used: 3,
            normalize: true,
            activation: Activation::ClampedSwiglu,
            norm: vector_tensor("norm", &random.normals(hidden, 1.0)),
            router: random_tensor(&mut random, "router", &[experts, hidden], Format::F32),
            experts: weights,
            biases: Some(
                [experts, experts * ffn, experts * ffn, experts * hidden]
                    .map(|len| vector_tensor("bias", &random.normals(len, 1.0))),
            ),
            x: normal_rows(&mut random, hidden),
        };
        let what = format!("mixture {}", format.name());
        rows_are_the_same(&what, hidden, |rows| Mixed { x: case.x[rows].to_vec(), ..case.clone() });
    }
}

#[test]
fn a_row_of_logits_is_the_same_in_any_batch() {
    let mut random = Random::new(16);
    for format in formats() {
        let norm = vector_tensor("norm", &random.normals(256, 1.0));
        let matrix = random_tensor(&mut random, "head", &[150, 256], format);
        let x = normal_rows(&mut random, 256);
        let what = format!("head {}", format.name());
        rows_are_the_same(&what, 150, |rows| Logits {
            norm: norm.clone(),
            matrix: matrix.clone(),
            x: x[rows.clone()].to_vec(),
            rows: (0..rows.len() as u32).collect(),
        });
    }
}

/// q, k and v of a batch's rows, and all of the cache behind them.
fn placed(
    case: &Attend,
    isa: Isa,
    threads: usize,
    batches: &[(Batch, Vec<Vec<f32>>)],
) -> (Vec<u32>, Vec<i16>) {
    let mut cpu = Cpu::with_isa(threads, isa).unwrap();
    let ((heads, kv_heads, head_dim), config) = (case.heads, case.config());
    let weights = case.weights(&mut cpu, &case.qkv[0]);
    cpu.ready(&config, ROWS_MAX).unwrap();
    let mut cache = cpu.cache(&config, BLOCKS).unwrap();
    let mut bits = Vec::new();
    for (batch, x) in batches {
        let x = buffer(&mut cpu, x);
        let mut qkv = buffer(&mut cpu, &poisoned(batch.rows(), (heads + 2 * kv_heads) * head_dim));
        cpu.begin(&config.rope, batch);
        cpu.qkv(&weights, &x, batch, &mut qkv, &mut cache);
        bits.extend(read_all(&mut cpu, &mut qkv, batch.rows()).into_iter().map(f32::to_bits));
    }
    (bits, cache.data().to_vec())
}

#[test]
fn what_lands_in_the_cache_is_the_same_in_any_batch() {
    let mut random = Random::new(17);
    let (heads, hidden) = ((4, 2, 64), 256);
    let [q, kv] = [heads.0, heads.1].map(|count| count * heads.2);
    let x = normal_rows(&mut random, hidden);
    // Rows of two sequences, one of which has been there for a while.
    let batch = |rows: Range<usize>| {
        let mut batch = Batch::default();
        for (all, before, blocks) in [(0..15, 30, [7, 2]), (15..ROWS, 20, [0, 5])] {
            let own = all.start.max(rows.start)..all.end.min(rows.end);
            if !own.is_empty() {
                batch.push(&vec![0; own.len()], before + own.start - all.start, &blocks, true);
            }
        }
        (batch, x[rows].to_vec())
    };
    for formats in formats().map(|format| [format; 3]).chain([[Format::Q4K, Format::Q8_0, Format::Q6K]]) {
        let mut case = attend_case(&mut random, heads, None, 0);
        case.norm = vector_tensor("norm", &random.normals(hidden, 1.0));
        let rows = [("q", q), ("k", kv), ("v", kv)].into_iter().zip(formats);
        case.qkv = rows
            .map(|((name, rows), format)| random_tensor(&mut random, name, &[rows, hidden], format))
            .collect();
        for isa in Isa::available() {
            let want = placed(&case, isa, 1, &[batch(0..ROWS)]);
            for threads in [1, 2, 3] {
                for batches in [vec![batch(0..ROWS)], PIECES.map(&batch).to_vec()] {
                    let got = placed(&case, isa, threads, &batches);
                    let formats = formats.map(Format::name);
                    let what = format!(
                        "{formats:?}, {} batches on {}, {threads} threads",
                        batches.len(),
                        isa.name()
                    );
                    assert!(got.0 == want.0, "q, k or v: {what}");
                    assert!(got.1 == want.1, "cache: {what}");
                }
            }
        }
    }
}

#[test]
fn attention_of_a_sequence_is_the_same_beside_another() {
    let mut random = Random::new(18);
    let hidden = 48;
    // Rows of each sequence in each step: prefill and decode beside each other, and both alone.
    let steps = [[100, 20], [130, 1], [0, 33], [40, 1], [1, 1], [1, 7], [12, 1], [1, 0], [1, 1]];
    let mut blocks: Vec<u32> = (0..BLOCKS as u32).collect();
    random.shuffle(&mut blocks);
    let tables = blocks.split_at(BLOCKS / 2);
    let tables = [tables.0, tables.1];
    let x: Vec<[Vec<Vec<f32>>; 2]> = steps
        .iter()
        .map(|rows| rows.map(|rows| (0..rows).map(|_| random.normals(hidden, 1.0)).collect()))
        .collect();
    // The batches of some of the sequences.
    let of = |sequences: &[usize]| {
        let mut at = [0; 2];
        let mut batches = Vec::new();
        for x in &x {
            let mut batch = Batch::default();
            for &sequence in sequences.iter().filter(|&&sequence| !x[sequence].is_empty()) {
                batch.push(&vec![0; x[sequence].len()], at[sequence], tables[sequence], true);
                at[sequence] += x[sequence].len();
            }
            if batch.rows() > 0 {
                batches.push((batch, sequences.iter().flat_map(|&sequence| x[sequence].clone()).collect()));
            }
        }
        batches
    };
    for (heads, window) in [
        ((6, 2, 32), None),
        ((6, 2, 32), Some(100)),
        ((8, 2, 64), None),
        ((8, 1, 64), Some(260)),
        ((3, 3, 128), Some(17)),
    ] {
        let mut case = attend_case(&mut random, heads, window, 0);
        let width = heads.0 * heads.2;
        for isa in Isa::available() {
            let mut run = |threads, sequences: &[usize]| {
                case.steps = of(sequences);
                case.run(&mut Cpu::with_isa(threads, isa).unwrap())
            };
            let alone = [run(1, &[0]), run(1, &[1])];
            for threads in [1, 2, 3] {
                let together = run(threads, &[0, 1]);
                let (mut at, mut seen) = (0, [0; 2]);
                for rows in steps {
                    for sequence in [0, 1] {
                        let own = &together[at..][..rows[sequence] * width];
                        let want = &alone[sequence][seen[sequence]..][..own.len()];
                        let what = format!("sequence {sequence} of {heads:?}, window {window:?}");
                        let place = format!("{}, {threads} threads", isa.name());
                        assert!(same_bits(own, want), "{what}, at {} on {place}", seen[sequence] / width);
                        (at, seen[sequence]) = (at + own.len(), seen[sequence] + own.len());
                    }
                }
                assert_eq!(at, together.len());
                for sequence in [0, 1] {
                    assert!(same_bits(&run(threads, &[sequence]), &alone[sequence]), "{threads} threads");
                }
            }
        }
    }
}

#[test]
fn attention_is_the_same_in_any_cut() {
    let mut random = Random::new(12);
    let mut case = attend_case(&mut random, (6, 2, 32), None, 0);
    let x: Vec<Vec<f32>> = (0..600).map(|_| random.normals(48, 1.0)).collect();
    let blocks: Vec<u32> = (0..BLOCKS as u32).rev().collect();
    let cut = |sizes: &[usize]| {
        let mut at = 0;
        let mut steps = Vec::new();
        for &size in sizes.iter().cycle() {
            let size = size.min(x.len() - at);
            if size == 0 {
                return steps;
            }
            let mut batch = Batch::default();
            batch.push(&vec![0; size], at, &blocks, true);
            steps.push((batch, x[at..at + size].to_vec()));
            at += size;
        }
        steps
    };
    for isa in Isa::available() {
        case.steps = cut(&[64]);
        let want = case.run(&mut Cpu::with_isa(1, isa).unwrap());
        for (threads, sizes) in [(2, &[1][..]), (3, &[5, 1, 30]), (1, &[2, 3]), (2, &[16, 29, 64])] {
            case.steps = cut(sizes);
            let got = case.run(&mut Cpu::with_isa(threads, isa).unwrap());
            assert!(want == got, "cut {sizes:?} with {threads} threads on {} differs", isa.name());
        }
    }
}
