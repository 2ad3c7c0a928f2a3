//! Every operation of the CPU device against the plain one, on random weights and odd shapes, for every
//! instruction set that this machine has.

mod op_cases;
mod support;

use flint_engine::batch::Batch;
use flint_engine::device::cpu::{Cpu, Isa};
use flint_engine::device::plain::Plain;
use flint_engine::quant::Format;
use op_cases::{BLOCKS, Case, Project, Visit, attend_case, relative_error};
use support::{Random, random_tensor};

/// Compares each case on the CPU device of every instruction set.
struct Compare;

impl Visit for Compare {
    fn case<C: Case>(&mut self, name: &str, case: &C, tolerance: f32) {
        let want = case.run(&mut Plain::default());
        for isa in Isa::available() {
            // Two threads cut few rows otherwise than three do.
            for threads in [1, 2, 3] {
                let mut cpu = Cpu::with_isa(threads, isa).unwrap();
                let error = relative_error(&want, &case.run(&mut cpu));
                let isa = isa.name();
                assert!(
                    error <= tolerance,
                    "{name} on {isa}, {threads} threads: error {error} > {tolerance}"
                );
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

#[test]
fn a_row_is_the_same_alone_and_in_a_batch() {
    let mut random = Random::new(11);
    for format in [Format::F32, Format::Bf16, Format::Q4_1, Format::Q4K, Format::Q6K, Format::Mxfp4] {
        let case = Project {
            parts: vec![random_tensor(&mut random, "a", &[70, 512], format)],
            bias: None,
            input: (0..23).map(|_| random.normals(512, 1.0)).collect(),
            x: vec![vec![0.0; 70]; 23],
        };
        for isa in Isa::available() {
            let together = case.run(&mut Cpu::with_isa(2, isa).unwrap());
            for row in 0..23 {
                let alone = Project {
                    parts: case.parts.clone(),
                    bias: None,
                    input: vec![case.input[row].clone()],
                    x: vec![vec![0.0; 70]],
                };
                let alone = alone.run(&mut Cpu::with_isa(1, isa).unwrap());
                assert_eq!(
                    alone,
                    together[row * 70..][..70],
                    "{} row {row} on {}",
                    format.name(),
                    isa.name()
                );
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
