//! Checks and times the operations of the `cuda` device on the card that is there.
//!
//!     cuda_ops check               every operation, bits, the golden models
//!     cuda_ops small               the cases that a memory checker goes through in a minute
//!     cuda_ops screen              likeliest tokens found without all of the head
//!     cuda_ops fault               a worker whose card fails is replaced, and its answer is whole
//!     cuda_ops alone               models whose lone tokens come from one kernel: right, and stopped
//!     cuda_ops alone levels        of these, all but gpt-oss
//!     cuda_ops alone SHAPE DEPTH   the same, timed
//!     cuda_ops held                grammars and penalties on the card: logits and tokens are the host's
//!     cuda_ops held SHAPE          the same, timed
//!     cuda_ops real NAME PATH      perplexity of a real model, and its answers alone, together and with guesses
//!     cuda_ops rounding NAME PATH  what 8-bit keys and values cost it, without a card
//!     cuda_ops bench [SHAPE]       prefill and decode of made-up weights
//!     cuda_ops decode SHAPE        decode alone
//!     cuda_ops variants [SHAPE]    rows of sequences with the same beginning
//!     cuda_ops pass SHAPE ROWS     one pass, for a profiler
//!     cuda_ops compile ARCH DIR    compiles the kernels for an architecture, without a card

mod alone;
mod bench;
mod check;
mod choice;
#[path = "../../tests/common/mod.rs"]
mod common;
mod fault;
mod golden;
#[path = "../../tests/golden_data/mod.rs"]
mod golden_data;
mod held;
#[path = "../../tests/op_cases/mod.rs"]
mod op_cases;
mod real;
mod screen;
#[path = "../../tests/support/mod.rs"]
mod support;

use flint_engine::device::cuda::{Cuda, CudaError, compile_operations};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The lengths of heads that the cases and the models have.
const HEAD_DIMS: [usize; 6] = [16, 32, 48, 64, 80, 128];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let failures = match words[..] {
        ["check"] => check::check(),
        ["small"] => check::small(),
        ["fault"] => fault::fault(),
        ["alone"] => alone::check() + alone::check_levels(),
        ["alone", "levels"] => alone::check_levels(),
        ["alone", shape, depth] => alone::time(shape, depth.parse().unwrap_or(4096)),
        ["held"] => choice::check() + held::check(),
        ["held", shape] => held::time(shape),
        ["screen"] => screen::check(),
        ["worker", passes] => fault::work(passes),
        ["real", name, path] => real::real(name, Path::new(path)),
        ["rounding", name, path] => real::rounding(name, Path::new(path)),
        ["bench"] => bench::bench(""),
        ["bench", shape] => bench::bench(shape),
        ["decode", shape] => bench::decode(shape),
        ["variants"] => bench::variants(""),
        ["variants", shape] => bench::variants(shape),
        ["pass", shape, rows] => bench::pass(shape, rows.parse().unwrap_or(1)),
        ["compile", arch, folder] => compile(arch, Path::new(folder)),
        _ => {
            eprintln!(
                "cuda_ops check | small | screen | fault | alone [levels | SHAPE DEPTH] | held [SHAPE] | real NAME PATH | rounding NAME PATH | bench [SHAPE] | decode SHAPE | variants [SHAPE] | pass SHAPE ROWS | compile ARCH DIR"
            );
            1
        }
    };
    ExitCode::from(u8::from(failures > 0))
}

fn compile(arch: &str, folder: &Path) -> usize {
    let outcome = compile_operations(arch, &HEAD_DIMS, Some(folder));
    outcome.map_or_else(said, |()| 0) + alone::compile(arch, folder)
}

fn said(error: CudaError) -> usize {
    eprintln!("{error}");
    1
}

/// Where compiled kernels are kept.
fn kernels() -> PathBuf {
    std::env::var_os("FLINT_KERNELS")
        .map_or_else(|| std::env::temp_dir().join("flint-kernels"), PathBuf::from)
}

fn cuda() -> Cuda {
    Cuda::open(&kernels()).unwrap_or_else(|error| std::process::exit(said(error) as i32))
}
