//! Every operation against the plain device, and the bits of rows alone and together.

use super::cuda;
use crate::op_cases::{
    self, Attend, BLOCKS, Case, Errors, Gated, Joint, Logits, Mixed, Project, Visit, attend_case,
};
use crate::support::{Random, random_tensor, vector_tensor};
use crate::{choice, golden, screen};
use flint_engine::batch::Batch;
use flint_engine::device::plain::Plain;
use flint_engine::device::{Activation, Device};
use flint_engine::quant::Format;

/// One line of the table.
struct Group {
    name: &'static str,
    tolerance: f32,
    cases: usize,
    worst: Errors,
    failures: usize,
}

/// Of any single value.
const ONE_MAX: f32 = 2e-2;

impl Group {
    fn new(name: &'static str, tolerance: f32) -> Group {
        Group { name, tolerance, cases: 0, worst: Errors::NONE, failures: 0 }
    }

    fn report(self) -> usize {
        let Group { name, tolerance, cases, worst: Errors { all, one }, failures } = self;
        println!(
            "{name:<24} {cases:>4} cases, error {all:.1e} (at most {tolerance:.0e}), of one value {one:.1e}, {failures} failed"
        );
        failures
    }

    fn check<C: Case>(&mut self, name: &str, case: &C) {
        let want = case.run(&mut Plain::default());
        let mut device = cuda();
        let got = case.run(&mut device);
        let error = Errors::of(&want, &got);
        self.cases += 1;
        self.worst.all = self.worst.all.max(error.all);
        self.worst.one = self.worst.one.max(error.one);
        let outcome = device.finish();
        if error.all > self.tolerance || error.one > ONE_MAX || outcome.is_err() {
            self.failures += 1;
            if self.failures <= 6 {
                println!("  {name}: {error:?}, {outcome:?}");
            }
        }
    }
}

impl Visit for Group {
    fn case<C: Case>(&mut self, name: &str, case: &C, _: Errors) {
        self.check(name, case);
    }
}

fn group(name: &'static str, tolerance: f32, run: impl Fn(&mut Group)) -> usize {
    let mut group = Group::new(name, tolerance);
    run(&mut group);
    group.report()
}

pub fn check() -> usize {
    // As long as one is open the card's context stays, and the next opens at once.
    let held = cuda();
    println!("{}", held.describe());
    operations() + wide_operations() + bits() + screen::check() + choice::check() + golden::models()
}

/// The cases that a memory checker goes through in a minute.
pub fn small() -> usize {
    let _held = cuda();
    let products = |group: &mut Group| {
        let mut random = Random::new(31);
        for (rows, format) in [(1, Format::Q4K), (9, Format::Mxfp4), (70, Format::Q6K), (70, Format::F32)] {
            group.check("product", &project(&mut random, rows, 37, 256, format));
        }
    };
    let attention = |group: &mut Group| {
        let mut random = Random::new(32);
        group.check("attention", &attend_case(&mut random, (6, 2, 32), Some(100), 7));
        group.check("attention", &attend_case(&mut random, (4, 1, 64), None, 7));
    };
    let mixtures = |group: &mut Group| {
        for rows in [5, 20] {
            group.check("mixture", &mixture(&mut Random::new(33), rows, Format::Mxfp4));
        }
    };
    group("products", 1e-3, products)
        + group("attention", 2e-3, attention)
        + group("mixtures", 2e-3, mixtures)
}

fn operations() -> usize {
    group("products", 1e-3, op_cases::products)
        + group("products, long rows", 1e-3, op_cases::wide_products)
        + group("stacked products", 1e-3, op_cases::stacked_products)
        + group("ordinary products", 1e-3, op_cases::ordinary_products)
        + group("attention, shapes", 2e-3, op_cases::attention_shapes)
        + group("attention, chunks", 2e-3, op_cases::attention_chunks)
        + group("gated", 2e-3, op_cases::gated)
        + group("mixtures", 2e-3, op_cases::mixtures)
        + group("mixtures, attention", 2e-3, op_cases::joints)
        + group("logits", 1e-3, op_cases::logits)
        + group("embeddings", 0.0, op_cases::embeddings)
        + group("copied blocks", 2e-3, op_cases::copied_blocks)
}

