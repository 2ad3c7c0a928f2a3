//! Tiny valid models of every architecture, as GGUF and as folders: what the bad files are made from.
#![allow(dead_code, unreachable_pub)] // shared by test crates, each of which uses its own part

use super::folder_writer::{Files, FolderWriter, SafetensorsWriter};
use super::gguf_writer::{GgufWriter, Item};
use flint_engine::quant::{Format, quantize_row};
use serde_json::{Value, json};

pub const HIDDEN: usize = 32;
pub const HEADS: usize = 2;
pub const KV_HEADS: usize = 1;
pub const HEAD_DIM: usize = 16;
pub const FFN: usize = 64;
pub const EXPERTS: usize = 2;
pub const VOCAB: usize = 16;
pub const CONTEXT: usize = 128;

pub const ARCHS: [&str; 5] = ["llama", "qwen2", "qwen3", "qwen3moe", "gpt-oss"];

/// Different values for different names, between -1 and 1.
pub fn values(name: &str, len: usize) -> Vec<f32> {
    let seed: usize = name.bytes().map(usize::from).sum();
    (0..len).map(|i| ((i * 37 + seed * 11) % 199) as f32 / 100.0 - 0.99).collect()
}

pub fn bytes(values: &[f32], format: Format) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(quantize_row(format, values, &mut out));
    out
}

/// The tensors of one layer and around it, by GGUF name: (name, shape, is a matrix).
pub fn tensors(arch: &str) -> Vec<(String, Vec<usize>, bool)> {
    let (q, kv) = (HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM);
    let mut list = vec![
        ("token_embd.weight".to_string(), vec![VOCAB, HIDDEN], true),
        ("output_norm.weight".into(), vec![HIDDEN], false),
    ];
    let mut layer = |name: &str, shape: &[usize], matrix| {
        list.push((format!("blk.0.{name}"), shape.to_vec(), matrix));
    };
    layer("attn_norm.weight", &[HIDDEN], false);
    layer("attn_q.weight", &[q, HIDDEN], true);
    layer("attn_k.weight", &[kv, HIDDEN], true);
    layer("attn_v.weight", &[kv, HIDDEN], true);
    layer("attn_output.weight", &[HIDDEN, q], true);
    layer(if arch == "gpt-oss" { "post_attention_norm.weight" } else { "ffn_norm.weight" }, &[HIDDEN], false);
    if matches!(arch, "qwen2" | "gpt-oss") {
        layer("attn_q.bias", &[q], false);
        layer("attn_k.bias", &[kv], false);
        layer("attn_v.bias", &[kv], false);
    }
    if matches!(arch, "qwen3" | "qwen3moe") {
        layer("attn_q_norm.weight", &[HEAD_DIM], false);
        layer("attn_k_norm.weight", &[HEAD_DIM], false);
    }
    if arch == "gpt-oss" {
        layer("attn_output.bias", &[HIDDEN], false);
        layer("attn_sinks.weight", &[HEADS], false);
        layer("ffn_gate_inp.bias", &[EXPERTS], false);
        layer("ffn_gate_exps.bias", &[EXPERTS, FFN], false);
        layer("ffn_up_exps.bias", &[EXPERTS, FFN], false);
        layer("ffn_down_exps.bias", &[EXPERTS, HIDDEN], false);
    }
    if matches!(arch, "qwen3moe" | "gpt-oss") {
        layer("ffn_gate_inp.weight", &[EXPERTS, HIDDEN], true);
        layer("ffn_gate_exps.weight", &[EXPERTS, FFN, HIDDEN], true);
        layer("ffn_up_exps.weight", &[EXPERTS, FFN, HIDDEN], true);
        layer("ffn_down_exps.weight", &[EXPERTS, HIDDEN, FFN], true);
    } else {
        layer("ffn_gate.weight", &[FFN, HIDDEN], true);
        layer("ffn_up.weight", &[FFN, HIDDEN], true);
        layer("ffn_down.weight", &[HIDDEN, FFN], true);
    }
    list
}

pub fn gguf(arch: &str) -> GgufWriter {
    gguf_in(arch, Format::Q4_0)
}

