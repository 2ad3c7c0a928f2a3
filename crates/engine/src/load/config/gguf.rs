//! The configuration of a GGUF file.

use super::super::error::{Fault, quoted};
use super::super::fields::{Fields, GgufFields};
use super::super::gguf::GgufMetadata;
use super::super::rope::{self, Scaling, Yarn};
use super::super::tensor::Tensor;
use super::{HeadNames, ROPE_BASE_MAX, ROPE_FACTOR_MAX, agrees, heads};
use crate::limits::{CONTEXT_TOKENS_MAX, EXPERTS_MAX, FFN_MAX, HIDDEN_MAX, LAYERS_MAX, VOCAB_MAX};
use crate::model::config::{Arch, Config, Experts, Rope, RopePairs};
use std::collections::BTreeMap;

const ARCH_KEY: &str = "general.architecture";
const EPSILON: &str = "attention.layer_norm_rms_epsilon";
const ROPE_BASE_DEFAULT: f64 = 10_000.0;
const NAMES: HeadNames = HeadNames {
    hidden: "embedding_length",
    heads: "attention.head_count",
    kv_heads: "attention.head_count_kv",
    head_dim: "attention.key_length",
};

pub(in super::super) fn from_gguf(
    metadata: &GgufMetadata,
    table: &BTreeMap<String, Tensor>,
) -> Result<Config, Fault> {
    let name = metadata.text(ARCH_KEY)?.ok_or_else(|| Fault::missing(quoted(ARCH_KEY), "a name"))?;
    let arch = arch(name)?;
    let fields = &GgufFields { metadata, arch: name };
    let hidden = fields.needed_size(NAMES.hidden, HIDDEN_MAX)?;
    let heads = heads(fields, &NAMES, hidden)?;
    agrees(fields, "attention.value_length", heads.head_dim)?;
    let experts = experts(fields, arch)?;
    Ok(Config {
        arch,
        layers: fields.needed_size("block_count", LAYERS_MAX)?,
        hidden,
        heads: heads.heads,
        kv_heads: heads.kv_heads,
        head_dim: heads.head_dim,
        ffn: ffn(fields, experts.is_some())?,
        experts,
        vocab: vocab(fields, table)?,
        context: fields.needed_size("context_length", CONTEXT_TOKENS_MAX)?,
        norm_eps: fields.needed_positive(EPSILON, 1.0)? as f32,
        rope: rope(fields, arch, heads.head_dim, table)?,
        window: window(fields, arch)?,
    })
}

fn arch(name: &str) -> Result<Arch, Fault> {
    Arch::ALL.into_iter().find(|arch| arch.gguf_name() == name).ok_or_else(|| {
        let known: Vec<_> = Arch::ALL.iter().map(|arch| arch.gguf_name()).collect();
        Fault::unsupported(quoted(ARCH_KEY), quoted(name), format!("one of {}", known.join(", ")))
    })
}

fn experts(fields: &GgufFields, arch: Arch) -> Result<Option<Experts>, Fault> {
    if !arch.has_experts() {
        // Mixtral calls itself llama; its files differ by this count alone.
        return match fields.whole("expert_count")? {
            None | Some(0) => Ok(None),
            Some(count) => Err(Fault::unsupported(fields.label("expert_count"), count, "0")),
        };
    }
    let count = fields.needed_size("expert_count", EXPERTS_MAX)?;
    let used = fields.needed_size("expert_used_count", count)?;
    Ok(Some(Experts { count, used, normalize: true }))
}

fn ffn(fields: &GgufFields, experts: bool) -> Result<usize, Fault> {
    match fields.size("expert_feed_forward_length", FFN_MAX)? {
        Some(ffn) if experts => Ok(ffn),
        _ => fields.needed_size("feed_forward_length", FFN_MAX),
    }
}

/// The vocabulary is as long as the embedding, which may be padded beyond the tokenizer's.
fn vocab(fields: &GgufFields, table: &BTreeMap<String, Tensor>) -> Result<usize, Fault> {
    let embedding = table
        .get("token_embd.weight")
        .ok_or_else(|| Fault::missing("\"token_embd.weight\"", "a tensor of (vocabulary, hidden)"))?;
    let vocab = embedding.rows();
    if vocab > VOCAB_MAX {
        let field = "the vocabulary of \"token_embd.weight\"";
        return Err(Fault::damaged(field, vocab, format!("1 to {VOCAB_MAX}")));
    }
    agrees(fields, "vocab_size", vocab)?;
    Ok(vocab)
}