fn project(random: &mut Random, rows: usize, outs: usize, cols: usize, format: Format) -> Project {
    Project {
        parts: vec![random_tensor(random, "a", &[outs, cols], format)],
        bias: Some(vector_tensor("b", &random.normals(outs, 1.0))),
        input: (0..rows).map(|_| random.normals(cols, 1.0)).collect(),
        x: (0..rows).map(|_| random.normals(outs, 1.0)).collect(),
    }
}

fn mixture(random: &mut Random, rows: usize, format: Format) -> Mixed {
    mixture_of(random, rows, format, [8, 3], [96, 160])
}

fn mixture_of(
    random: &mut Random,
    rows: usize,
    format: Format,
    [experts, used]: [usize; 2],
    [hidden, ffn]: [usize; 2],
) -> Mixed {
    Mixed {
        used,
        normalize: true,
        activation: Activation::ClampedSwiglu,
        norm: vector_tensor("norm", &random.normals(hidden, 1.0)),
        router: random_tensor(random, "router", &[experts, hidden], Format::F32),
        experts: [
            random_tensor(random, "gate", &[experts, ffn, hidden], format),
            random_tensor(random, "up", &[experts, ffn, hidden], format),
            random_tensor(random, "down", &[experts, hidden, ffn], format),
        ],
        biases: Some(
            [experts, experts * ffn, experts * ffn, experts * hidden]
                .map(|len| vector_tensor("bias", &random.normals(len, 1.0))),
        ),
        x: (0..rows).map(|_| random.normals(hidden, 1.0)).collect(),
    }
}

/// More rows than the shared cases have: the kernels for many.
fn wide_operations() -> usize {
    let products = |group: &mut Group| {
        let mut random = Random::new(21);
        let sizes = [(33, 50, 512), (64, 130, 768), (65, 129, 64), (130, 300, 576), (200, 77, 2880)];
        for (index, format) in Format::ALL.into_iter().filter(|format| *format != Format::Fp8).enumerate() {
            let (rows, outs, cols) = sizes[index % sizes.len()];
            let cols = cols / format.block_len().max(32) * format.block_len().max(32);
            let case = project(&mut random, rows, outs, cols.max(format.block_len()), format);
            group.check(&format!("{} {outs}x{cols} rows {rows}", format.name()), &case);
        }
    };
    let mixtures = |group: &mut Group| {
        let mut random = Random::new(22);
        for (rows, format) in
            [(16, Format::Mxfp4), (40, Format::Bf16), (100, Format::Mxfp4), (200, Format::Q8_0)]
        {
            group.check(&format!("mixture {rows} {}", format.name()), &mixture(&mut random, rows, format));
        }
    };
    group("products, many rows", 1e-3, products)
        + group("mixtures, many rows", 2e-3, mixtures)
        + some_operations()
}

