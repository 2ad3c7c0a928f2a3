//! Folders whose files are sound, but that are no model.

use super::folder_writer::{FolderWriter, SafetensorsWriter};
use super::tiny::{EXPERTS, FFN, HIDDEN};
use super::{Bad, folder};
use serde_json::{Value, json};

const INDEX: &str = "model.safetensors.index.json";

pub(crate) fn cases() -> Vec<Bad> {
    let mut cases = files();
    cases.extend(tokenizers());
    cases.extend(configurations());
    cases.extend(settings());
    cases.extend(layers());
    cases.extend(quantisations());
    cases.extend(ropes());
    cases.extend(indices());
    cases.extend(weights());
    cases.extend(fp8_weights());
    cases.extend(experts());
    cases.extend(fused_experts());
    cases
}

/// The tiny folder with a file replaced.
fn text(name: &'static str, file: &str, text: &[u8], expected: &[&'static str]) -> Bad {
    folder(name, "llama", |folder| drop(folder.others.insert(file.into(), text.to_vec())), expected)
}

fn files() -> Vec<Bad> {
    let missing = |name: &'static str, file: &'static str, expected: &[&'static str]| {
        let mut bad = folder(name, "llama", |_| (), expected);
        bad.files.remove(file);
        bad
    };
    vec![
        missing(
            "folder-no-config",
            "config.json",
            &["config.json is missing, expected a file in this folder"],
        ),
        missing("folder-no-weights", "model.safetensors", &["model.safetensors: cannot be read"]),
        missing("folder-no-tokenizer", "tokenizer.json", &["tokenizer.json is missing"]),
        text(
            "folder-config-not-json",
            "config.json",
            b"model",
            &["config.json: the JSON cannot be understood: expected value at line 1"],
        ),
        text(
            "folder-config-list",
            "config.json",
            b"[]",
            &["config.json: the JSON cannot be understood: invalid type: sequence"],
        ),
        text(
            "folder-config-bomb",
            "config.json",
            &b"{\"a\":".repeat(50_000),
            &["config.json: the JSON cannot be understood: recursion limit exceeded"],
        ),
        text(
            "folder-config-nan",
            "config.json",
            b"{\"rms_norm_eps\": NaN}",
            &["config.json: the JSON cannot be understood: expected value"],
        ),
    ]
}

fn tokenizers() -> Vec<Bad> {
    vec![
        text(
            "folder-generation-list",
            "generation_config.json",
            b"[]",
            &["generation_config.json: the JSON cannot be understood: invalid type"],
        ),
        text(
            "folder-eos",
            "generation_config.json",
            b"{\"eos_token_id\": [1, 99]}",
            &["\"eos_token_id\" is 99, expected a token below 16"],
        ),
        text(
            "folder-eos-many",
            "generation_config.json",
            format!("{{\"eos_token_id\": {:?}}}", [1; 65]).as_bytes(),
            &["\"eos_token_id\" is a list of 65, expected at most 64"],
        ),
        text(
            "folder-template",
            "tokenizer_config.json",
            b"{\"chat_template\": 5}",
            &["\"chat_template\" is 5, expected a string"],
        ),
        text(
            "folder-jinja-not-utf8",
            "chat_template.jinja",
            &[0xFF],
            &["chat_template.jinja is invalid utf-8"],
        ),
    ]
}

fn config(name: &'static str, arch: &str, field: &str, value: Value, expected: &[&'static str]) -> Bad {
    folder(name, arch, |folder| folder.config[field] = value.clone(), expected)
}