fn window(fields: &GgufFields, arch: Arch) -> Result<Option<usize>, Fault> {
    match arch {
        Arch::GptOss => fields.needed_size("attention.sliding_window", CONTEXT_TOKENS_MAX).map(Some),
        Arch::Llama | Arch::Qwen2 | Arch::Qwen3 | Arch::Qwen3Moe => {
            match fields.whole("attention.sliding_window")? {
                None | Some(0) => Ok(None),
                Some(found) => Err(Fault::unsupported(fields.label("attention.sliding_window"), found, "0")),
            }
        }
    }
}

fn rope(
    fields: &GgufFields,
    arch: Arch,
    head_dim: usize,
    table: &BTreeMap<String, Tensor>,
) -> Result<Rope, Fault> {
    agrees(fields, "rope.dimension_count", head_dim)?;
    let base = fields.positive("rope.freq_base", ROPE_BASE_MAX)?.unwrap_or(ROPE_BASE_DEFAULT);
    if base <= 1.0 {
        return Err(Fault::damaged(fields.label("rope.freq_base"), base, "more than 1"));
    }
    let scaling = match table.get("rope_freqs.weight") {
        Some(factors) => Scaling::Factors(rope_factors(factors, head_dim)?),
        None => scaling(fields, arch)?,
    };
    // Files of the llama architecture have the rows of Q and K reordered so that pairs are neighbours.
    let pairs = if arch == Arch::Llama { RopePairs::Adjacent } else { RopePairs::Halves };
    rope::rope(base, head_dim, &scaling, pairs)
}

fn rope_factors(tensor: &Tensor, head_dim: usize) -> Result<Vec<f32>, Fault> {
    let field = "\"rope_freqs.weight\"";
    if tensor.shape != [head_dim / 2] || !tensor.format.is_float() {
        let found = format!("{:?} in {}", tensor.shape, tensor.format.name());
        return Err(Fault::damaged(field, found, format!("[{}] in F32", head_dim / 2)));
    }
    let mut factors = vec![0.0; head_dim / 2];
    tensor.row_f32(0, &mut factors);
    match factors.iter().find(|factor| !(factor.is_finite() && **factor > 0.0)) {
        Some(factor) => Err(Fault::damaged(field, factor, "factors above 0")),
        None => Ok(factors),
    }
}

fn scaling(fields: &GgufFields, arch: Arch) -> Result<Scaling, Fault> {
    let factor = fields.positive("rope.scaling.factor", ROPE_FACTOR_MAX)?;
    match (fields.text("rope.scaling.type")?, factor) {
        (None | Some("none"), _) => Ok(Scaling::None),
        (Some("linear"), Some(factor)) => Ok(Scaling::Linear(factor)),
        (Some("yarn"), Some(factor)) => yarn(fields, arch, factor).map(Scaling::Yarn),
        (Some("linear" | "yarn"), None) => {
            Err(Fault::missing(fields.label("rope.scaling.factor"), "a number above 0"))
        }
        (Some(other), _) => {
            Err(Fault::unsupported(fields.label("rope.scaling.type"), quoted(other), "none, linear or yarn"))
        }
    }
}

fn yarn(fields: &GgufFields, arch: Arch, factor: f64) -> Result<Yarn, Fault> {
    fields.fixed("rope.scaling.yarn_ext_factor", 1.0)?;
    fields.fixed("rope.scaling.yarn_attn_factor", 1.0)?;
    fields.fixed("rope.scaling.attn_factor", 1.0)?;
    fields.fixed("rope.scaling.yarn_log_multiplier", 0.0)?;
    let context = fields.needed_size("rope.scaling.original_context_length", CONTEXT_TOKENS_MAX)?;
    Ok(Yarn {
        factor,
        context: context as f64,
        fast: fields.positive("rope.scaling.yarn_beta_fast", ROPE_FACTOR_MAX)?.unwrap_or(32.0),
        slow: fields.positive("rope.scaling.yarn_beta_slow", ROPE_FACTOR_MAX)?.unwrap_or(1.0),
        // gpt-oss was trained with fractional bounds, which its GGUF files do not say.
        truncate: arch != Arch::GptOss,
        magnitude: None,
    })
}
