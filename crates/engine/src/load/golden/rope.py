"""Rotary frequencies of real configurations, as transformers computes them -> rope.json.

    python rope.py        # needs PyPI torch and transformers
"""

import json
import pathlib

from transformers import GptOssConfig, LlamaConfig, Qwen3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

LLAMA3 = {
    "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192, "rope_theta": 500000.0,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768, "rope_theta": 1e6}
SIZES = dict(hidden_size=2048, num_attention_heads=32, max_position_embeddings=131072)


def configs():
    yield "llama3", LlamaConfig(**SIZES, head_dim=64, rope_parameters=LLAMA3)
    yield "linear", LlamaConfig(**SIZES, head_dim=64, rope_parameters={"rope_type": "linear", "factor": 3.0, "rope_theta": 1e4})
    yield "yarn", Qwen3Config(**SIZES, head_dim=128, rope_parameters=YARN)
    yield "yarn with mscale", Qwen3Config(**SIZES, head_dim=128, rope_parameters=YARN | {"mscale": 0.7, "mscale_all_dim": 1.2})
    yield "gpt-oss", GptOssConfig()


def entry(name, config):
    parameters = config.rope_parameters
    inv_freq, magnitude = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, "cpu")
    return {
        "name": name,
        "head_dim": config.head_dim,
        "context": config.max_position_embeddings,
        "rope_parameters": parameters,
        "frequencies": inv_freq.tolist(),
        "magnitude": magnitude,
    }


entries = [entry(name, config) for name, config in configs()]
pathlib.Path(__file__).with_name("rope.json").write_text(json.dumps(entries, indent=1) + "\n")