fn configurations() -> Vec<Bad> {
    vec![
        config(
            "folder-no-type",
            "llama",
            "model_type",
            Value::Null,
            &["config.json: \"model_type\" is missing"],
        ),
        config(
            "folder-other-type",
            "llama",
            "model_type",
            json!("gemma3"),
            &["\"model_type\" is \"gemma3\", expected one of llama, qwen2, qwen3, qwen3_moe, gpt_oss"],
        ),
        config(
            "folder-layers-0",
            "llama",
            "num_hidden_layers",
            json!(0),
            &["\"num_hidden_layers\" is 0, expected 1 to 1024"],
        ),
        config(
            "folder-layers-fraction",
            "llama",
            "num_hidden_layers",
            json!(1.5),
            &["\"num_hidden_layers\" is 1.5, expected a whole number"],
        ),
        config(
            "folder-layers-negative",
            "llama",
            "num_hidden_layers",
            json!(-3),
            &["\"num_hidden_layers\" is -3"],
        ),
        config(
            "folder-hidden-text",
            "llama",
            "hidden_size",
            json!("32"),
            &["\"hidden_size\" is \"32\", expected a whole number"],
        ),
        config(
            "folder-vocab-huge",
            "llama",
            "vocab_size",
            json!(u64::MAX),
            &["\"vocab_size\" is 18446744073709551615, expected 1 to 4194304"],
        ),
    ]
}

fn settings() -> Vec<Bad> {
    vec![
        config(
            "folder-heads-uneven",
            "llama",
            "num_key_value_heads",
            json!(3),
            &["\"num_key_value_heads\" is 3, expected a divisor of 2"],
        ),
        config(
            "folder-eps-0",
            "llama",
            "rms_norm_eps",
            json!(0),
            &["\"rms_norm_eps\" is 0, expected more than 0"],
        ),
        config(
            "folder-eps-large",
            "llama",
            "rms_norm_eps",
            json!(1e30),
            &["\"rms_norm_eps\" is", "at most 1"],
        ),
        config(
            "folder-activation",
            "llama",
            "hidden_act",
            json!("gelu"),
            &["\"hidden_act\" is \"gelu\", expected silu"],
        ),
        config(
            "folder-sliding",
            "qwen2",
            "use_sliding_window",
            json!(true),
            &["\"use_sliding_window\" is true, expected false"],
        ),
        config(
            "folder-layer-types",
            "gpt-oss",
            "layer_types",
            json!(["full_attention"]),
            &["\"layer_types\" of layer 0 is \"full_attention\", expected sliding_attention"],
        ),
        config(
            "folder-layer-types-many",
            "gpt-oss",
            "layer_types",
            json!(["a", "b"]),
            &["\"layer_types\" is a list of 2, expected one for each of 1"],
        ),
    ]
}

fn layers() -> Vec<Bad> {
    vec![
        config(
            "folder-no-window",
            "gpt-oss",
            "sliding_window",
            Value::Null,
            &["\"sliding_window\" is missing"],
        ),
        config("folder-limit", "gpt-oss", "swiglu_limit", json!(9.0), &["\"swiglu_limit\" is 9, expected 7"]),
        config(
            "folder-dense-layers",
            "qwen3moe",
            "mlp_only_layers",
            json!([0]),
            &["\"mlp_only_layers\" is a list of 1, expected an empty list"],
        ),
        config(
            "folder-sparse-step",
            "qwen3moe",
            "decoder_sparse_step",
            json!(2),
            &["\"decoder_sparse_step\" is 2, expected 1"],
        ),
        config(
            "folder-experts-used",
            "qwen3moe",
            "num_experts_per_tok",
            json!(5),
            &["\"num_experts_per_tok\" is 5, expected 1 to 2"],
        ),
    ]
}

fn quantisations() -> Vec<Bad> {
    vec![
        config(
            "folder-quantised-awq",
            "llama",
            "quantization_config",
            json!({"quant_method": "awq"}),
            &["\"quantization_config.quant_method\" is \"awq\", expected fp8 or mxfp4"],
        ),
        config(
            "folder-fp8-no-tile",
            "llama",
            "quantization_config",
            json!({"quant_method": "fp8"}),
            &["\"quantization_config.weight_block_size\" is not there"],
        ),
        config(
            "folder-fp8-tile-0",
            "llama",
            "quantization_config",
            json!({"quant_method": "fp8", "weight_block_size": [0, 128]}),
            &["\"quantization_config.weight_block_size\" is 0, expected 1 to 4096"],
        ),
        config(
            "folder-not-tied",
            "llama",
            "tie_word_embeddings",
            json!(false),
            &["\"lm_head.weight\" is missing, expected a tensor, as \"tie_word_embeddings\" is false"],
        ),
    ]
}

