//! Identical ids to the reference on more than a megabyte of code in ten languages and random Unicode.

mod common;

use common::corpus::{self, CODE_CHUNKS};
use common::{fnv, gguf_tokenizer, golden, json_tokenizer};
use flint_text::{Detokenizer, Tokenizer};
use std::collections::HashMap;

type Digests = HashMap<String, Vec<String>>;

fn digests() -> Digests {
    serde_json::from_slice(&std::fs::read(golden("ids.json")).unwrap()).unwrap()
}

#[test]
fn the_corpus_is_the_one_the_reference_saw() {
    let made: Vec<String> = corpus::chunks().map(|chunk| fnv(chunk.chars().map(|c| c as u32))).collect();
    assert_eq!(made, digests()["corpus"]);
    let code: usize = corpus::chunks().take(CODE_CHUNKS as usize).map(|chunk| chunk.len()).sum();
    assert!(code >= 1 << 20, "{code} bytes of code");
}

fn check(name: &str, tokenizer: &Tokenizer) {
    let expected = &digests()[name];
    let mut wrong = Vec::new();
    for (at, (chunk, expected)) in corpus::chunks().zip(expected).enumerate() {
        let mut ids = Vec::new();
        tokenizer.encode_text(&chunk, &mut ids).unwrap();
        if fnv(ids.iter().copied()) != *expected {
            wrong.push(at);
        }
        check_detokenizer(name, tokenizer, &ids);
    }
    assert!(wrong.is_empty(), "{name}: other ids than the reference in the chunks {wrong:?}");
}

/// Deltas are whole characters, and together they are the whole.
fn check_detokenizer(name: &str, tokenizer: &Tokenizer, ids: &[u32]) {
    let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.token_bytes(id)).copied().collect();
    let mut detokenizer = Detokenizer::new();
    let mut text = String::new();
    for &id in ids {
        text.push_str(detokenizer.push(tokenizer, id));
    }
    text.push_str(detokenizer.finish());
    assert!(text == String::from_utf8_lossy(&bytes), "{name}: the deltas are not the whole");
}

#[test]
fn smollm2_from_gguf() {
    check("smollm2-135m", &gguf_tokenizer("smollm2-135m").tokenizer);
}

#[test]
fn qwen2_5_coder_from_gguf() {
    check("qwen2.5-coder-1.5b", &gguf_tokenizer("qwen2.5-coder-1.5b").tokenizer);
}

#[test]
fn qwen2_5_from_json() {
    check("qwen2.5", &json_tokenizer("qwen2.5"));
}

#[test]
fn qwen3_from_json() {
    check("qwen3", &json_tokenizer("qwen3"));
}

#[test]
fn gpt_oss_from_json() {
    check("gpt-oss", &json_tokenizer("gpt-oss"));
}

#[test]
fn llama3_1_from_json() {
    check("llama3.1", &json_tokenizer("llama3.1"));
}
