//! The configuration of a Hugging Face folder: config.json.

use super::super::error::{Fault, quoted};
use super::super::fields::Fields;
use super::super::json::{JsonFields, describe};
use super::super::rope::{self, Llama3, Scaling, Yarn};
use super::{HeadNames, ROPE_BASE_MAX, ROPE_FACTOR_MAX, heads};
use crate::limits::{CONTEXT_TOKENS_MAX, EXPERTS_MAX, FFN_MAX, HIDDEN_MAX, LAYERS_MAX, VOCAB_MAX};
use crate::model::config::{Arch, Config, Experts, Rope, RopePairs};
use serde_json::{Map, Value};

const NAMES: HeadNames = HeadNames {
    hidden: "hidden_size",
    heads: "num_attention_heads",
    kv_heads: "num_key_value_heads",
    head_dim: "head_dim",
};

pub(in super::super) fn from_folder(json: &Map<String, Value>) -> Result<Config, Fault> {
    let fields = &JsonFields { object: json, prefix: "" };
    let arch = arch(fields)?;
    let hidden = fields.needed_size(NAMES.hidden, HIDDEN_MAX)?;
    let heads = heads(fields, &NAMES, hidden)?;
    let layers = fields.needed_size("num_hidden_layers", LAYERS_MAX)?;
    built_in(fields)?;
    Ok(Config {
        arch,
        layers,
        hidden,
        heads: heads.heads,
        kv_heads: heads.kv_heads,
        head_dim: heads.head_dim,
        ffn: fields.needed_size(
            if arch == Arch::Qwen3Moe { "moe_intermediate_size" } else { "intermediate_size" },
            FFN_MAX,
        )?,
        experts: experts(fields, arch)?,
        vocab: fields.needed_size("vocab_size", VOCAB_MAX)?,
        context: fields.needed_size("max_position_embeddings", CONTEXT_TOKENS_MAX)?,
        norm_eps: fields.needed_positive("rms_norm_eps", 1.0)? as f32,
        rope: rope(fields, arch, heads.head_dim)?,
        window: window(fields, arch, layers)?,
    })
}

fn arch(fields: &JsonFields) -> Result<Arch, Fault> {
    let name = fields.text("model_type")?;
    let name = name.ok_or_else(|| Fault::missing(fields.label("model_type"), "a name"))?;
    Arch::ALL.into_iter().find(|arch| arch.hf_name() == name).ok_or_else(|| {
        let known: Vec<_> = Arch::ALL.iter().map(|arch| arch.hf_name()).collect();
        Fault::unsupported(fields.label("model_type"), quoted(name), format!("one of {}", known.join(", ")))
    })
}

/// Settings that the architectures' code has built in.
fn built_in(fields: &JsonFields) -> Result<(), Fault> {
    fields.fixed("partial_rotary_factor", 1.0)?;
    fields.fixed("swiglu_alpha", 1.702)?;
    fields.fixed("swiglu_limit", 7.0)?;
    fields.fixed("decoder_sparse_step", 1.0)?;
    match fields.text("hidden_act")? {
        None | Some("silu") => (),
        Some(other) => return Err(Fault::unsupported(fields.label("hidden_act"), quoted(other), "silu")),
    }
    match fields.list("mlp_only_layers")? {
        [] => Ok(()),
        layers => {
            let found = format!("a list of {}", layers.len());
            Err(Fault::unsupported(fields.label("mlp_only_layers"), found, "an empty list"))
        }
    }
}

fn experts(fields: &JsonFields, arch: Arch) -> Result<Option<Experts>, Fault> {
    if !arch.has_experts() {
        return Ok(None);
    }
    let count = match fields.size("num_local_experts", EXPERTS_MAX)? {
        Some(count) => count,
        None => fields.needed_size("num_experts", EXPERTS_MAX)?,
    };
    let used = fields.needed_size("num_experts_per_tok", count)?;
    let normalize = arch == Arch::GptOss || fields.flag("norm_topk_prob")?.unwrap_or(false);
    Ok(Some(Experts { count, used, normalize }))
}