fn ropes() -> Vec<Bad> {
    let rope = |name: &'static str, value: Value, expected: &[&'static str]| {
        config(name, "llama", "rope_parameters", value, expected)
    };
    vec![
        rope("folder-rope-text", json!("yarn"), &["\"rope_parameters\" is \"yarn\", expected an object"]),
        rope(
            "folder-rope-other",
            json!({"rope_type": "dynamic"}),
            &["\"rope_parameters.rope_type\" is \"dynamic\", expected default, linear, llama3 or yarn"],
        ),
        rope(
            "folder-rope-by-layer",
            json!({"full_attention": {"rope_type": "default"}}),
            &["\"rope_parameters.full_attention\" is an object, expected one set for all layers"],
        ),
        rope("folder-rope-theta", json!({"rope_theta": 0}), &["\"rope_parameters.rope_theta\" is 0"]),
        rope(
            "folder-rope-no-factor",
            json!({"rope_type": "linear"}),
            &["\"rope_parameters.factor\" is missing"],
        ),
        rope(
            "folder-rope-tiny-factor",
            json!({"rope_type": "linear", "factor": 1e-300}),
            &["a rotary frequency is inf"],
        ),
        rope(
            "folder-rope-partial",
            json!({"partial_rotary_factor": 0.5}),
            &["\"rope_parameters.partial_rotary_factor\" is 0.5, expected 1"],
        ),
        rope(
            "folder-rope-llama3",
            json!({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4}),
            &["\"rope_parameters.high_freq_factor\" is 4, expected more than low_freq_factor"],
        ),
        config(
            "folder-rope-missing",
            "gpt-oss",
            "rope_scaling",
            Value::Null,
            &["\"rope_scaling\" is missing"],
        ),
    ]
}

/// The tiny folder with an index over its one file.
fn index(name: &'static str, value: Value, expected: &[&'static str]) -> Bad {
    let change = |folder: &mut FolderWriter| {
        folder.others.insert(INDEX.into(), value.to_string().into_bytes());
    };
    folder(name, "llama", change, expected)
}

fn indices() -> Vec<Bad> {
    let naming = |file: &str| json!({"weight_map": {"model.norm.weight": file}});
    let outside = ["expected the name of a .safetensors file in this folder"];
    let mut twice = index(
        "index-tensor-in-two-files",
        json!({"weight_map": {"model.norm.weight": "model.safetensors", "b": "b.safetensors"}}),
        &["model.safetensors: \"model.norm.weight\" is in two files"],
    );
    let mut copy = SafetensorsWriter::default();
    copy.add("model.norm.weight", "U8", &[1], &[0]);
    twice.files.insert("b.safetensors".into(), copy.write());
    let mut same_key = index(
        "index-key-twice",
        json!({}),
        &["index.json: the JSON cannot be understood: \"a\" there twice"],
    );
    same_key.files.insert(
        INDEX.into(),
        b"{\"weight_map\": {\"a\": \"a.safetensors\", \"a\": \"b.safetensors\"}}".to_vec(),
    );
    vec![
        twice,
        same_key,
        index("index-parent", naming("../model.safetensors"), &outside),
        index("index-absolute", naming("/etc/model.safetensors"), &outside),
        index("index-backslash", naming("..\\model.safetensors"), &outside),
        index("index-other-file", naming("config.json"), &outside),
        index("index-hidden-file", naming(".safetensors"), &outside),
        index("index-file-missing", naming("gone.safetensors"), &["gone.safetensors: cannot be read"]),
        index(
            "index-tensor-missing",
            json!({"weight_map": {"ghost": "model.safetensors"}}),
            &["model.safetensors: \"ghost\" is missing, expected in this file"],
        ),
        index("index-no-map", json!({}), &["the JSON cannot be understood: missing field `weight_map`"]),
        index("index-empty-map", json!({"weight_map": {}}), &["the number of files in \"weight_map\" is 0"]),
        index(
            "index-map-of-numbers",
            json!({"weight_map": {"a": 1}}),
            &["the JSON cannot be understood: invalid type: integer"],
        ),
    ]
}

