//! Bad files of Flint's own.

use super::gguf_writer::{GgufWriter, Item};
use super::{Bad, gguf, tiny};
use flint_engine::quant::{Format, panels};

const IN_PANELS: &str = "blk.0.ffn_down.weight";

/// A valid one: rows, and one matrix in panels.
pub(crate) fn valid(arch: &str) -> GgufWriter {
    let mut file = tiny::gguf(arch);
    (file.magic, file.version) = (*b"FLNT", 1);
    file.set("flint.layout", Item::text("panels of 16 rows"));
    if let Some(tensor) = file.tensors.iter_mut().find(|tensor| tensor.name == IN_PANELS.as_bytes()) {
        tensor.format = 0x1000 + Format::Q4_0.ggml_type().expect("a format of GGUF");
        let bytes = panels::matrix_bytes(Format::Q4_0, tiny::HIDDEN, tiny::FFN).expect("a small matrix");
        tensor.data = vec![0; bytes];
    }
    file
}

fn changed(name: &'static str, change: impl Fn(&mut GgufWriter), expected: &[&'static str]) -> Bad {
    let mut file = valid("llama");
    change(&mut file);
    gguf(name, file.write(), expected)
}

fn cut(name: &'static str, end: impl Fn(usize) -> usize, expected: &[&'static str]) -> Bad {
    let bytes = valid("llama").write();
    gguf(name, bytes[..end(bytes.len())].to_vec(), expected)
}

pub(crate) fn cases() -> Vec<Bad> {
    let cut = vec![
        cut("flint-cut-in-magic", |_| 3, &["ends inside the magic number"]),
        cut("flint-cut-in-version", |_| 6, &["ends inside the version"]),
        cut("flint-cut-in-keys", |_| 30, &["ends inside the name of metadata key 0"]),
        cut("flint-cut-last-byte", |len| len - 1, &["ends inside \"blk.0.ffn_down.weight\""]),
    ];
    [keys(), tensors(), cut].into_iter().flatten().collect()
}

/// What the head says of the file.
fn keys() -> Vec<Bad> {
    vec![
        changed(
            "flint-version-0",
            |file| file.version = 0,
            &["the version is 0, expected 1: make the file again"],
        ),
        changed(
            "flint-version-2",
            |file| file.version = 2,
            &["the version is 2, expected 1: make the file again"],
        ),
        changed("flint-no-layout", |file| file.remove("flint.layout"), &["flint.layout is missing"]),
        changed(
            "flint-layout-a-number",
            |file| file.set("flint.layout", Item::u32(3)),
            &["\"flint.layout\" is 3, expected a string"],
        ),
        changed(
            "flint-config-no-json",
            |file| file.set("flint.file.config.json", Item::text("{")),
            &["the JSON cannot be understood"],
        ),
        changed(
            "flint-config-long",
            |file| file.set("flint.file.config.json", Item::text(&" ".repeat(5 << 20))),
            &["\"flint.file.config.json\" is longer, expected at most 4194304 bytes"],
        ),
        changed(
            "flint-config-empty",
            |file| file.set("flint.file.config.json", Item::text("{}")),
            &["\"model_type\" is missing"],
        ),
        changed(
            "flint-tokenizer-none",
            |file| {
                let config = tiny::folder("llama").config.to_string();
                file.set("flint.file.config.json", Item::text(&config));
            },
            &["tokenizer.json is missing"],
        ),
    ]
}

/// What the table says of tensors.
fn tensors() -> Vec<Bad> {
    vec![
        changed(
            "flint-magic-of-gguf",
            |file| (file.magic, file.version) = (*b"GGUF", 3),
            &["is number 4098"],
        ),
        changed(
            "flint-panels-of-nothing",
            |file| file.tensor(IN_PANELS).format = 0x1000 + 99,
            &["the format of", "is number 4195"],
        ),
        changed(
            "flint-panels-of-a-vector",
            |file| file.tensor("output_norm.weight").format = 0x1000,
            &["the shape of \"output_norm.weight\" is [32], expected two or three sizes"],
        ),
        changed(
            "flint-panels-huge",
            |file| file.tensor(IN_PANELS).dimensions = vec![1 << 31, 1 << 31],
            &["the shape of \"blk.0.ffn_down.weight\"", "that fit"],
        ),
        changed(
            "flint-tiles-cut",
            |file| file.tensor(IN_PANELS).format = 0x2000 + 2,
            &["ends inside \"blk.0.ffn_down.weight\""],
        ),
        changed(
            "flint-tiles-huge",
            |file| {
                let tensor = file.tensor(IN_PANELS);
                (tensor.format, tensor.dimensions) = (0x2000 + 2, vec![1 << 31, 1 << 31]);
            },
            &["the shape of \"blk.0.ffn_down.weight\"", "that fit"],
        ),
        changed(
            "flint-tiles-of-nothing",
            |file| file.tensor(IN_PANELS).format = 0x3000,
            &["is number 12288"],
        ),
        changed(
            "flint-offset-past-end",
            |file| file.tensor(IN_PANELS).offset = Some(1 << 40),
            &["ends inside \"blk.0.ffn_down.weight\"", "0 are left"],
        ),
        changed(
            "flint-offset-huge",
            |file| file.tensor(IN_PANELS).offset = Some(u64::MAX / 32 * 32),
            &["ends inside \"blk.0.ffn_down.weight\""],
        ),
        changed(
            "flint-overlapping",
            |file| file.tensor(IN_PANELS).offset = Some(0),
            &["tensors that do not overlap"],
        ),
        changed(
            "flint-other-shape",
            |file| file.tensor(IN_PANELS).dimensions = vec![tiny::FFN as u64, tiny::HIDDEN as u64 - 16],
            &["the shape of \"blk.0.ffn_down.weight\" is [16, 64], expected [32, 64]"],
        ),
    ]
}
