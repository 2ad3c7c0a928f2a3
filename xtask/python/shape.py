"""A model of a mixture's shape with random weights, scaled down or whole: for measuring speed, not for answers.

shape.py NAME TOKENIZER.gguf OUT.gguf takes the vocabulary of another file, so that other engines load it too. A whole model
has as many tokens as the real one; those that the other file lacks are made up.
"""

import sys

import gguf
import numpy as np
from transformers import GptOssConfig, Qwen3MoeConfig

import configs
import files
import formats

CONTEXT = 8192  # tokens


def gpt_oss(vocab, width, layers, heads, kv_heads, factor, context):
    rope = configs.YARN | {"factor": factor, "original_max_position_embeddings": int(context / factor)}
    shape = configs.sizes(
        vocab, width, width, layers, heads, kv_heads, head_dim=64, rope_parameters=rope, sliding_window=128,
        max_position_embeddings=context,
    )  # fmt: skip
    kinds = ["sliding_attention", "full_attention"] * (layers // 2)
    return GptOssConfig(**shape, layer_types=kinds, num_local_experts=32, num_experts_per_tok=4)


def gpt_oss_small(vocab):
    return gpt_oss(vocab, 1440, 4, 32, 4, 8.0, CONTEXT)


def gpt_oss_20b(_):
    return gpt_oss(201_088, 2880, 24, 64, 8, 32.0, 131_072)


def qwen3_moe(vocab):
    shape = configs.sizes(vocab, 1024, 2048, 8, 16, 4, head_dim=128, rope_parameters=configs.plain_rope(1e6))
    shape["max_position_embeddings"] = CONTEXT
    return Qwen3MoeConfig(
        **shape, moe_intermediate_size=512, num_experts=64, num_experts_per_tok=8, norm_topk_prob=True
    )


SHAPES = {"gpt-oss": gpt_oss_small, "gpt-oss-20b": gpt_oss_20b, "qwen3-moe": qwen3_moe}


def tensors(config):
    """Names and shapes, outermost first."""
    hidden, vocab, experts = config.hidden_size, config.vocab_size, experts_of(config)
    gpt = config.model_type == "gpt_oss"
    ffn = config.intermediate_size if gpt else config.moe_intermediate_size
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    yield from [
        ("token_embd.weight", (vocab, hidden)), ("output_norm.weight", (hidden,)), ("output.weight", (vocab, hidden)),
    ]  # fmt: skip
    for layer in range(config.num_hidden_layers):
        own = [
            ("attn_norm.weight", (hidden,)), ("post_attention_norm.weight" if gpt else "ffn_norm.weight", (hidden,)),
            ("attn_q.weight", (queries, hidden)), ("attn_k.weight", (keys, hidden)), ("attn_v.weight", (keys, hidden)),
            ("attn_output.weight", (hidden, queries)), ("ffn_gate_inp.weight", (experts, hidden)),
            ("ffn_gate_exps.weight", (experts, ffn, hidden)), ("ffn_up_exps.weight", (experts, ffn, hidden)),
            ("ffn_down_exps.weight", (experts, hidden, ffn)),
        ]  # fmt: skip
        if gpt:
            own += [
                ("attn_q.bias", (queries,)), ("attn_k.bias", (keys,)), ("attn_v.bias", (keys,)),
                ("attn_output.bias", (hidden,)), ("attn_sinks.weight", (config.num_attention_heads,)),
                ("ffn_gate_inp.bias", (experts,)), ("ffn_gate_exps.bias", (experts, ffn)),
                ("ffn_up_exps.bias", (experts, ffn)), ("ffn_down_exps.bias", (experts, hidden)),
            ]  # fmt: skip
        else:
            own += [("attn_q_norm.weight", (config.head_dim,)), ("attn_k_norm.weight", (config.head_dim,))]
        yield from ((f"blk.{layer}.{name}", shape) for name, shape in own)


def experts_of(config):
    return getattr(config, "num_local_experts", None) or config.num_experts


def format_of(config, name):
    """As in the usual files: MXFP4 experts beside Q8_0 for gpt-oss, Q4_K_M for Qwen."""
    if not name.endswith(".weight") or any(part in name for part in ("norm", "sinks", "ffn_gate_inp")):
        return "F32"
    if config.model_type == "gpt_oss":
        return "MXFP4" if "_exps" in name else "Q8_0"
    fine = name == "output.weight" or "attn_v" in name or "ffn_down" in name
    return "Q6_K" if fine else "Q4_K"


def data_of(shape, format, random):
    scale = shape[-1] ** -0.5
    if format == "F32":
        return (random.standard_normal(shape) * 0.1 + (1.0 if len(shape) == 1 else 0.0)).astype(np.float32)
    if format == "MXFP4":
        length, width = gguf.GGML_QUANT_SIZES[formats.kind(format)]
        blocks = random.integers(0, 256, (*shape[:-1], shape[-1] // length, width), dtype=np.uint8)
        blocks[..., 0] = 127 + int(np.log2(scale / 2))
        return blocks.reshape(*shape[:-1], -1)
    if format == "Q8_0":
        blocks = random.integers(0, 256, (*shape[:-1], shape[-1] // 32, 34), dtype=np.uint8)
        blocks[..., :2] = np.frombuffer(np.float16(scale / 73).tobytes(), np.uint8)
        return blocks.reshape(*shape[:-1], -1)
    return formats.random_blocks(shape, scale, format, random)


def longer(key, field, made_up):
    """A field of the vocabulary, with so many tokens more than it has."""
    contents = field.contents()
    if key == "tokenizer.ggml.tokens":
        return contents + [f"made{i}" for i in range(made_up)]
    if key == "tokenizer.ggml.token_type":
        return contents + [int(gguf.TokenType.NORMAL)] * made_up
    return contents


def write(name, vocabulary, out):
    reader = gguf.GGUFReader(vocabulary)
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    config = SHAPES[name](len(tokens))
    writer = gguf.GGUFWriter(out, files.GGUF_ARCH[config.model_type])
    files.metadata(writer, config)
    for key, field in reader.fields.items():
        if key.startswith("tokenizer."):
            of = field.types[-1] if len(field.types) > 1 else None
            contents = longer(key, field, config.vocab_size - len(tokens))
            writer.add_key_value(key, contents, field.types[0], of)
    random = np.random.default_rng(7)
    for tensor, shape in tensors(config):
        format = format_of(config, tensor)
        writer.add_tensor(tensor, data_of(shape, format, random), raw_dtype=formats.kind(format))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file(progress=True)
    writer.close()


if __name__ == "__main__":
    write(*sys.argv[1:])
