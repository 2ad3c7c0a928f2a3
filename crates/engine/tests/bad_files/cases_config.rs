//! GGUF files that are sound as files, but whose configuration is not.

use super::gguf_writer::{GgufWriter, Item};
use super::{Bad, changed, tiny, without};
use flint_engine::quant::Format;

pub(crate) fn cases() -> Vec<Bad> {
    let mut cases = configurations();
    cases.extend(heads());
    cases.extend(sizes());
    cases.extend(constants());
    cases.extend(mixtures());
    cases.extend(ropes());
    cases.extend(rope_scalings());
    cases
}

/// A key of the architecture set to something else.
fn key(name: &'static str, arch: &'static str, key: &str, item: Item, expected: &[&'static str]) -> Bad {
    changed(name, arch, |file| file.set(&format!("{arch}.{key}"), item.clone()), expected)
}

fn configurations() -> Vec<Bad> {
    let number = |value: u32| Item::u32(value);
    vec![
        without(
            "model-no-architecture",
            "llama",
            "general.architecture",
            &["\"general.architecture\" is missing"],
        ),
        changed(
            "model-other-architecture",
            "llama",
            |file| file.set("general.architecture", Item::text("mamba")),
            &[
                "is \"mamba\", expected one of llama, qwen2, qwen3, qwen3moe, gpt-oss",
                "choose another file or model",
            ],
        ),
        changed(
            "model-architecture-number",
            "llama",
            |file| file.set("general.architecture", Item::u32(7)),
            &["\"general.architecture\" is 7, expected a string"],
        ),
        without(
            "model-no-layers",
            "llama",
            "llama.block_count",
            &["\"llama.block_count\" is missing, expected a number from 1 to 1024"],
        ),
        key(
            "model-0-layers",
            "llama",
            "block_count",
            number(0),
            &["\"llama.block_count\" is 0, expected 1 to 1024"],
        ),
        key(
            "model-many-layers",
            "llama",
            "block_count",
            number(u32::MAX),
            &["is 4294967295, expected 1 to 1024"],
        ),
        key(
            "model-negative-layers",
            "llama",
            "block_count",
            Item::i32(-1),
            &["\"llama.block_count\" is -1, expected a whole number"],
        ),
        key(
            "model-layers-text",
            "llama",
            "block_count",
            Item::text("1"),
            &["\"llama.block_count\" is a string"],
        ),
        key(
            "model-one-layer-more",
            "llama",
            "block_count",
            number(2),
            &["\"blk.1.attn_norm.weight\" is missing, expected a tensor of [32]"],
        ),
    ]
}

fn heads() -> Vec<Bad> {
    let number = |value: u32| Item::u32(value);
    vec![
        key(
            "model-0-heads",
            "qwen2",
            "attention.head_count",
            number(0),
            &["\"qwen2.attention.head_count\" is 0"],
        ),
        key("model-heads-by-layer", "qwen2", "attention.head_count", Item::i32s(&[2]), &["an array of I32"]),
        key(
            "model-kv-heads",
            "qwen3",
            "attention.head_count_kv",
            number(3),
            &["\"qwen3.attention.head_count_kv\" is 3, expected a divisor of 2"],
        ),
        key(
            "model-odd-heads",
            "llama",
            "attention.key_length",
            number(15),
            &["\"llama.attention.key_length\" is 15, expected an even number"],
        ),
        key(
            "model-wide-heads",
            "llama",
            "attention.key_length",
            number(4096),
            &["is 4096, expected 1 to 1024"],
        ),
        key(
            "model-value-heads",
            "llama",
            "attention.value_length",
            number(8),
            &["\"llama.attention.value_length\" is 8, expected 16"],
        ),
        changed(
            "model-heads-uneven",
            "llama",
            |file| {
                file.remove("llama.attention.key_length");
                file.set("llama.attention.head_count", Item::u32(3));
                file.set("llama.attention.head_count_kv", Item::u32(3));
            },
            &["\"llama.embedding_length\" is 32, expected a multiple of 3"],
        ),
    ]
}

fn sizes() -> Vec<Bad> {
    let number = |value: u32| Item::u32(value);
    vec![
        key("model-0-hidden", "llama", "embedding_length", number(0), &["\"llama.embedding_length\" is 0"]),
        key(
            "model-huge-hidden",
            "llama",
            "embedding_length",
            Item::u64(u64::MAX),
            &["18446744073709551615, expected 1 to 65536"],
        ),
        key(
            "model-0-ffn",
            "llama",
            "feed_forward_length",
            number(0),
            &["\"llama.feed_forward_length\" is 0"],
        ),
        key("model-0-context", "llama", "context_length", number(0), &["\"llama.context_length\" is 0"]),
    ]
}

fn constants() -> Vec<Bad> {
    let number = |value: u32| Item::u32(value);
    vec![
        key(
            "model-eps-nan",
            "llama",
            "attention.layer_norm_rms_epsilon",
            Item::f32(f32::NAN),
            &["epsilon\" is NaN, expected more than 0"],
        ),
        key(
            "model-eps-0",
            "llama",
            "attention.layer_norm_rms_epsilon",
            Item::f32(0.0),
            &["epsilon\" is 0, expected more than 0"],
        ),
        key(
            "model-eps-negative",
            "llama",
            "attention.layer_norm_rms_epsilon",
            Item::f32(-1e-5),
            &["expected more than 0"],
        ),
        without("model-no-eps", "llama", "llama.attention.layer_norm_rms_epsilon", &["epsilon\" is missing"]),
        key("model-vocab", "llama", "vocab_size", number(17), &["\"llama.vocab_size\" is 17, expected 16"]),
    ]
}

fn mixtures() -> Vec<Bad> {
    let number = |value: u32| Item::u32(value);
    vec![
        key(
            "model-mixtral",
            "llama",
            "expert_count",
            number(8),
            &["\"llama.expert_count\" is 8, expected 0"],
        ),
        key(
            "model-window",
            "llama",
            "attention.sliding_window",
            number(4096),
            &["\"llama.attention.sliding_window\" is 4096, expected 0"],
        ),
        without(
            "model-no-experts",
            "qwen3moe",
            "qwen3moe.expert_count",
            &["\"qwen3moe.expert_count\" is missing"],
        ),
        key(
            "model-used-experts",
            "qwen3moe",
            "expert_used_count",
            number(3),
            &["\"qwen3moe.expert_used_count\" is 3, expected 1 to 2"],
        ),
        without(
            "model-no-window",
            "gpt-oss",
            "gpt-oss.attention.sliding_window",
            &["\"gpt-oss.attention.sliding_window\" is missing"],
        ),
    ]
}

/// Adds `len` equal rope factors.
fn factors(value: f32, len: usize) -> impl Fn(&mut GgufWriter) {
    move |file| {
        file.add("rope_freqs.weight", &[len], Format::F32, tiny::bytes(&vec![value; len], Format::F32));
    }
}

fn ropes() -> Vec<Bad> {
    vec![
        key(
            "rope-base-0",
            "llama",
            "rope.freq_base",
            Item::f32(0.0),
            &["\"llama.rope.freq_base\" is 0, expected more than 0"],
        ),
        key(
            "rope-base-1",
            "llama",
            "rope.freq_base",
            Item::f32(1.0),
            &["\"llama.rope.freq_base\" is 1, expected more than 1"],
        ),
        key("rope-base-infinite", "llama", "rope.freq_base", Item::f32(f32::INFINITY), &["is inf, expected"]),
        key(
            "rope-partial",
            "llama",
            "rope.dimension_count",
            Item::u32(8),
            &["\"llama.rope.dimension_count\" is 8, expected 16"],
        ),
    ]
}

fn rope_scalings() -> Vec<Bad> {
    vec![
        key(
            "rope-other-scaling",
            "llama",
            "rope.scaling.type",
            Item::text("longrope"),
            &["is \"longrope\", expected none, linear or yarn"],
        ),
        key(
            "rope-no-factor",
            "llama",
            "rope.scaling.type",
            Item::text("linear"),
            &["\"llama.rope.scaling.factor\" is missing"],
        ),
        key(
            "rope-factor-0",
            "gpt-oss",
            "rope.scaling.factor",
            Item::f32(0.0),
            &["\"gpt-oss.rope.scaling.factor\" is 0"],
        ),
        without(
            "rope-no-context",
            "gpt-oss",
            "gpt-oss.rope.scaling.original_context_length",
            &["original_context_length\" is missing"],
        ),
        changed(
            "rope-factors-0",
            "llama",
            factors(0.0, 8),
            &["\"rope_freqs.weight\" is 0, expected factors above 0"],
        ),
        changed("rope-factors-nan", "llama", factors(f32::NAN, 8), &["\"rope_freqs.weight\" is NaN"]),
        changed(
            "rope-factors-short",
            "llama",
            factors(1.0, 7),
            &["\"rope_freqs.weight\" is [7] in F32, expected [8] in F32"],
        ),
    ]
}