/// A model whose matrices are in `matrices`.
pub fn gguf_in(arch: &str, matrices: Format) -> GgufWriter {
    let mut file = GgufWriter::new();
    file.set("general.architecture", Item::text(arch));
    configure(&mut file, arch);
    vocabulary(&mut file);
    for (name, shape, matrix) in tensors(arch) {
        let format = if matrix { matrices } else { Format::F32 };
        let values = values(&name, shape.iter().product());
        file.add(&name, &shape, format, bytes(&values, format));
    }
    file
}

fn configure(file: &mut GgufWriter, arch: &str) {
    let mut number = |name: &str, value: usize| file.set(&format!("{arch}.{name}"), Item::u32(value as u32));
    number("block_count", 1);
    number("context_length", CONTEXT);
    number("embedding_length", HIDDEN);
    number("feed_forward_length", FFN);
    number("attention.head_count", HEADS);
    number("attention.head_count_kv", KV_HEADS);
    number("attention.key_length", HEAD_DIM);
    if matches!(arch, "qwen3moe" | "gpt-oss") {
        number("expert_count", EXPERTS);
        number("expert_used_count", 1);
        number("expert_feed_forward_length", FFN);
    }
    if arch == "gpt-oss" {
        number("attention.sliding_window", 8);
        number("rope.scaling.original_context_length", 32);
        file.set("gpt-oss.rope.scaling.type", Item::text("yarn"));
        file.set("gpt-oss.rope.scaling.factor", Item::f32(4.0));
    }
    file.set(&format!("{arch}.rope.freq_base"), Item::f32(10_000.0));
    file.set(&format!("{arch}.attention.layer_norm_rms_epsilon"), Item::f32(1e-5));
}

fn vocabulary(file: &mut GgufWriter) {
    let tokens: Vec<String> = (0..VOCAB).map(|i| char::from(b'a' + i as u8).to_string()).collect();
    file.set("tokenizer.ggml.model", Item::text("gpt2"));
    file.set("tokenizer.ggml.pre", Item::text("qwen2"));
    file.set("tokenizer.ggml.tokens", Item::texts(&tokens));
    file.set("tokenizer.ggml.token_type", Item::i32s(&[1; VOCAB]));
    file.set("tokenizer.ggml.merges", Item::texts(&["a b", "é c"]));
    file.set("tokenizer.ggml.bos_token_id", Item::u32(0));
    file.set("tokenizer.ggml.eos_token_id", Item::u32(1));
    file.set("tokenizer.ggml.add_bos_token", Item::bool(false));
    file.set("tokenizer.chat_template", Item::text("{{ messages }}"));
}

/// A folder of the architecture in F32.
pub fn folder(arch: &str) -> FolderWriter {
    let mut weights = SafetensorsWriter::default();
    for (name, shape, _) in tensors(arch) {
        let data = values(&name, shape.iter().product());
        match (arch, name.as_str()) {
            ("gpt-oss", name) if name.contains("_exps") => (),
            ("qwen3moe", name) if name.contains("_exps") => add_experts(&mut weights, name, &shape, &data),
            _ => weights.add(&hf_name(arch, &name), "F32", &shape, &bytes(&data, Format::F32)),
        }
    }
    if arch == "gpt-oss" {
        add_fused(&mut weights);
    }
    FolderWriter { config: config(arch), weights, others: tokenizer_files() }
}

