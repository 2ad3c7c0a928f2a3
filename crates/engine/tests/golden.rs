//! Every architecture and every weight format against transformers, on tiny models.
//!
//! `cargo xtask golden` made the files in tests/golden. The error of logits is the largest difference in a
//! row, relative to the row's largest logit.

mod golden_data;

use flint_engine::batch::Batch;
use flint_engine::device::Device;
use flint_engine::device::cpu::{Cpu, Isa};
use flint_engine::device::plain::Plain;
use flint_engine::limits::KV_BLOCK_TOKENS;
use flint_engine::load::ModelFile;
use flint_engine::model::Loaded;
use flint_engine::runner::Runner;
use golden_data::{Model, Prompt, Reference, files, root, top};
use std::path::Path;

const LOGIT_ERROR_MAX: f32 = 1e-4;
const TOP_AGREEMENT_MIN: f64 = 0.99;
/// Rows that each prompt has in a batch of all of them: prefill and decode beside one another.
const ROWS_BESIDE: [usize; 4] = [30, 1, 16, 9];
/// Tokens of the longest prompt with its answer.
const TOKENS: usize = 240;

fn open<D: Device + 'static>(path: &Path, device: D, prompts: usize) -> Model {
    Model::load(path, device, prompts, TOKENS)
}

fn relative_error(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let difference = found.iter().zip(expected).map(|(f, e)| (f - e).abs()).fold(0.0, f32::max);
    let largest = expected.iter().map(|e| e.abs()).fold(0.0, f32::max);
    assert!(difference.is_finite(), "a logit is not a number");
    difference / largest
}

/// Every CPU device of this machine, on one thread and on two.
fn cpus() -> impl Iterator<Item = (String, Cpu)> {
    Isa::available().into_iter().flat_map(|isa| {
        [1, 2].map(|threads| {
            let cpu = Cpu::with_isa(threads, isa).unwrap();
            (cpu.describe(), cpu)
        })
    })
}

fn check_greedy(what: &str, model: &mut Model, prompts: &[Prompt], chunk: usize) {
    let answers = model.greedy(prompts, chunk, prompts[0].greedy.len());
    for (index, (answer, prompt)) in answers.iter().zip(prompts).enumerate() {
        assert_eq!(answer, &prompt.greedy, "{what}: greedy tokens of prompt {index}");
    }
}

/// The plain device gives the reference's logits and greedy tokens.
fn plain(name: &str) {
    let Reference { prompts } = Reference::read(name);
    for path in files(name) {
        let what = path.display().to_string();
        let mut model = open(&path, Plain::default(), prompts.len());
        for prompt in &prompts {
            let logits = model.logits(&prompt.tokens, 64);
            for (&position, expected) in prompt.logit_positions.iter().zip(&prompt.logits) {
                let error = relative_error(&logits[position], expected);
                assert!(error < LOGIT_ERROR_MAX, "{what}: logits at {position} are off by {error:e}");
            }
        }
        check_greedy(&what, &mut model, &prompts, 64);
    }
}

/// Unquantised weights: every CPU device gives the greedy tokens of the reference.
fn cpu_exact(name: &str) {
    let Reference { prompts } = Reference::read(name);
    for path in files(name) {
        for (device, cpu) in cpus() {
            let what = format!("{} on {device}", path.display());
            check_greedy(&what, &mut open(&path, cpu, prompts.len()), &prompts, 64);
        }
    }
}

/// Quantised weights, for which the CPU rounds activations to 8 bits: nearly all top tokens are those of
/// the dequantised reference.
fn cpu_close(name: &str) {
    let Reference { prompts } = Reference::read(name);
    for path in files(name) {
        for (device, cpu) in cpus() {
            let mut model = open(&path, cpu, 1);
            let (mut agreed, mut all) = (0, 0);
            for prompt in &prompts {
                model.prefill(0, &prompt.tokens, 64, &mut |position, logits| {
                    agreed += usize::from(top(logits) == prompt.top[position]);
                    all += 1;
                });
            }
            let agreement = agreed as f64 / all as f64;
            println!("{} on {device}: {agreed} of {all} top tokens", path.display());
            assert!(all >= 500 && agreement >= TOP_AGREEMENT_MIN, "{name} on {device}: {agreed} of {all}");
        }
    }
}