/// Rows that one row of a tensor core's tile takes, of matrices that a multiprocessor has several tiles of.
fn some_operations() -> usize {
    let products = |group: &mut Group| {
        let mut random = Random::new(23);
        for format in [Format::Q8_0, Format::Q6K, Format::Q4K, Format::Mxfp4, Format::Bf16] {
            for (rows, outs, cols) in [(5, 5003, 256), (8, 2880, 512), (6, 300, 2816)] {
                let case = project(&mut random, rows, outs, cols, format);
                group.check(&format!("{} {outs}x{cols} rows {rows}", format.name()), &case);
            }
        }
    };
    let mixtures = |group: &mut Group| {
        let mut random = Random::new(24);
        for (rows, format, used, widths) in [
            (2, Format::Mxfp4, 3, [704, 1408]),
            (5, Format::Mxfp4, 4, [704, 1408]),
            (8, Format::Mxfp4, 4, [2880, 96]),
            (8, Format::Q4_0, 4, [96, 1600]),
            (5, Format::Q8_0, 1, [512, 256]),
            (7, Format::Bf16, 2, [160, 704]),
            (2, Format::Bf16, 2, [2880, 96]),
            (8, Format::Q8_0, 4, [1600, 256]),
        ] {
            let case = mixture_of(&mut random, rows, format, [8, used], widths);
            group.check(&format!("mixture {rows} {} {widths:?}", format.name()), &case);
        }
    };
    group("products, some rows", 1e-3, products) + group("mixtures, some rows", 2e-3, mixtures)
}

/// Compares one row's values, computed alone and with others.
fn same_bits(
    what: &str,
    together: &[f32],
    width: usize,
    rows: &[usize],
    alone: impl Fn(usize) -> Vec<f32>,
) -> usize {
    let differs = |&row: &usize| {
        let alone = alone(row);
        let own = &together[row * width..][..width];
        alone.iter().zip(own).any(|(a, b)| a.to_bits() != b.to_bits())
    };
    let failed = rows.iter().filter(|row| differs(row)).count();
    if failed > 0 {
        println!("  {what}: {failed} of {} rows differ", rows.len());
    }
    failed
}

/// A row has the same bits alone and in any batch.
fn bits() -> usize {
    let mut failed = 0;
    let mut random = Random::new(41);
    for format in [Format::F32, Format::Q4_1, Format::Q4K, Format::Q6K, Format::Mxfp4, Format::Q8_0] {
        for (rows, outs) in [
            (2, 70),
            (3, 70),
            (4, 70),
            (5, 70),
            (5, 5003),
            (8, 3000),
            (16, 70),
            (31, 70),
            (64, 70),
            (150, 70),
        ] {
            let case = project(&mut random, rows, outs, 768, format);
            let together = case.run(&mut cuda());
            failed += same_bits(format.name(), &together, outs, &[0, 1, rows / 2, rows - 1], |row| {
                Project {
                    parts: case.parts.clone(),
                    bias: case.bias.clone(),
                    input: vec![case.input[row].clone()],
                    x: vec![case.x[row].clone()],
                }
                .run(&mut cuda())
            });
        }
    }
    failed += mlp_bits(&mut random) + head_bits(&mut random) + attention_bits(&mut random);
    failed += joint_bits(&mut random);
    println!("{:<24} {failed} rows differ between batches", "bits");
    failed
}

fn mlp_bits(random: &mut Random) -> usize {
    let mut failed = 0;
    for (rows, widths) in [
        (2, [96, 160]),
        (4, [704, 1408]),
        (5, [704, 1408]),
        (8, [1408, 704]),
        (9, [704, 1408]),
        (20, [96, 160]),
        (100, [96, 160]),
    ] {
        let case = mixture_of(random, rows, Format::Mxfp4, [8, 3], widths);
        let together = case.run(&mut cuda());
        failed += same_bits("mixture", &together, widths[0], &[0, rows / 2, rows - 1], |row| {
            let x = vec![case.x[row].clone()];
            let (norm, router, experts) = (case.norm.clone(), case.router.clone(), case.experts.clone());
            Mixed { x, norm, router, experts, biases: case.biases.clone(), ..case }.run(&mut cuda())
        });
        let case = Gated {
            norm: vector_tensor("norm", &random.normals(576, 1.0)),
            gate: random_tensor(random, "gate", &[200, 576], Format::Q4_1),
            up: random_tensor(random, "up", &[200, 576], Format::Q4_1),
            x: (0..rows).map(|_| random.normals(576, 1.0)).collect(),
        };
        let together = case.run(&mut cuda());
        failed += same_bits("gated", &together, 200, &[0, rows / 2, rows - 1], |row| {
            let (norm, gate, up) = (case.norm.clone(), case.gate.clone(), case.up.clone());
            Gated { norm, gate, up, x: vec![case.x[row].clone()] }.run(&mut cuda())
        });
    }
    failed
}

