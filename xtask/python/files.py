"""The two files of a model: a Hugging Face folder and a GGUF file."""

import json
import math
import re

import gguf
import numpy as np
import torch
from safetensors.torch import save_file

import formats

GGUF_ARCH = {"qwen3_moe": "qwen3moe", "gpt_oss": "gpt-oss"}
GGUF_NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp",
    "mlp.router": "ffn_gate_inp", "self_attn": "attn",
}  # fmt: skip


def gguf_views(config, weights):
    """The tensors of a GGUF file, as views into the weights: what is written to a view, the model has."""
    views = {}
    for name, values in weights.items():
        if ".mlp.experts." in name:
            views.update(expert_views(config, name, values))
        else:
            views[gguf_name(config, name)] = values
    return views


def gguf_name(config, name):
    whole = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    if name == "lm_head.weight" or name in whole:
        return whole.get(name, "output.weight")
    layer, module, parameter = re.fullmatch(r"model\.layers\.(\d+)\.(.+)\.(\w+)", name).groups()
    module = GGUF_NAMES[module]
    if parameter == "sinks":
        return f"blk.{layer}.attn_sinks.weight"
    if config.model_type == "gpt_oss" and module == "ffn_norm":
        module = "post_attention_norm"
    return f"blk.{layer}.{module}.{parameter}"


def expert_views(config, name, values):
    layer, part = re.fullmatch(r"model\.layers\.(\d+)\.mlp\.experts\.(\w+)", name).groups()
    parameter = "bias" if part.endswith("_bias") else "weight"
    gpt_oss = config.model_type == "gpt_oss"
    if gpt_oss and parameter == "weight":
        values = values.swapaxes(1, 2)
    if part.startswith("down"):
        return {f"blk.{layer}.ffn_down_exps.{parameter}": values}
    half = values.shape[1] // 2
    gate, up = (np.s_[:, 0::2], np.s_[:, 1::2]) if gpt_oss else (np.s_[:, :half], np.s_[:, half:])
    prefix = f"blk.{layer}.ffn"
    return {f"{prefix}_gate_exps.{parameter}": values[gate], f"{prefix}_up_exps.{parameter}": values[up]}


def gguf_float(name):
    """Floats of every kind; vectors are F32 in real files."""
    if not name.endswith(".weight") or "norm" in name or "sinks" in name or "ffn_gate_inp" in name:
        return "F32"
    return {"attn_v": "F32", "attn_k": "F16", "output": "F16"}.get(name.split(".")[-2], "BF16")


def write_gguf(path, config, views, encoded):
    writer = gguf.GGUFWriter(path, GGUF_ARCH.get(config.model_type, config.model_type))
    metadata(writer, config)
    if config.rope_parameters["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(config))
    for name, values in views.items():
        format = gguf_float(name)
        data = encoded.get(name)
        if data is None:
            data = (formats.encode(values, format, None), format)
        if config.model_type == "llama" and name.endswith(("attn_q.weight", "attn_k.weight")):
            data = (neighbours(data[0], config.head_dim), data[1])
        writer.add_tensor(name, np.ascontiguousarray(data[0]), raw_dtype=formats.kind(data[1]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def neighbours(rows, head_dim):
    """GGUF files of llama have the two values that turn together side by side."""
    heads = rows.reshape(-1, 2, head_dim // 2, rows.shape[-1])
    return heads.swapaxes(1, 2).reshape(rows.shape)


def metadata(writer, config):
    rope = config.rope_parameters
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(head_dim)
    writer.add_vocab_size(config.vocab_size)
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        ffn = getattr(config, "moe_intermediate_size", None) or config.intermediate_size
        writer.add_expert_feed_forward_length(ffn)
    if rope["rope_type"] == "yarn":
        writer.add_sliding_window(config.sliding_window)
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def llama3_factors(config):
    """What each frequency is divided by: slow ones by the factor, fast ones by 1, blended between."""
    rope = config.rope_parameters
    context, low, high = (
        rope[key] for key in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
    )
    factors = []
    for i in range(0, config.head_dim, 2):
        turns = context / (2 * math.pi * rope["rope_theta"] ** (i / config.head_dim))
        kept = min(max((turns - low) / (high - low), 0.0), 1.0)
        factors.append(1 / (kept + (1 - kept) / rope["factor"]))
    return np.array(factors, dtype=np.float32)


def write_folder(path, config, tensors, quantization, shards):
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config_json(config, quantization), indent=1) + "\n")
    names = sorted(tensors)
    if shards == 1:
        return save_file(tensors, path / "model.safetensors")
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        weight_map |= {name: file for name in names[shard::shards]}
        save_file({name: tensors[name] for name in names[shard::shards]}, path / file)
    index = {"metadata": {}, "weight_map": weight_map}
    (path / "model.safetensors.index.json").write_text(json.dumps(index, indent=1, sort_keys=True) + "\n")


def config_json(config, quantization):
    """config.json with the rope fields as published models have them."""
    fields = {key: value for key, value in config.to_dict().items() if value is not None}
    fields.pop("transformers_version", None)
    rope = dict(fields.pop("rope_parameters"))
    fields["rope_theta"] = rope.pop("rope_theta")
    if rope["rope_type"] != "default":
        fields["rope_scaling"] = rope
    return dict(sorted((fields | quantization).items()))


def folder_tensors(config, weights):
    """Published mixtures of Qwen have a tensor for each expert; gpt-oss has all in one."""
    tensors = {}
    for name, values in weights.items():
        values = torch.from_numpy(values).to(folder_float(name))
        if config.model_type != "qwen3_moe" or ".experts." not in name:
            tensors[name] = values.contiguous()
            continue
        prefix, part = name.rsplit(".", 1)
        for expert, matrix in enumerate(values):
            pieces = matrix.chunk(2) if part == "gate_up_proj" else [matrix]
            for piece, own in zip(pieces, ["gate_proj", "up_proj"] if len(pieces) == 2 else [part]):
                tensors[f"{prefix}.{expert}.{own}.weight"] = piece.contiguous()
    return tensors


def folder_float(name):
    if "norm" in name:
        return torch.float32
    return torch.float16 if "k_proj" in name else torch.bfloat16