/// How a prompt is cut into batches, what else is in them and how many threads there are changes no bit.
fn batches<D: Device + 'static>(name: &str, threads: &[usize], device: impl Fn(usize) -> D) {
    let Reference { prompts } = Reference::read(name);
    for path in files(name) {
        let mut model = open(&path, device(1), 1);
        let alone: Vec<_> = prompts.iter().map(|prompt| model.logits(&prompt.tokens, 64)).collect();
        for &threads in threads {
            let mut model = open(&path, device(threads), 1);
            for chunk in [1, 7, 33, 64] {
                let cut = model.logits(&prompts[0].tokens, chunk);
                check_bits(
                    &format!("{}, chunks of {chunk}, {threads} threads", path.display()),
                    &cut,
                    &alone[0],
                );
            }
            let beside = side_by_side(&path, device(threads), &prompts);
            for (index, (beside, alone)) in beside.iter().zip(&alone).enumerate() {
                let what = format!("{}, prompt {index} beside others, {threads} threads", path.display());
                check_bits(&what, beside, alone);
            }
        }
    }
}

fn check_bits(what: &str, found: &[Vec<f32>], expected: &[Vec<f32>]) {
    assert_eq!(found.len(), expected.len());
    for (position, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = relative_error(found, expected);
        assert!(found == expected, "{what}: logits at {position} are off by {error:e}");
    }
}

/// The logits after each token of each prompt, all prompts in the same batches.
fn side_by_side<D: Device + 'static>(path: &Path, device: D, prompts: &[Prompt]) -> Vec<Vec<Vec<f32>>> {
    let (file, count) = (ModelFile::open(path).unwrap(), prompts.len());
    let blocks = TOKENS.div_ceil(KV_BLOCK_TOKENS);
    let mut model = Loaded::new(&file, device, count * blocks, &mut |_, _| ()).unwrap();
    let (mut logits, mut batch) = (vec![Vec::new(); count], Batch::default());
    loop {
        batch.clear();
        let mut owners = Vec::new(); // of the rows
        for (index, prompt) in prompts.iter().enumerate() {
            let at = logits[index].len();
            let rest = &prompt.tokens[at..];
            let tokens = &rest[..rest.len().min(ROWS_BESIDE[index])];
            if !tokens.is_empty() {
                let table: Vec<u32> = (0..blocks).map(|block| (block * count + index) as u32).collect();
                batch.push(tokens, at, &table, false);
                owners.extend(vec![index; tokens.len()]);
            }
        }
        if owners.is_empty() {
            return logits;
        }
        batch.logit_rows.extend(0..owners.len() as u32);
        model.forward(&batch).unwrap();
        for (row, owner) in owners.into_iter().enumerate() {
            logits[owner].push(model.logits(row).to_vec());
        }
    }
}

/// The tests of one model; `$cpu` is what its weights let one ask of the CPU device.
macro_rules! golden {
    ($($module:ident: $name:literal, $cpu:ident;)*) => {
        const NAMES: &[&str] = &[$($name),*];
        $(mod $module {
            #[test]
            fn plain() {
                super::plain($name);
            }

            #[test]
            fn cpu() {
                super::$cpu($name);
            }

            #[test]
            fn batches() {
                super::batches($name, &[1], |_| super::Plain::default());
                super::batches($name, &[1, 2, 3], |threads| super::Cpu::new(threads).unwrap());
            }
        })*
    };
}

golden! {
    llama: "llama", cpu_exact;
    llama3: "llama3", cpu_exact;
    qwen2: "qwen2", cpu_exact;
    qwen3: "qwen3", cpu_exact;
    qwen3_moe: "qwen3-moe", cpu_exact;
    gpt_oss: "gpt-oss", cpu_exact;
    gpt_oss_mxfp4: "gpt-oss-mxfp4", cpu_close;
    gpt_oss_heads: "gpt-oss-heads", cpu_close;
    quantised: "quantised", cpu_close;
    quantised_moe: "quantised-moe", cpu_close;
    qwen3_fp8: "qwen3-fp8", cpu_close;
}

#[test]
fn every_model_is_tested() {
    let entries = std::fs::read_dir(root()).unwrap().map(|entry| entry.unwrap());
    let folders = entries.filter(|entry| entry.file_type().unwrap().is_dir());
    let mut found: Vec<String> = folders.map(|entry| entry.file_name().into_string().unwrap()).collect();
    found.sort();
    let mut expected = NAMES.to_vec();
    expected.sort();
    assert_eq!(found, expected);
}
