//! Weights and KV lie on huge pages where the system has them, and nothing but speed is lost where it has not.
//!
//! The processes that load are this very test executable, started again with `FLINT_TEST_LOADS` set: it then runs the test
//! `a_process_that_loads` alone, which says what it got.
#![cfg(target_os = "linux")]

mod common;

use common::{generate, model_path, request, run, tokens_of};
use flint_engine::device::{Device, cpu::Cpu};
use flint_engine::limits::KV_BLOCK_TOKENS;
use flint_engine::load::ModelFile;
use flint_engine::message::Base;
use flint_engine::model::Loaded;
use flint_engine::step::Engine;
use serde::{Deserialize, Serialize};
use std::os::unix::process::CommandExt;
use std::process::Command;

const ROLE: &str = "FLINT_TEST_LOADS";
const KV_BLOCKS: usize = 24;
const ANSWER_TOKENS: u32 = 24;

/// Before what a process says of itself, among what the test harness says.
const MARK: &str = "loaded: ";

#[derive(Debug, Serialize, Deserialize)]
struct Found {
    weights: usize, // bytes that products read
    kv: usize,      // bytes of the whole pool
    before: usize,  // bytes on huge pages, before the model was loaded
    loaded: usize,
    answered: usize,
    tokens: Vec<u32>,
}

/// Bytes of this process's anonymous memory that lie on huge pages.
fn huge_bytes() -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = maps.lines().find_map(|line| line.strip_prefix("AnonHugePages:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// Loads, and fills its KV pool with a prompt and its answer.
fn load_and_answer() -> Found {
    let before = huge_bytes();
    let file = ModelFile::open(&model_path("smollm2-135m")).unwrap();
    let kv_token = file.config.layers * file.config.kv_heads * Cpu::kv_head_bytes(file.config.head_dim);
    let runner = Loaded::new(&file, Cpu::new(2).unwrap(), KV_BLOCKS, &mut |_, _| ()).unwrap();
    let (weights, loaded) = (runner.device().held().bytes, huge_bytes());
    let mut engine = Engine::new(Box::new(runner));
    let room = KV_BLOCKS * KV_BLOCK_TOKENS;
    let prompt: Vec<u32> = (0..room as u32 - ANSWER_TOKENS).map(|at| 100 + at * 7919 % 40_000).collect();
    generate(&mut engine, request(1, Base::New, &prompt, ANSWER_TOKENS));
    let tokens = tokens_of(&run(&mut engine), 1);
    Found { weights, kv: kv_token * room, before, loaded, answered: huge_bytes(), tokens }
}

#[test]
fn a_process_that_loads() {
    if std::env::var_os(ROLE).is_some() {
        println!("\n{MARK}{}", serde_json::to_string(&load_and_answer()).unwrap());
    }
}

/// What a process finds that may have huge pages, or may not.
fn found(may: bool) -> Found {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_process_that_loads", "--nocapture"]).env(ROLE, "1");
    // SAFETY: a system call that is safe between fork and exec; what it sets outlives the exec.
    unsafe {
        command.pre_exec(move || {
            let refused = libc::c_ulong::from(!may);
            let none: libc::c_ulong = 0;
            match libc::prctl(libc::PR_SET_THP_DISABLE, refused, none, none, none) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let found = said.lines().find_map(|line| line.strip_prefix(MARK));
    let found = found.unwrap_or_else(|| panic!("{said}\n{}", String::from_utf8_lossy(&output.stderr)));
    serde_json::from_str(found).unwrap()
}

/// Whether this system gives huge pages to who asks for them; says so where it does not.
fn system_has_huge_pages() -> bool {
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let has = ["[always]", "[madvise]"].iter().any(|chosen| enabled.contains(chosen));
    if !has {
        eprintln!("this system has no huge pages ({}): only the fallback is shown", enabled.trim());
    }
    has
}

#[test]
fn weights_and_kv_lie_on_huge_pages_and_do_without_them() {
    let without = found(false);
    assert_eq!((without.before, without.loaded, without.answered), (0, 0, 0), "{without:?}");
    let with = found(true);
    assert_eq!(with.tokens.len(), ANSWER_TOKENS as usize);
    assert_eq!(with.tokens, without.tokens, "pages change no token");
    if system_has_huge_pages() {
        // Most of them: the ends of what is mapped may lie on small pages.
        let (weights, kv) = (with.loaded - with.before, with.answered - with.loaded);
        assert!(weights > with.weights * 3 / 4, "weights have {weights} bytes of huge pages: {with:?}");
        assert!(kv > with.kv * 3 / 4, "KV has {kv} bytes of huge pages: {with:?}");
    }
}
