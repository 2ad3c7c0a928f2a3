//! GGUF files that are sound as files, but whose tensors, parts or vocabulary are not those of a model.

use super::folder_writer::Files;
use super::gguf_writer::{GgufWriter, Item};
use super::{Bad, changed, tiny, without};
use flint_engine::quant::Format;

pub(crate) fn cases() -> Vec<Bad> {
    let mut cases = absences();
    cases.extend(shapes());
    cases.extend(formats());
    cases.extend(splits());
    cases.extend(vocabularies());
    cases.extend(vocabulary_lists());
    cases
}

/// A tensor of the tiny model replaced by one of another shape.
fn reshaped(name: &'static str, arch: &str, tensor: &str, shape: &[usize], expected: &[&'static str]) -> Bad {
    let change = |file: &mut GgufWriter| {
        let format = Format::from_ggml_type(file.tensor(tensor).format).expect("a format");
        file.remove_tensor(tensor);
        let values = tiny::values(tensor, shape.iter().product());
        file.add(tensor, shape, format, tiny::bytes(&values, format));
    };
    changed(name, arch, change, expected)
}

fn lacking(name: &'static str, arch: &str, tensor: &str, expected: &[&'static str]) -> Bad {
    changed(name, arch, |file| file.remove_tensor(tensor), expected)
}

fn absences() -> Vec<Bad> {
    vec![
        lacking("table-no-embedding", "llama", "token_embd.weight", &["\"token_embd.weight\" is missing"]),
        lacking(
            "table-no-norm",
            "llama",
            "output_norm.weight",
            &["\"output_norm.weight\" is missing, expected a tensor of [32]"],
        ),
        lacking(
            "table-qwen2-no-bias",
            "qwen2",
            "blk.0.attn_k.bias",
            &["\"blk.0.attn_k.bias\" is missing, expected a tensor of [16]"],
        ),
        lacking(
            "table-qwen3-no-norm",
            "qwen3",
            "blk.0.attn_q_norm.weight",
            &["\"blk.0.attn_q_norm.weight\" is missing"],
        ),
        lacking(
            "table-qwen3moe-no-router",
            "qwen3moe",
            "blk.0.ffn_gate_inp.weight",
            &["\"blk.0.ffn_gate_inp.weight\" is missing"],
        ),
        lacking(
            "table-gpt-oss-no-sinks",
            "gpt-oss",
            "blk.0.attn_sinks.weight",
            &["\"blk.0.attn_sinks.weight\" is missing, expected a tensor of [2]"],
        ),
        lacking(
            "table-gpt-oss-no-norm",
            "gpt-oss",
            "blk.0.post_attention_norm.weight",
            &["\"blk.0.ffn_norm.weight\" is missing"],
        ),
    ]
}

fn shapes() -> Vec<Bad> {
    vec![
        reshaped(
            "table-llama-q",
            "llama",
            "blk.0.attn_q.weight",
            &[64, 32],
            &["the shape of \"blk.0.attn_q.weight\" is [64, 32], expected [32, 32]"],
        ),
        reshaped(
            "table-llama-down-turned",
            "llama",
            "blk.0.ffn_down.weight",
            &[64, 32],
            &["the shape of \"blk.0.ffn_down.weight\" is [64, 32], expected [32, 64]"],
        ),
        reshaped(
            "table-llama-embedding",
            "llama",
            "token_embd.weight",
            &[16, 64],
            &["the shape of \"token_embd.weight\" is [16, 64], expected [16, 32]"],
        ),
        reshaped(
            "table-llama-norm",
            "llama",
            "blk.0.ffn_norm.weight",
            &[31],
            &["the shape of \"blk.0.ffn_norm.weight\" is [31], expected [32]"],
        ),
        reshaped(
            "table-qwen2-bias",
            "qwen2",
            "blk.0.attn_q.bias",
            &[16],
            &["the shape of \"blk.0.attn_q.bias\" is [16], expected [32]"],
        ),
        reshaped("table-qwen3-norm", "qwen3", "blk.0.attn_k_norm.weight", &[32], &["is [32], expected [16]"]),
        reshaped(
            "table-qwen3moe-experts",
            "qwen3moe",
            "blk.0.ffn_up_exps.weight",
            &[3, 64, 32],
            &["is [3, 64, 32], expected [2, 64, 32]"],
        ),
        reshaped(
            "table-qwen3moe-flat",
            "qwen3moe",
            "blk.0.ffn_up_exps.weight",
            &[128, 32],
            &["is [128, 32], expected [2, 64, 32]"],
        ),
        reshaped(
            "table-gpt-oss-bias",
            "gpt-oss",
            "blk.0.ffn_gate_exps.bias",
            &[2, 32],
            &["is [2, 32], expected [2, 64]"],
        ),
    ]
}

fn formats() -> Vec<Bad> {
    let zeros = |shape: &[usize], format: Format| vec![0; format.row_bytes(shape.iter().product())];
    vec![
        changed(
            "table-output",
            "llama",
            |file| file.add("output.weight", &[8, 32], Format::F32, zeros(&[8, 32], Format::F32)),
            &["the shape of \"output.weight\" is [8, 32], expected [16, 32]"],
        ),
        changed(
            "table-norm-quantised",
            "llama",
            |file| {
                file.tensor("output_norm.weight").format = 2;
                file.tensor("output_norm.weight").data = vec![0; 18];
            },
            &["the format of \"output_norm.weight\" is Q4_0, expected F32, F16 or BF16"],
        ),
        changed(
            "table-stranger",
            "llama",
            |file| file.add("blk.0.attn_q.bias", &[32], Format::F32, vec![0; 128]),
            &["\"blk.0.attn_q.bias\" is in the file, expected only tensors of the llama architecture"],
        ),
    ]
}