/// gpt-oss looks through a window in its even layers; the others everywhere at everything.
fn window(fields: &JsonFields, arch: Arch, layers: usize) -> Result<Option<usize>, Fault> {
    let windowed = |layer: usize| arch == Arch::GptOss && layer.is_multiple_of(2);
    let types = fields.list("layer_types")?;
    if !types.is_empty() && types.len() != layers {
        let found = format!("a list of {}", types.len());
        return Err(Fault::damaged(
            fields.label("layer_types"),
            found,
            format!("one for each of {layers} layers"),
        ));
    }
    for (layer, kind) in types.iter().enumerate() {
        let expected = if windowed(layer) { "sliding_attention" } else { "full_attention" };
        if kind.as_str() != Some(expected) {
            let field = format!("{} of layer {layer}", fields.label("layer_types"));
            return Err(Fault::unsupported(field, describe(kind), expected));
        }
    }
    if fields.flag("use_sliding_window")? == Some(true) {
        return Err(Fault::unsupported(fields.label("use_sliding_window"), "true", "false"));
    }
    if arch != Arch::GptOss {
        return Ok(None);
    }
    fields.needed_size("sliding_window", CONTEXT_TOKENS_MAX).map(Some)
}

/// `rope_parameters` of newer files holds what `rope_theta` and `rope_scaling` of older ones do.
fn rope(fields: &JsonFields, arch: Arch, head_dim: usize) -> Result<Rope, Fault> {
    let parameters = match fields.inner("rope_parameters")? {
        Some(parameters) => Some(parameters),
        None => fields.inner("rope_scaling")?,
    };
    let default = if arch == Arch::GptOss { 150_000.0 } else { 10_000.0 };
    let own = parameters.as_ref().map(|parameters| parameters.positive("rope_theta", ROPE_BASE_MAX));
    let base = match own.transpose()?.flatten() {
        Some(base) => base,
        None => fields.positive("rope_theta", ROPE_BASE_MAX)?.unwrap_or(default),
    };
    if base <= 1.0 {
        return Err(Fault::damaged(fields.label("rope_theta"), base, "more than 1"));
    }
    let scaling = match &parameters {
        Some(parameters) => scaling(fields, parameters)?,
        None if arch == Arch::GptOss => {
            return Err(Fault::missing(fields.label("rope_scaling"), "an object with rope_type yarn"));
        }
        None => Scaling::None,
    };
    rope::rope(base, head_dim, &scaling, RopePairs::Halves)
}

fn scaling(fields: &JsonFields, parameters: &JsonFields) -> Result<Scaling, Fault> {
    parameters.fixed("partial_rotary_factor", 1.0)?;
    if let Some((name, _)) = parameters.object.iter().find(|(_, value)| value.is_object()) {
        return Err(Fault::unsupported(parameters.label(name), "an object", "one set for all layers"));
    }
    let kind = match parameters.text("rope_type")? {
        Some(kind) => Some(kind),
        None => parameters.text("type")?,
    };
    match kind {
        None | Some("default") => Ok(Scaling::None),
        Some("linear") => parameters.needed_positive("factor", ROPE_FACTOR_MAX).map(Scaling::Linear),
        Some("llama3") => llama3(fields, parameters).map(Scaling::Llama3),
        Some("yarn") => yarn(fields, parameters).map(Scaling::Yarn),
        Some(other) => {
            let expected = "default, linear, llama3 or yarn";
            Err(Fault::unsupported(parameters.label("rope_type"), quoted(other), expected))
        }
    }
}

/// Tokens that the model was first trained on.
fn original_context(fields: &JsonFields, parameters: &JsonFields) -> Result<f64, Fault> {
    let name = "original_max_position_embeddings";
    let outer = fields.size(name, CONTEXT_TOKENS_MAX)?;
    let inner = parameters.size(name, CONTEXT_TOKENS_MAX)?;
    match outer.or(inner) {
        Some(context) => Ok(context as f64),
        None => {
            fields.needed_size("max_position_embeddings", CONTEXT_TOKENS_MAX).map(|context| context as f64)
        }
    }
}

