//! Safetensors files that are broken as files.

use super::folder_writer::SafetensorsWriter;
use super::{Bad, folder};
use serde_json::{Value, json};

const EMBEDDING: &str = "model.embed_tokens.weight";
const NORM: &str = "model.norm.weight";

pub(crate) fn cases() -> Vec<Bad> {
    let mut cases = headers();
    cases.extend(entries());
    cases.extend(shapes());
    cases.extend(names());
    cases.extend(places());
    cases
}

/// A small sound file; these cases are refused before it matters that the model is not whole.
pub(crate) fn valid() -> SafetensorsWriter {
    let mut weights = SafetensorsWriter::default();
    weights.add(EMBEDDING, "F32", &[16, 32], &[0; 2048]);
    weights.add(NORM, "F32", &[32], &[0; 128]);
    weights.add("half", "BF16", &[3], &[0; 6]);
    weights.add("blocks", "U8", &[2, 1, 4], &[0; 8]);
    weights.add("fp8", "F8_E4M3", &[5], &[0; 5]);
    weights
}

/// The tiny folder with the small file changed.
fn weights(name: &'static str, change: impl Fn(&mut SafetensorsWriter), expected: &[&'static str]) -> Bad {
    let mut weights = valid();
    change(&mut weights);
    file(name, weights.write(), expected)
}

/// The tiny folder with another weights file.
fn file(name: &'static str, bytes: Vec<u8>, expected: &[&'static str]) -> Bad {
    let change = |folder: &mut super::FolderWriter| {
        folder.others.insert("model.safetensors".into(), bytes.clone());
    };
    folder(name, "llama", change, expected)
}

fn header(name: &'static str, header: &[u8], expected: &[&'static str]) -> Bad {
    file(name, valid().write_header(header), expected)
}

fn headers() -> Vec<Bad> {
    let bytes = valid().write();
    let of_length = |len: u64| {
        let mut weights = valid();
        weights.header_len = Some(len);
        weights.write()
    };
    vec![
        file("safetensors-empty", Vec::new(), &["model.safetensors: ends inside the length of the header: 8 bytes are needed, 0"]),
        file("safetensors-cut-in-length", bytes[..7].to_vec(), &["the length of the header: 8 bytes are needed, 7"]),
        file("safetensors-cut-in-header", bytes[..100].to_vec(), &["ends inside the header"]),
        file("safetensors-cut-in-data", bytes[..bytes.len() - 1].to_vec(), &["model.safetensors: ends inside", "get it again"]),
        file("safetensors-trailing-bytes", [&bytes[..], b"more"].concat(), &["the length of the data is"]),
        file("safetensors-length-huge", of_length(u64::MAX), &["the length of the header is 18446744073709551615, expected at most 16777216"]),
        file("safetensors-length-past-end", of_length(16 << 20), &["ends inside the header: 16777216 bytes"]),
        header("safetensors-not-json", b"{\"a\": ", &["the header cannot be understood: \"a\": EOF while parsing"]),
        header("safetensors-list", b"[]", &["the header cannot be understood: invalid type: sequence, expected an object of tensors"]),
        header("safetensors-not-utf8", b"{\"\xFF\": 1}", &["the header cannot be understood: invalid unicode"]),
        header("safetensors-depth-bomb", &[b"{\"__metadata__\":".to_vec(), b"{\"a\":".repeat(2000), b"1".to_vec(), b"}".repeat(2000)].concat(), &["the header cannot be understood: EOF while parsing"]),
        header("safetensors-list-bomb", &[b"{\"__metadata__\":".to_vec(), b"[".repeat(20_000)].concat(), &["the header cannot be understood: EOF while parsing"]),
        header("safetensors-tensor-twice", b"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", &["the header cannot be understood: \"a\" there twice"]),
        header("safetensors-no-tensors", b"{}", &["the length of the data is"]),
    ]
}

/// The embedding's entry with one field changed.
fn entry(name: &'static str, field: &str, value: Value, expected: &[&'static str]) -> Bad {
    weights(name, |weights| weights.header[EMBEDDING][field] = value.clone(), expected)
}