fn tokenizer_files() -> Files {
    let files = [
        ("tokenizer.json", "{}"),
        ("tokenizer_config.json", r#"{"add_bos_token": false, "chat_template": "{{ messages }}"}"#),
        ("generation_config.json", r#"{"bos_token_id": 0, "eos_token_id": [1, 2]}"#),
    ];
    files.into_iter().map(|(name, text)| (name.to_string(), text.as_bytes().to_vec())).collect()
}

fn hf_name(arch: &str, name: &str) -> String {
    let Some(name) = name.strip_prefix("blk.0.") else {
        return if name == "token_embd.weight" {
            "model.embed_tokens.weight".into()
        } else {
            "model.norm.weight".into()
        };
    };
    if name == "attn_sinks.weight" {
        return "model.layers.0.self_attn.sinks".into();
    }
    let (module, parameter) = name.split_once('.').expect("a dot");
    let module = match module {
        "attn_norm" => "input_layernorm",
        "ffn_norm" | "post_attention_norm" => "post_attention_layernorm",
        "attn_q" => "self_attn.q_proj",
        "attn_k" => "self_attn.k_proj",
        "attn_v" => "self_attn.v_proj",
        "attn_output" => "self_attn.o_proj",
        "attn_q_norm" => "self_attn.q_norm",
        "attn_k_norm" => "self_attn.k_norm",
        "ffn_gate_inp" if arch == "gpt-oss" => "mlp.router",
        "ffn_gate_inp" => "mlp.gate",
        "ffn_gate" => "mlp.gate_proj",
        "ffn_up" => "mlp.up_proj",
        "ffn_down" => "mlp.down_proj",
        other => panic!("{other}"),
    };
    format!("model.layers.0.{module}.{parameter}")
}

/// One tensor for each expert.
fn add_experts(weights: &mut SafetensorsWriter, name: &str, shape: &[usize], data: &[f32]) {
    let part = name.trim_start_matches("blk.0.ffn_").trim_end_matches("_exps.weight");
    for (expert, data) in data.chunks_exact(shape[1] * shape[2]).enumerate() {
        let name = format!("model.layers.0.mlp.experts.{expert}.{part}_proj.weight");
        weights.add(&name, "F32", &shape[1..], &bytes(data, Format::F32));
    }
}

/// The values of one of gpt-oss's expert tensors, as the GGUF file has them.
pub fn expert_values(part: &str) -> Vec<f32> {
    values(&format!("blk.0.ffn_{part}_exps.weight"), EXPERTS * FFN * HIDDEN)
}

fn expert_biases(part: &str, len: usize) -> Vec<f32> {
    values(&format!("blk.0.ffn_{part}_exps.bias"), EXPERTS * len)
}

/// gpt-oss unquantised: gate and up take turns, and matrices are (in, out).
fn add_fused(weights: &mut SafetensorsWriter) {
    let (gate, up, down) = (expert_values("gate"), expert_values("up"), expert_values("down"));
    let (gate_bias, up_bias) = (expert_biases("gate", FFN), expert_biases("up", FFN));
    let mut wide = Vec::new();
    let mut turned = Vec::new();
    for expert in 0..EXPERTS {
        for col in 0..HIDDEN {
            let at = |row: usize| (expert * FFN + row) * HIDDEN + col;
            wide.extend((0..FFN).flat_map(|row| [gate[at(row)], up[at(row)]]));
        }
        for col in 0..FFN {
            turned.extend((0..HIDDEN).map(|row| down[(expert * HIDDEN + row) * FFN + col]));
        }
    }
    let bias: Vec<f32> = gate_bias.iter().zip(&up_bias).flat_map(|(gate, up)| [*gate, *up]).collect();
    let mut add = |name: &str, shape: &[usize], data: &[f32]| {
        let name = format!("model.layers.0.mlp.experts.{name}");
        weights.add(&name, "F32", shape, &bytes(data, Format::F32));
    };
    add("gate_up_proj", &[EXPERTS, HIDDEN, 2 * FFN], &wide);
    add("gate_up_proj_bias", &[EXPERTS, 2 * FFN], &bias);
    add("down_proj", &[EXPERTS, FFN, HIDDEN], &turned);
    add("down_proj_bias", &[EXPERTS, HIDDEN], &expert_biases("down", HIDDEN));
}

fn config(arch: &str) -> Value {
    let mut config = json!({
        "model_type": match arch { "qwen3moe" => "qwen3_moe", "gpt-oss" => "gpt_oss", other => other },
        "num_hidden_layers": 1,
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCAB,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "rope_theta": 10000.0,
        "tie_word_embeddings": true,
    });
    if matches!(arch, "qwen3moe" | "gpt-oss") {
        config["num_local_experts"] = json!(EXPERTS);
        config["num_experts_per_tok"] = json!(1);
        config["moe_intermediate_size"] = json!(FFN);
        config["norm_topk_prob"] = json!(true);
    }
    if arch == "gpt-oss" {
        config["sliding_window"] = json!(8);
        config["layer_types"] = json!(["sliding_attention"]);
        config["rope_scaling"] = json!({
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "truncate": false
        });
    }
    config
}