const Q: &str = "model.layers.0.self_attn.q_proj.weight";

fn replace(folder: &mut FolderWriter, name: &str, dtype: &str, shape: &[usize]) {
    let width = match dtype {
        "F32" => 4,
        "BF16" => 2,
        _ => 1,
    };
    folder.weights.remove(name);
    folder.weights.add(name, dtype, shape, &vec![0; shape.iter().product::<usize>() * width]);
}

fn fp8(folder: &mut FolderWriter) {
    folder.config["quantization_config"] = json!({"quant_method": "fp8", "weight_block_size": [16, 16]});
    replace(folder, Q, "F8_E4M3", &[32, 32]);
}

fn weights() -> Vec<Bad> {
    vec![
        folder(
            "weights-shape",
            "llama",
            |folder| replace(folder, Q, "F32", &[16, 32]),
            &["model.safetensors: the shape of \"blk.0.attn_q.weight\" is [16, 32], expected [32, 32]"],
        ),
        folder(
            "weights-bytes",
            "llama",
            |folder| replace(folder, Q, "U8", &[32, 32]),
            &["the dtype of \"model.layers.0.self_attn.q_proj.weight\" is U8, expected F32, F16 or BF16"],
        ),
        folder(
            "weights-missing",
            "llama",
            |folder| folder.weights.remove(Q),
            &["\"blk.0.attn_q.weight\" is missing"],
        ),
        folder(
            "weights-stranger",
            "llama",
            |folder| folder.weights.add("model.layers.0.self_attn.q_proj.bias", "F32", &[32], &[0; 128]),
            &["\"blk.0.attn_q.bias\" is in the file, expected only tensors of the llama"],
        ),
        folder(
            "weights-stranger-name",
            "llama",
            |folder| folder.weights.add("visual.patch", "F32", &[1], &[0; 4]),
            &["\"visual.patch\" is in the file, expected only tensors of the llama architecture"],
        ),
        folder(
            "weights-layer-too-many",
            "llama",
            |folder| folder.weights.add("model.layers.7.input_layernorm.weight", "F32", &[32], &[0; 128]),
            &["\"blk.7.attn_norm.weight\" is in the file"],
        ),
    ]
}

fn fp8_weights() -> Vec<Bad> {
    let scale = |folder: &mut FolderWriter, dtype: &str, shape: &[usize]| {
        fp8(folder);
        let width = if dtype == "F32" { 4 } else { 1 };
        let data = vec![0; shape.iter().product::<usize>() * width];
        folder.weights.add(&format!("{Q}_scale_inv"), dtype, shape, &data);
    };
    vec![
        folder(
            "weights-fp8-no-scale",
            "llama",
            fp8,
            &["q_proj.weight_scale_inv\" is missing, expected the scales of FP8 weights"],
        ),
        folder(
            "weights-fp8-no-config",
            "llama",
            |folder| replace(folder, Q, "F8_E4M3", &[32, 32]),
            &["\"quantization_config.weight_block_size\" is missing"],
        ),
        folder(
            "weights-fp8-scale-shape",
            "llama",
            |folder| scale(folder, "F32", &[2, 3]),
            &["q_proj.weight_scale_inv\" is [2, 3], expected [2, 2]"],
        ),
        folder(
            "weights-fp8-scale-dtype",
            "llama",
            |folder| scale(folder, "U8", &[2, 2]),
            &["q_proj.weight_scale_inv\" is U8, expected F32"],
        ),
        folder(
            "weights-fp8-norm",
            "llama",
            |folder| {
                fp8(folder);
                replace(folder, "model.norm.weight", "F8_E4M3", &[32]);
                folder.weights.remove(Q);
            },
            &["the shape of \"model.norm.weight\" is [32], expected two sizes"],
        ),
    ]
}

