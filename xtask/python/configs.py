"""The tiny models: one for each architecture, and one for each way to store quantised weights."""

import dataclasses

from transformers import GptOssConfig, LlamaConfig, Qwen2Config, Qwen3Config, Qwen3MoeConfig

from tiny import Gains

CONTEXT = 512  # tokens
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "rope_theta": 150000.0, "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0,
    "truncate": False, "original_max_position_embeddings": 64,
}  # fmt: skip


@dataclasses.dataclass
class Tiny:
    """A model to be made. What is not quantised is stored in several float formats of equal meaning."""

    name: str
    config: object
    gains: Gains
    gguf_formats: dict = dataclasses.field(default_factory=dict)  # GGUF name -> format; {} is all floats
    experts_format: str | None = None  # MXFP4: in both files
    fp8_tile: tuple | None = None  # rows and columns under one scale: folder only
    shards: int = 1  # of the folder


def sizes(vocab, hidden, ffn, layers, heads, kv_heads, **more):
    return dict(
        vocab_size=vocab, hidden_size=hidden, intermediate_size=ffn, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-5, bos_token_id=None, eos_token_id=None, pad_token_id=None,
        tie_word_embeddings=False,
    ) | more  # fmt: skip


def gpt_oss():
    shape = sizes(288, 64, 64, 3, 4, 2, head_dim=32, rope_parameters=YARN, sliding_window=24)
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    return GptOssConfig(**shape, layer_types=kinds, num_local_experts=6, num_experts_per_tok=2)


def gpt_oss_heads():
    """With heads as the published models have them: eight query heads to a KV head, of 64 values."""
    shape = sizes(288, 96, 64, 2, 8, 1, head_dim=64, rope_parameters=YARN, sliding_window=24)
    kinds = ["sliding_attention", "full_attention"]
    return GptOssConfig(**shape, layer_types=kinds, num_local_experts=6, num_experts_per_tok=4)


def qwen3_moe(vocab, hidden, ffn, heads, experts):
    shape = sizes(vocab, hidden, ffn, 2, heads, 2, head_dim=32, rope_parameters=plain_rope(1e6))
    return Qwen3MoeConfig(
        **shape, moe_intermediate_size=ffn, num_experts=experts, num_experts_per_tok=2, norm_topk_prob=True
    )


def gpt_oss_gains(embedding):
    return Gains(embedding, attention=1.5, inner=3.0, mlp=0.3, sharpness=1.0)


def plain_rope(theta):
    return {"rope_type": "default", "rope_theta": theta}


# A format for every matrix; between them all formats of GGUF files.
EVERY_FORMAT = {
    "token_embd": "Q5_1", "output": "Q8_0",
    "blk.0.attn_q": "Q2_K", "blk.0.attn_k": "Q3_K", "blk.0.attn_v": "Q4_K", "blk.0.attn_output": "Q5_K",
    "blk.0.ffn_gate": "Q6_K", "blk.0.ffn_up": "IQ4_XS", "blk.0.ffn_down": "IQ4_NL",
    "blk.1.attn_q": "Q4_0", "blk.1.attn_k": "Q4_1", "blk.1.attn_v": "Q5_0", "blk.1.attn_output": "Q3_K",
    "blk.1.ffn_gate": "Q4_K", "blk.1.ffn_up": "Q2_K", "blk.1.ffn_down": "Q6_K",
}  # fmt: skip

# As in the usual Q4_K_M files of mixtures; experts of 64 columns take no K format.
MIXTURE_FORMATS = {
    "token_embd": "Q4_0", "output": "Q8_0",
    "blk.0.attn_q": "Q4_K", "blk.0.attn_k": "Q4_K", "blk.0.attn_v": "Q6_K", "blk.0.attn_output": "Q4_1",
    "blk.0.ffn_gate_exps": "Q4_K", "blk.0.ffn_up_exps": "Q5_K", "blk.0.ffn_down_exps": "Q5_0",
    "blk.1.attn_q": "IQ4_XS", "blk.1.attn_k": "Q5_1", "blk.1.attn_v": "Q8_0", "blk.1.attn_output": "IQ4_NL",
    "blk.1.ffn_gate_exps": "Q3_K", "blk.1.ffn_up_exps": "Q6_K", "blk.1.ffn_down_exps": "Q8_0",
}  # fmt: skip

MODELS = [
    Tiny("llama", LlamaConfig(**sizes(272, 64, 96, 2, 4, 2, rope_parameters=plain_rope(1e4))), Gains(1.1)),
    Tiny(
        "llama3",
        LlamaConfig(**sizes(256, 80, 112, 2, 5, 1, rope_parameters=LLAMA3, tie_word_embeddings=True)),
        Gains(1.0),
    ),
    Tiny(
        "qwen2",
        Qwen2Config(**sizes(304, 96, 128, 2, 6, 2, rope_parameters=plain_rope(1e6))),
        Gains(0.8),
        shards=2,
    ),
    Tiny(
        "qwen3",
        Qwen3Config(**sizes(257, 64, 96, 2, 4, 2, head_dim=32, rope_parameters=plain_rope(1e6))),
        Gains(0.9),
    ),
    Tiny("qwen3-moe", qwen3_moe(288, 64, 48, 4, 8), Gains(1.0)),
    Tiny("gpt-oss", gpt_oss(), gpt_oss_gains(1.8)),
    Tiny("gpt-oss-mxfp4", gpt_oss(), gpt_oss_gains(2.0), experts_format="MXFP4"),
    Tiny(
        "quantised",
        Qwen2Config(**sizes(256, 256, 256, 2, 8, 2, rope_parameters=plain_rope(1e6))),
        Gains(0.65),
        gguf_formats=EVERY_FORMAT,
    ),
    Tiny("quantised-moe", qwen3_moe(256, 256, 64, 4, 6), Gains(0.45), gguf_formats=MIXTURE_FORMATS),
    Tiny(
        "qwen3-fp8",
        Qwen3Config(**sizes(256, 160, 192, 2, 6, 2, head_dim=32, rope_parameters=plain_rope(1e6))),
        Gains(0.65),
        fp8_tile=(128, 128),
    ),
    Tiny("gpt-oss-heads", gpt_oss_heads(), gpt_oss_gains(1.2), experts_format="MXFP4"),
]