/// Two files of a split model, the second of which is changed.
fn split(
    name: &'static str,
    open: &'static str,
    change: impl Fn(&mut GgufWriter, &mut GgufWriter),
    expected: &[&'static str],
) -> Bad {
    let mut first = tiny::gguf("llama");
    let mut second = GgufWriter::new();
    second.tensors = first.tensors.split_off(5);
    for (number, file) in [&mut first, &mut second].into_iter().enumerate() {
        file.set("split.no", Item::u32(number as u32));
        file.set("split.count", Item::u32(2));
        file.set("split.tensors.count", Item::i32(11));
    }
    change(&mut first, &mut second);
    let mut files = Files::from([("m-00001-of-00002.gguf".into(), first.write())]);
    if !second.tensors.is_empty() {
        files.insert("m-00002-of-00002.gguf".into(), second.write());
    }
    let copy = first.write();
    files.insert("odd.gguf".into(), copy);
    Bad { name, files, open, expected: expected.to_vec() }
}

fn splits() -> Vec<Bad> {
    const FIRST: &str = "m-00001-of-00002.gguf";
    vec![
        split(
            "split-file-missing",
            FIRST,
            |_, second| second.tensors.clear(),
            &["m-00002-of-00002.gguf: cannot be read"],
        ),
        split(
            "split-other-number",
            FIRST,
            |_, second| second.set("split.no", Item::u32(5)),
            &["m-00002-of-00002.gguf: \"split.no\" is 5, expected 1"],
        ),
        split(
            "split-other-count",
            FIRST,
            |_, second| second.set("split.count", Item::u32(3)),
            &["m-00002-of-00002.gguf: \"split.count\" is 3, expected 2"],
        ),
        split(
            "split-not-a-part",
            FIRST,
            |_, second| second.values.clear(),
            &["m-00002-of-00002.gguf: \"split.no\" is missing"],
        ),
        split(
            "split-tensor-twice",
            FIRST,
            |first, second| second.tensors.push(first.tensors[0].clone()),
            &["\"token_embd.weight\" is there twice"],
        ),
        split(
            "split-tensor-lost",
            FIRST,
            |_, second| drop(second.tensors.pop()),
            &["the number of tensors in all files is 10, expected 11"],
        ),
        split(
            "split-count-huge",
            FIRST,
            |first, _| first.set("split.count", Item::u32(65_535)),
            &["\"split.count\" is 65535, expected at most 1024"],
        ),
        split(
            "split-second-opened",
            "m-00002-of-00002.gguf",
            |_, _| (),
            &["the file's name is \"m-00002-of-00002.gguf\", expected …-00001-of-00002.gguf"],
        ),
        split(
            "split-renamed",
            "odd.gguf",
            |_, _| (),
            &["the file's name is \"odd.gguf\", expected …-00001-of-00002.gguf, the first of 2"],
        ),
    ]
}

/// A key of the vocabulary set to something else.
fn set(name: &'static str, key: &str, item: Item, expected: &[&'static str]) -> Bad {
    changed(name, "llama", |file| file.set(&format!("tokenizer.{key}"), item.clone()), expected)
}

fn vocabularies() -> Vec<Bad> {
    let many = vec!["t"; tiny::VOCAB + 1];
    vec![
        without(
            "vocabulary-no-model",
            "llama",
            "tokenizer.ggml.model",
            &["\"tokenizer.ggml.model\" is missing"],
        ),
        without(
            "vocabulary-no-tokens",
            "llama",
            "tokenizer.ggml.tokens",
            &["\"tokenizer.ggml.tokens\" is missing, expected an array of strings"],
        ),
        set(
            "vocabulary-tokens-numbers",
            "ggml.tokens",
            Item::i32s(&[1]),
            &["is an array of I32, expected an array of strings"],
        ),
        set(
            "vocabulary-empty",
            "ggml.tokens",
            Item::texts::<&str>(&[]),
            &["\"tokenizer.ggml.tokens\" is 0 tokens, expected 1 to 16"],
        ),
        set(
            "vocabulary-too-long",
            "ggml.tokens",
            Item::texts(&many),
            &["is 17 tokens, expected 1 to 16, the rows of the embedding"],
        ),
    ]
}

fn vocabulary_lists() -> Vec<Bad> {
    vec![
        set(
            "vocabulary-types-short",
            "ggml.token_type",
            Item::i32s(&[1; 3]),
            &["\"tokenizer.ggml.token_type\" is 3 long, expected 16"],
        ),
        set(
            "vocabulary-type-9",
            "ggml.token_type",
            Item::i32s(&[9; 16]),
            &["\"tokenizer.ggml.token_type\" is 9, expected types from 0 to 6"],
        ),
        set(
            "vocabulary-scores-nan",
            "ggml.scores",
            Item::f32s(&[f32::NAN; 16]),
            &["\"tokenizer.ggml.scores\" is NaN"],
        ),
        set(
            "vocabulary-merge",
            "ggml.merges",
            Item::texts(&["ab"]),
            &["\"tokenizer.ggml.merges\" is \"ab\", expected two tokens"],
        ),
        set(
            "vocabulary-eos",
            "ggml.eos_token_id",
            Item::u32(16),
            &["\"tokenizer.ggml.eos_token_id\" is 16, expected a token below 16"],
        ),
        set(
            "vocabulary-bos-text",
            "ggml.bos_token_id",
            Item::text("<s>"),
            &["\"tokenizer.ggml.bos_token_id\" is a string"],
        ),
        set(
            "vocabulary-flag",
            "ggml.add_bos_token",
            Item::u32(1),
            &["\"tokenizer.ggml.add_bos_token\" is 1, expected a boolean"],
        ),
    ]
}