fn experts() -> Vec<Bad> {
    let at = |name: &str| format!("model.layers.0.mlp.experts.{name}");
    vec![
        folder(
            "experts-one-missing",
            "qwen3moe",
            |folder| folder.weights.remove(&at("1.up_proj.weight")),
            &["experts.1.up_proj.weight\" is missing"],
        ),
        folder(
            "experts-one-narrower",
            "qwen3moe",
            |folder| replace(folder, &at("1.up_proj.weight"), "F32", &[FFN, 16]),
            &["experts.1.up_proj.weight\" is [64, 16], expected [64, 32]"],
        ),
        folder(
            "experts-mixed",
            "qwen3moe",
            |folder| replace(folder, &at("1.up_proj.weight"), "BF16", &[FFN, HIDDEN]),
            &["experts.1.up_proj.weight\" is BF16, expected that of the other experts"],
        ),
        folder(
            "experts-one-more",
            "qwen3moe",
            |folder| folder.weights.add(&at("2.up_proj.weight"), "F32", &[1], &[0; 4]),
            &["experts.2.up_proj.weight\" is in the file"],
        ),
    ]
}

fn fused_experts() -> Vec<Bad> {
    let at = |name: &str| format!("model.layers.0.mlp.experts.{name}");
    let blocks = |folder: &mut FolderWriter, dtype: &str, shape: &[usize]| {
        folder.weights.remove(&at("gate_up_proj"));
        let width = if dtype == "F32" { 4 } else { 1 };
        let data = vec![0; shape.iter().product::<usize>() * width];
        folder.weights.add(&at("gate_up_proj_blocks"), dtype, shape, &data);
        let scales = EXPERTS * 2 * FFN * HIDDEN / 32;
        folder.weights.add(
            &at("gate_up_proj_scales"),
            "U8",
            &[EXPERTS, 2 * FFN, HIDDEN / 32],
            &vec![0; scales],
        );
    };
    let good = [EXPERTS, 2 * FFN, HIDDEN / 32, 16];
    vec![
        folder(
            "experts-fused-shape",
            "gpt-oss",
            |folder| replace(folder, &at("gate_up_proj"), "F32", &[EXPERTS, HIDDEN, FFN]),
            &["experts.gate_up_proj\" is [2, 32, 64], expected [2, 32, 128]"],
        ),
        folder(
            "experts-bias-shape",
            "gpt-oss",
            |folder| replace(folder, &at("gate_up_proj_bias"), "F32", &[EXPERTS, FFN]),
            &["experts.gate_up_proj_bias\" is [2, 64], expected [2, 128]"],
        ),
        folder(
            "experts-no-down",
            "gpt-oss",
            |folder| folder.weights.remove(&at("down_proj")),
            &["experts.down_proj\" is missing, expected a tensor of [2, 64, 32]"],
        ),
        folder(
            "experts-mxfp4-shape",
            "gpt-oss",
            |folder| blocks(folder, "U8", &[EXPERTS, 2 * FFN, 1, 8]),
            &["gate_up_proj_blocks\" is [2, 128, 1, 8], expected [2, 128, 1, 16]"],
        ),
        folder(
            "experts-mxfp4-dtype",
            "gpt-oss",
            |folder| blocks(folder, "F32", &good),
            &["gate_up_proj_blocks\" is F32, expected U8"],
        ),
        folder(
            "experts-mxfp4-no-scales",
            "gpt-oss",
            |folder| {
                blocks(folder, "U8", &good);
                folder.weights.remove(&at("gate_up_proj_scales"));
            },
            &["gate_up_proj_scales\" is missing"],
        ),
        folder(
            "experts-mxfp4-half",
            "gpt-oss",
            |folder| blocks(folder, "U8", &good),
            &["experts.down_proj_blocks\" is missing"],
        ),
    ]
}
