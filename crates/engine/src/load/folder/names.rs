//! Hugging Face's names of tensors, as the GGUF names that the rest of the engine uses.

/// The GGUF name of a weight that is one tensor in both; `None`: there is none.
pub(super) fn canonical(name: &str) -> Option<String> {
    match name {
        "model.embed_tokens.weight" => return Some("token_embd.weight".into()),
        "model.norm.weight" => return Some("output_norm.weight".into()),
        "lm_head.weight" => return Some("output.weight".into()),
        _ => (),
    }
    let (layer, name) = name.strip_prefix("model.layers.")?.split_once('.')?;
    let layer: usize = layer.parse().ok()?;
    let name = in_layer(name)?;
    Some(format!("blk.{layer}.{name}"))
}

fn in_layer(name: &str) -> Option<String> {
    if name == "self_attn.sinks" {
        return Some("attn_sinks.weight".into());
    }
    let (module, parameter) = name.rsplit_once('.')?;
    let module = match module {
        "input_layernorm" => "attn_norm",
        "post_attention_layernorm" => "ffn_norm",
        "self_attn.q_proj" => "attn_q",
        "self_attn.k_proj" => "attn_k",
        "self_attn.v_proj" => "attn_v",
        "self_attn.o_proj" => "attn_output",
        "self_attn.q_norm" => "attn_q_norm",
        "self_attn.k_norm" => "attn_k_norm",
        "mlp.gate_proj" => "ffn_gate",
        "mlp.up_proj" => "ffn_up",
        "mlp.down_proj" => "ffn_down",
        "mlp.gate" | "mlp.router" => "ffn_gate_inp",
        _ => return None,
    };
    matches!(parameter, "weight" | "bias").then(|| format!("{module}.{parameter}"))
}

/// Tensors that old checkpoints carry and that follow from the configuration.
pub(super) fn is_derived(name: &str) -> bool {
    name.ends_with(".rotary_emb.inv_freq")
}
