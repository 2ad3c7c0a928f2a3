//! Every kernel compiles for every card that can run it; this needs NVIDIA's compiler, but no card.

mod common;

use flint_engine::device::cuda::{Shape, compile_operations, find_compiler, machine_code};
use flint_engine::load::MadeUp;
use flint_engine::model::config::{Rope, RopePairs};

/// NVRTC where pip puts it: whoever asks for it by its name then finds it.
fn load_compiler() {
    assert!(find_compiler(&[common::fetched("nvrtc/nvidia/cu13/lib")]));
}

/// The operations of the general path, with heads of the usual lengths, and for one of them of the largest. `sm_120a` is what a card of
/// sm_120 is asked for.
#[test]
fn operations_compile_for_every_card_that_can_run_them() {
    load_compiler();
    for arch in ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120", "sm_120a"] {
        let heads: &[usize] = if arch == "sm_80" { &[64, 128, 256] } else { &[64, 128] };
        compile_operations(arch, heads, None).unwrap_or_else(|error| panic!("{arch}: {error}"));
    }
}

fn compile(shape: &Shape, arch: &str) {
    let code = machine_code(shape, arch, None).unwrap_or_else(|error| panic!("{arch}: {error}"));
    assert!(code.starts_with(b"\x7fELF"), "{arch}: no machine code");
}

#[test]
fn kernels_compile_for_every_card_that_can_run_them() {
    load_compiler();
    for name in MadeUp::NAMES {
        // With the multiprocessors of an H200, a B200 and an RTX 5090.
        for (arch, multiprocessors) in [("sm_90a", 132), ("sm_100a", 148), ("sm_120", 170)] {
            compile(&Shape::named(name, multiprocessors).unwrap(), arch);
        }
    }
}

/// What files have that made-up models have not: levels of 8 bits in some layers, pairs of neighbours that turn.
#[test]
fn kernels_compile_for_what_files_have() {
    load_compiler();
    let dense = Shape::named("qwen2.5-coder-1.5b", 132).unwrap();
    compile(&Shape { wide_stages: 0b1111, ..dense.clone() }, "sm_90a");
    let rope = Rope { pairs: RopePairs::Adjacent, ..dense.rope.clone() };
    compile(&Shape { rope, head_norms: true, ..dense }, "sm_90a");
    compile(&Shape { wide_stages: 0b1100, ..Shape::named("qwen3-coder-30b-a3b", 132).unwrap() }, "sm_90a");
}