/// A mixture's sum is made where attention's product is prepared, if there are some rows and not one.
fn joint_bits(random: &mut Random) -> usize {
    let of = |rows: usize, random: &mut Random| {
        let case = op_cases::joint_case(random, rows);
        let together = case.run(&mut cuda());
        same_bits(
            "mixture and attention",
            &together,
            case.mixed.x[0].len(),
            &[0, rows / 2, rows - 1],
            |row| {
                let alone = Mixed { x: vec![case.mixed.x[row].clone()], ..case.mixed.clone() };
                Joint { mixed: alone, ..case.clone() }.run(&mut cuda())
            },
        )
    };
    [2, 4, 5, 8, 9].into_iter().map(|rows| of(rows, random)).sum()
}

fn head_bits(random: &mut Random) -> usize {
    let case = |x: Vec<Vec<f32>>, rows: Vec<u32>, norm, matrix| Logits { norm, matrix, x, rows };
    let norm = vector_tensor("norm", &random.normals(576, 1.0));
    let matrix = random_tensor(random, "head", &[999, 576], Format::Q8_0);
    let x: Vec<Vec<f32>> = (0..40).map(|_| random.normals(576, 1.0)).collect();
    let together = case(x.clone(), (0..40).collect(), norm.clone(), matrix.clone()).run(&mut cuda());
    same_bits("head", &together, 999, &[0, 9, 39], |row| {
        case(vec![x[row].clone()], vec![0], norm.clone(), matrix.clone()).run(&mut cuda())
    })
}

/// Positions prefilled together, in pieces or one by one.
fn attention_bits(random: &mut Random) -> usize {
    let mut failed = 0;
    for (heads, window) in [
        ((6, 2, 32), None),
        ((8, 1, 64), Some(300)),
        ((5, 5, 80), Some(40)),
        ((16, 2, 128), None),
        ((64, 8, 64), Some(128)),
    ] {
        let case = attend_case(random, heads, window, 0);
        let x: Vec<Vec<f32>> = (0..600).map(|_| random.normals(48, 1.0)).collect();
        let want = in_pieces(&case, &x, &[64]).run(&mut cuda());
        for sizes in [&[200][..], &[1], &[5, 1, 30], &[2, 33], &[8, 4, 7]] {
            let got = in_pieces(&case, &x, sizes).run(&mut cuda());
            if want.iter().zip(&got).any(|(a, b)| a.to_bits() != b.to_bits()) {
                println!("  attention {heads:?} window {window:?} differs in pieces of {sizes:?}");
                failed += 1;
            }
        }
    }
    failed
}

fn in_pieces(case: &Attend, x: &[Vec<f32>], sizes: &[usize]) -> Attend {
    let blocks: Vec<u32> = (0..BLOCKS as u32).rev().collect();
    let (mut at, mut steps) = (0, Vec::new());
    for &size in sizes.iter().cycle() {
        let size = size.min(x.len() - at);
        if size == 0 {
            break;
        }
        let mut batch = Batch::default();
        batch.push(&vec![0; size], at, &blocks, true);
        steps.push((batch, x[at..at + size].to_vec()));
        at += size;
    }
    let Attend { heads, window, pairs, ref norm, ref qkv, ref bias, ref head_norms, ref sinks, .. } = *case;
    let (norm, qkv, bias) = (norm.clone(), qkv.clone(), bias.clone());
    Attend {
        heads,
        window,
        pairs,
        norm,
        qkv,
        bias,
        head_norms: head_norms.clone(),
        sinks: sinks.clone(),
        steps,
    }
}
