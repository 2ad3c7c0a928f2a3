//! Every kernel compiles for every card that can run it; this needs NVIDIA's compiler, but no card.

mod common;

use flint_engine::device::cuda::{Shape, compile_operations, machine_code};
use flint_engine::load::MadeUp;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

/// Loads the compiler by its path: whoever asks for it by its name then finds it.
fn load_compiler() {
    for name in ["libnvrtc-builtins.so.13.0", "libnvrtc.so.13"] {
        let path = common::fetched("nvrtc/nvidia/cu13/lib").join(name);
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: a library of NVIDIA's, whose start-up code does nothing but set it up.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        assert!(!library.is_null(), "{path:?} cannot be loaded");
    }
}

/// The operations of the general path, with heads of the usual and of the largest length.
#[test]
fn operations_compile_for_every_card_that_can_run_them() {
    load_compiler();
    for arch in ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120"] {
        let heads: &[usize] = if arch == "sm_80" { &[128, 256] } else { &[64] };
        compile_operations(arch, heads, None).unwrap_or_else(|error| panic!("{arch}: {error}"));
    }
}

#[test]
fn kernels_compile_for_every_card_that_can_run_them() {
    load_compiler();
    for name in MadeUp::NAMES {
        // With the multiprocessors of an H200, a B200 and an RTX 5090.
        for (arch, multiprocessors) in [("sm_90a", 132), ("sm_100a", 148), ("sm_120", 170)] {
            let shape = Shape::named(name, multiprocessors).unwrap();
            let code = machine_code(&shape, arch, None).unwrap_or_else(|error| panic!("{arch}: {error}"));
            assert!(code.starts_with(b"\x7fELF"), "{arch}: no machine code");
        }
    }
}