fn entries() -> Vec<Bad> {
    vec![
        entry(
            "safetensors-dtype-unknown",
            "dtype",
            json!("I64"),
            &[
                "the dtype of \"model.embed_tokens.weight\" is \"I64\", expected one of F32, F16, BF16, F8_E4M3, U8",
            ],
        ),
        entry(
            "safetensors-dtype-number",
            "dtype",
            json!(3),
            &["\"model.embed_tokens.weight\": invalid type: integer `3`, expected a string"],
        ),
        entry(
            "safetensors-dtype-narrower",
            "dtype",
            json!("F16"),
            &[
                "the data_offsets of \"model.embed_tokens.weight\" is [0, 2048], expected 1024 bytes for [16, 32] in F16",
            ],
        ),
    ]
}

fn shapes() -> Vec<Bad> {
    vec![
        entry(
            "safetensors-shape-negative",
            "shape",
            json!([-1, 32]),
            &[
                "the header cannot be understood: \"model.embed_tokens.weight\": invalid value: integer `-1`, expected u64",
            ],
        ),
        entry(
            "safetensors-shape-fraction",
            "shape",
            json!([1.5, 32]),
            &["invalid type: floating point `1.5`, expected u64"],
        ),
        entry(
            "safetensors-shape-0",
            "shape",
            json!([0, 32]),
            &["the shape of \"model.embed_tokens.weight\" is [0, 32], expected sizes of at least 1"],
        ),
        entry(
            "safetensors-shape-overflows",
            "shape",
            json!([1u64 << 40, 1u64 << 40]),
            &["expected a size that fits"],
        ),
        entry(
            "safetensors-shape-long",
            "shape",
            json!([1, 1, 1, 1, 1, 1, 1, 16, 32]),
            &["is 9 dimensions, expected at most 8"],
        ),
        entry(
            "safetensors-shape-other",
            "shape",
            json!([16, 31]),
            &["expected 1984 bytes for [16, 31] in F32"],
        ),
        entry(
            "safetensors-shape-missing",
            "shape",
            Value::Null,
            &["invalid type: null, expected a sequence"],
        ),
    ]
}

fn names() -> Vec<Bad> {
    vec![
        weights(
            "safetensors-entry-number",
            |weights| weights.header[EMBEDDING] = json!(1),
            &["\"model.embed_tokens.weight\": invalid type: integer `1`"],
        ),
        weights(
            "safetensors-name-empty",
            |weights| rename(weights, ""),
            &["a tensor's name is 0 bytes long"],
        ),
        weights(
            "safetensors-name-long",
            |weights| rename(weights, &"n".repeat(600)),
            &["a tensor's name is 600 bytes long"],
        ),
    ]
}

fn rename(weights: &mut SafetensorsWriter, name: &str) {
    let entry = weights.header.remove(EMBEDDING).expect("the embedding");
    weights.header.insert(name.into(), entry);
}

fn places() -> Vec<Bad> {
    vec![
        entry(
            "safetensors-offsets-reversed",
            "data_offsets",
            json!([2048, 0]),
            &["is [2048, 0], expected 2048 bytes"],
        ),
        entry(
            "safetensors-offsets-negative",
            "data_offsets",
            json!([-8, 2040]),
            &["invalid value: integer `-8`, expected u64"],
        ),
        entry(
            "safetensors-offsets-past-end",
            "data_offsets",
            json!([1u64 << 40, (1u64 << 40) + 2048]),
            &["ends inside \"model.embed_tokens.weight\": 2048 bytes are needed, 0 are left"],
        ),
        entry(
            "safetensors-offsets-overflow",
            "data_offsets",
            json!([u64::MAX - 2048, u64::MAX]),
            &["ends inside \"model.embed_tokens.weight\""],
        ),
        weights(
            "safetensors-overlap",
            |weights| weights.header[NORM]["data_offsets"] = json!([2044, 2172]),
            &["the data_offsets of \"model.norm.weight\" is 2044, expected 2048"],
        ),
        weights(
            "safetensors-same-place",
            |weights| weights.header[NORM]["data_offsets"] = json!([0, 128]),
            &["the data_offsets of", "where the tensor before it ends"],
        ),
        weights(
            "safetensors-hole",
            |weights| drop(weights.header.remove(NORM)),
            &["is 2176, expected 2048, where the tensor before it ends"],
        ),
    ]
}
