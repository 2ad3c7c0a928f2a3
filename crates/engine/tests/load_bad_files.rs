//! Every bad file gives a clear error: it names the file and the field, nothing panics, and no single
//! allocation is larger than the file could justify. The files are also the seeds of the fuzzers.

mod bad_files;

use bad_files::temporary::Temporary;
use bad_files::{Bad, cases_flint, cases_safetensors, tiny};
use flint_engine::load::{ModelFile, gguf, safetensors};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::PathBuf;

/// Remembers the largest allocation of each thread.
struct Watching;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

fn note(size: usize) {
    LARGEST.with(|largest| largest.set(largest.get().max(size)));
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promises are the system allocator's conditions.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Watching = Watching;

const ALLOCATION_BYTES_MAX: usize = 1 << 20;

/// What opening the files and reading their tokenizer complains of.
fn complaint(bad: &Bad) -> Option<String> {
    let folder = Temporary::new(&bad.files);
    let path = folder.path(bad.open);
    LARGEST.with(|largest| largest.set(0));
    let result = ModelFile::open(&path).and_then(|model| model.tokenizer());
    let largest = LARGEST.with(Cell::get);
    assert!(largest <= ALLOCATION_BYTES_MAX, "{}: {largest} bytes at once", bad.name);
    let error = result.err()?.to_string();
    assert!(error.starts_with(&folder.path("").display().to_string()), "{}: no file in {error}", bad.name);
    Some(error)
}

#[test]
fn every_bad_file_gives_a_clear_error() {
    let all = bad_files::all();
    let mut wrong = Vec::new();
    for bad in &all {
        match complaint(bad) {
            None => wrong.push(format!("{}: opened", bad.name)),
            Some(error) if bad.expected.iter().all(|part| error.contains(part)) => (),
            Some(error) => wrong.push(format!("{}: {error}\n    lacks one of {:?}", bad.name, bad.expected)),
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), all.len(), wrong.join("\n"));
    let names: HashSet<_> = all.iter().map(|bad| bad.name).collect();
    assert_eq!(names.len(), all.len(), "two bad files have the same name");
    assert!(all.len() >= 60);
}

/// Every cut of a valid file is refused: no length is taken on trust.
#[test]
fn every_truncation_is_refused() {
    for arch in tiny::ARCHS {
        let bytes = tiny::gguf(arch).write();
        for end in 0..bytes.len() {
            assert!(gguf::parse(&bytes[..end]).is_err(), "{arch} cut at {end}");
        }
        let bytes = cases_flint::valid(arch).write();
        for end in 0..bytes.len() {
            assert!(gguf::parse(&bytes[..end]).is_err(), "Flint's own {arch} cut at {end}");
        }
        let bytes = tiny::folder(arch).weights.write();
        for end in (0..bytes.len()).step_by(7) {
            assert!(safetensors::parse_header(&bytes[..end], end as u64).is_err(), "{arch} cut at {end}");
        }
    }
}

/// Any single changed byte of the header is either harmless or an error, never a panic or a large buffer.
#[test]
fn no_changed_byte_does_harm() {
    for file in [tiny::gguf("gpt-oss"), cases_flint::valid("llama")] {
        let (bytes, sections) = file.write_with_sections();
        LARGEST.with(|largest| largest.set(0));
        for at in 0..sections.data {
            for value in [0, 1, 0x7F, 0x80, 0xFF] {
                let mut changed = bytes.clone();
                changed[at] = value;
                if let Ok(header) = gguf::parse(&changed) {
                    let end = header.tensors.iter().map(|tensor| tensor.offset + tensor.len).max();
                    assert!(end <= Some(changed.len()));
                }
            }
        }
    }
    assert!(LARGEST.with(Cell::get) <= ALLOCATION_BYTES_MAX);
}

/// The words a person gets, whole.
#[test]
fn complaints_read_well() {
    let expected = [
        (
            "gguf-cut-last-byte",
            "model.gguf: ends inside \"blk.0.ffn_down.weight\": 1152 bytes are needed, 1151 are left. The file is cut short: get it again.",
        ),
        (
            "gguf-alignment-0",
            "model.gguf: general.alignment is 0, expected a power of two up to 1048576. The file is damaged: get it again.",
        ),
        (
            "model-other-architecture",
            "model.gguf: \"general.architecture\" is \"mamba\", expected one of llama, qwen2, qwen3, qwen3moe, gpt-oss. Flint cannot run this: choose another file or model.",
        ),
        (
            "table-qwen2-no-bias",
            "model.gguf: \"blk.0.attn_k.bias\" is missing, expected a tensor of [16]. The model is not complete: get it again.",
        ),
        (
            "flint-version-2",
            "model.gguf: the version is 2, expected 1: make the file again with this flint quantize. Flint cannot run this: choose another file or model.",
        ),
        (
            "folder-eps-0",
            "config.json: \"rms_norm_eps\" is 0, expected more than 0 and at most 1. The file is damaged: get it again.",
        ),
        (
            "split-file-missing",
            "m-00002-of-00002.gguf: cannot be read: No such file or directory (os error 2). Check the path and its permissions.",
        ),
    ];
    let all = bad_files::all();
    for (name, words) in expected {
        let bad = all.iter().find(|bad| bad.name == name).expect(name);
        let error = complaint(bad).expect(name);
        assert!(error.ends_with(&format!("/{words}")), "{error}");
    }
}

fn parses(kind: &str, bytes: &[u8]) -> bool {
    match kind {
        "gguf" => gguf::parse(bytes).is_ok(),
        _ => safetensors::parse_header(bytes, bytes.len() as u64).is_ok(),
    }
}

/// The seeds of the fuzzers: folder of the corpus -> name -> bytes.
fn seeds() -> BTreeMap<(&'static str, String), Vec<u8>> {
    let mut seeds = BTreeMap::new();
    for arch in tiny::ARCHS {
        seeds.insert(("gguf", format!("valid-{arch}")), tiny::gguf(arch).write());
        seeds.insert(("gguf", format!("valid-flint-{arch}")), cases_flint::valid(arch).write());
    }
    seeds.insert(("safetensors", "valid".into()), cases_safetensors::valid().write());
    for bad in bad_files::all() {
        for (kind, file) in [("gguf", "model.gguf"), ("safetensors", "model.safetensors")] {
            let bytes = bad.files.get(file).filter(|bytes| !parses(kind, bytes)).cloned();
            seeds.extend(bytes.map(|bytes| ((kind, bad.name.to_string()), bytes)));
        }
    }
    seeds
}

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

/// The corpus holds these files. `UPDATE_CORPUS=1` writes them.
#[test]
fn the_corpus_has_every_bad_file() {
    let update = std::env::var_os("UPDATE_CORPUS").is_some();
    for ((kind, name), bytes) in seeds() {
        let path = corpus().join(kind).join(name);
        if update {
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(&path, &bytes).expect("a seed");
        }
        let found = fs::read(&path)
            .unwrap_or_else(|error| panic!("{}: {error}; UPDATE_CORPUS=1 writes it", path.display()));
        assert!(found == bytes, "{} is not what the test makes; UPDATE_CORPUS=1 writes it", path.display());
    }
}

/// Whatever the fuzzers have found stays found.
#[test]
fn the_corpus_replays() {
    for (kind, at_least) in [("gguf", 60), ("safetensors", 20)] {
        let files: Vec<_> = fs::read_dir(corpus().join(kind)).expect("a corpus").collect();
        assert!(files.len() >= at_least, "{kind} has {} seeds", files.len());
        for file in files {
            let bytes = fs::read(file.expect("a seed").path()).expect("a seed");
            parses(kind, &bytes);
        }
    }
}
