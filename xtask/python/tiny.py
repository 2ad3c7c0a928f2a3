"""Tiny random models whose answers are clear.

Plain random weights give nearly tied logits: a rounding error anywhere would change the top token and a
test could not tell right from wrong. So the output row of each token's successor (one cycle through the
vocabulary) is aligned with the token's embedding, while the layers add several times as much of their
own: the top token mostly has a margin, and still no layer can be left out. `check.py` measures both.
"""

import dataclasses
import math

import torch
from transformers import AutoModelForCausalLM

SMALLEST = 2.0**-14  # of normal f16 numbers: below it f16 and bf16 do not mean the same


@dataclasses.dataclass
class Gains:
    """How strong the parts are; a gain of 1 keeps the size of activations."""

    embedding: float = 1.0
    attention: float = 2.0  # of the output projection: attention averages, which makes values small
    inner: float = 1.0  # of the gate and up projections; gpt-oss limits what they give to 7
    mlp: float = 2.0  # of the down projection
    sharpness: float = 1.5  # of q and k
    router: float = 4.0  # high, so that a change of the last expert chosen changes little
    aligned: float = 0.9  # share of an output row that is its predecessor's embedding


def exact(values):
    """The nearest values that f32, f16 and bf16 can all hold."""
    values = values.to(torch.bfloat16).float()
    return torch.where(values.abs() < SMALLEST, 0.0, values)


def skeleton(config):
    torch.manual_seed(0)
    options = dict(attn_implementation="eager", dtype=torch.float32)
    if hasattr(config, "num_experts_per_tok"):
        options["experts_implementation"] = "eager"
    return AutoModelForCausalLM.from_config(config, **options).eval()


def random_weights(config, gains, seed):
    """Weights of a model, by their Hugging Face names."""
    random = torch.Generator().manual_seed(seed)
    weights = {}
    for name, parameter in skeleton(config).named_parameters():
        noise = torch.randn(parameter.shape, generator=random)
        weights[name] = exact(weight(name, noise, config, gains))
    if "lm_head.weight" in weights:
        weights["lm_head.weight"] = exact(aligned_head(weights, gains, random))
    return weights


def weight(name, noise, config, gains):
    if name == "model.norm.weight" and config.tie_word_embeddings:
        return signs(noise.shape) * (1.0 + 0.1 * noise)  # else each token would answer itself
    if "norm" in name:
        return 1.0 + 0.1 * noise
    if name.endswith(("bias", "sinks")):
        return 0.3 * noise
    if "embed_tokens" in name:
        return gains.embedding * noise
    return gain(name, gains) / math.sqrt(fan_in(name, noise.shape, config)) * noise


def signs(shape):
    return 1.0 - 2.0 * (torch.arange(shape[0]) % 2)


def fan_in(name, shape, config):
    transposed = config.model_type == "gpt_oss" and ".experts." in name
    return shape[-2] if transposed else shape[-1]


def gain(name, gains):
    if "q_proj" in name or "k_proj" in name:
        return gains.sharpness
    if "o_proj" in name:
        return gains.attention
    if "gate_proj" in name or "up_proj" in name:
        return gains.inner
    if "down_proj" in name:
        return gains.mlp
    if name.endswith(("mlp.gate.weight", "router.weight")):
        return gains.router
    return 1.0


def aligned_head(weights, gains, random):
    embedding = weights["model.embed_tokens.weight"]
    vocab, hidden = embedding.shape
    order = torch.randperm(vocab, generator=random)
    successor = torch.empty_like(order)
    successor[order] = order.roll(-1)
    head = math.sqrt(1 - gains.aligned**2) * torch.randn(vocab, hidden, generator=random)
    head[successor] += gains.aligned * embedding / gains.embedding
    return head


def build(config, weights):
    """A model of transformers with these weights; a tied output is the embedding."""
    model = skeleton(config)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    return model