fn llama3(fields: &JsonFields, parameters: &JsonFields) -> Result<Llama3, Fault> {
    let number = |name| parameters.needed_positive(name, ROPE_FACTOR_MAX);
    let (low, high) = (number("low_freq_factor")?, number("high_freq_factor")?);
    if high <= low {
        let expected = format!("more than low_freq_factor, which is {low}");
        return Err(Fault::damaged(parameters.label("high_freq_factor"), high, expected));
    }
    Ok(Llama3 { factor: number("factor")?, low, high, context: original_context(fields, parameters)? })
}

fn yarn(fields: &JsonFields, parameters: &JsonFields) -> Result<Yarn, Fault> {
    let context = original_context(fields, parameters)?;
    let number = |name| parameters.positive(name, ROPE_FACTOR_MAX);
    let factor = match number("factor")? {
        Some(factor) => factor,
        None => fields.needed_size("max_position_embeddings", CONTEXT_TOKENS_MAX)? as f64 / context,
    };
    let magnitude = match (number("attention_factor")?, number("mscale")?, number("mscale_all_dim")?) {
        (None, Some(mscale), Some(all)) => Some(sharpness(factor, mscale) / sharpness(factor, all)),
        (given, _, _) => given,
    };
    Ok(Yarn {
        factor,
        context,
        fast: number("beta_fast")?.unwrap_or(32.0),
        slow: number("beta_slow")?.unwrap_or(1.0),
        truncate: parameters.flag("truncate")?.unwrap_or(true),
        magnitude,
    })
}

/// How much sharper attention gets over a context stretched by `factor`.
fn sharpness(factor: f64, mscale: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 }
}

#[cfg(test)]
mod tests {
    use super::from_folder;
    use serde::Deserialize;
    use serde_json::{Map, Value, json};

    /// A configuration and what transformers makes of it (`golden/rope.py`).
    #[derive(Deserialize)]
    struct Golden {
        name: String,
        head_dim: usize,
        context: usize,
        rope_parameters: Map<String, Value>,
        frequencies: Vec<f32>,
        magnitude: f32,
    }

    fn config(golden: &Golden) -> Value {
        json!({
            "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 64,
            "num_attention_heads": 1, "head_dim": golden.head_dim, "vocab_size": 8, "rms_norm_eps": 1e-6,
            "max_position_embeddings": golden.context,
        })
    }

    fn check(golden: &Golden, config: &Value) {
        let rope = from_folder(config.as_object().unwrap()).unwrap().rope;
        assert_eq!(rope.frequencies.len(), golden.frequencies.len(), "{}", golden.name);
        for (i, (found, expected)) in rope.frequencies.iter().zip(&golden.frequencies).enumerate() {
            let error = (found / expected - 1.0).abs();
            assert!(error < 3e-7, "{} [{i}]: {found} is not {expected}", golden.name);
        }
        assert_eq!(rope.magnitude, golden.magnitude, "{}", golden.name);
    }

    #[test]
    fn frequencies_are_those_of_transformers() {
        let all: Vec<Golden> = serde_json::from_str(include_str!("../golden/rope.json")).unwrap();
        assert_eq!(all.len(), 5);
        for golden in &all {
            let mut newer = config(golden);
            newer["rope_parameters"] = json!(golden.rope_parameters);
            check(golden, &newer);

            let mut scaling = golden.rope_parameters.clone();
            let mut older = config(golden);
            older["rope_theta"] = scaling.remove("rope_theta").unwrap();
            let kind = scaling.remove("rope_type").unwrap();
            scaling.insert("type".into(), kind);
            older["rope_scaling"] = json!(scaling);
            check(golden, &older);
        }
    }
}
