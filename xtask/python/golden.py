"""Makes the tiny models with their reference answers.

    python golden.py FOLDER        # needs PyPI torch, transformers, gguf, safetensors and numpy

For each model: `folder/` (Hugging Face), `model.gguf`, `reference.json` (prompts, the top token after each
of their tokens, and how greedy decoding goes on) and `logits.bin` (f32, little-endian: a row for each of the
positions that the reference names).
"""

import dataclasses
import json
import pathlib
import shutil
import sys

import numpy as np
import torch
import transformers

import check
import files
import formats
import tiny
from configs import MODELS

PROMPT_TOKENS = [160, 97, 130, 200]
LOGIT_POSITIONS = [0, 1, 23, 24, 31, 32, 63, 64]  # and the last: edges of windows and KV blocks
GREEDY_TOKENS = 40
GREEDY_DISTINCT_MIN = 10
MARGIN_MIN = 0.02  # of the deviation of logits, between the top two of every greedy token


@dataclasses.dataclass
class Made:
    """A model, and what of it is quantised in which file."""

    reference: torch.nn.Module
    views: dict  # GGUF name -> values
    encoded: dict  # GGUF name -> (bytes, format), for tensors that are not floats
    tensors: dict  # Hugging Face name -> tensor
    quantization: dict  # for config.json


def make(model, gains, index):
    config = model.config
    weights = {name: w.numpy() for name, w in tiny.random_weights(config, gains, 100 + index).items()}
    views = files.gguf_views(config, weights)
    encoded = quantise(model, views, np.random.default_rng(index))
    tensors, quantization = files.folder_tensors(config, weights), {}
    if model.experts_format:
        tensors, quantization = with_mxfp4(tensors, encoded)
    if model.fp8_tile:
        tensors, quantization = with_fp8(tensors, weights, model.fp8_tile)
    reference = tiny.build(config, {name: torch.from_numpy(w) for name, w in weights.items()})
    return Made(reference, views, encoded, tensors, quantization)


def clear_model(model, index):
    """Strengthens the embedding, which the answer follows from alone, until the answers are clear."""
    gains = model.gains
    kept_min, changed_min = check.QUANTISED_LIMITS if model.is_quantised() else check.FLOAT_LIMITS
    while True:
        made = make(model, gains, index)
        kept, changed = check.measure(made.reference, model.config.vocab_size)
        if kept >= kept_min:
            break
        gains = dataclasses.replace(gains, embedding=1.04 * gains.embedding)
    parts = " ".join(f"{part:.0%}" for part in changed)
    print(f"{model.name}: embedding {gains.embedding:.2f}, noise keeps {kept:.2%}, parts change {parts}")
    assert min(changed) >= changed_min, f"{model.name}: a part hardly matters"
    return made


def write(model, made, folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if not model.gguf_formats:
        files.write_folder(folder / "folder", model.config, made.tensors, made.quantization, model.shards)
    if not model.fp8_tile:
        files.write_gguf(folder / "model.gguf", model.config, made.views, made.encoded)


def quantise(model, views, random):
    """Encodes tensors and writes what their bytes mean back into the model."""
    encoded = {}
    for name, values in views.items():
        format = model.gguf_formats.get(name.removesuffix(".weight"))
        if name.endswith("_exps.weight"):
            format = format or model.experts_format
        if format:
            data = formats.encode(values, format, random)
            values[...] = formats.decode(data, format)
            encoded[name] = (data, format)
    return encoded


def with_mxfp4(tensors, encoded):
    """The folder's experts as blocks and scales, gate and up rows taking turns."""
    tensors = {name: t for name, t in tensors.items() if not name.endswith(("gate_up_proj", "down_proj"))}
    for name, (data, _) in encoded.items():
        layer, part = name.split(".")[1:3]
        if part == "ffn_up_exps":
            continue
        if part == "ffn_gate_exps":
            up = encoded[name.replace("gate", "up")][0]
            data = np.stack([data, up], axis=2).reshape(data.shape[0], -1, data.shape[2])
        hf = "gate_up_proj" if part == "ffn_gate_exps" else "down_proj"
        for suffix, values in zip(("blocks", "scales"), formats.split_mxfp4(data)):
            tensors[f"model.layers.{layer}.mlp.experts.{hf}_{suffix}"] = torch.from_numpy(values)
    return tensors, {"quantization_config": {"quant_method": "mxfp4"}}


def with_fp8(tensors, weights, tile):
    for name in [name for name in weights if name.endswith("_proj.weight")]:
        tensors[name], tensors[f"{name}_scale_inv"] = formats.fp8_tiles(weights[name], tile)
    method = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": list(tile)}
    return tensors, {"quantization_config": method}


def write_reference(folder, model, vocab, index):
    random = torch.Generator().manual_seed(200 + index)
    prompts, rows = [], []
    for length in PROMPT_TOKENS:
        prompt, logits, greedy = clear_prompt(model, vocab, length, random)
        positions = [*LOGIT_POSITIONS, length - 1]
        top = logits.argmax(-1).tolist()
        prompts.append(dict(tokens=prompt, top=top, greedy=greedy, logit_positions=positions))
        rows.append(logits[positions])
    text = ",\n ".join(json.dumps(prompt, separators=(",", ":")) for prompt in prompts)
    (folder / "reference.json").write_text(f'{{"prompts": [\n {text}\n]}}\n')
    (folder / "logits.bin").write_bytes(torch.cat(rows).numpy().astype("<f4").tobytes())


def clear_prompt(model, vocab, length, random):
    """A random prompt after which no greedy token is nearly tied with another."""
    for _ in range(200):
        prompt = torch.randint(vocab, (length,), generator=random).tolist()
        logits, greedy, margin = answer(model, prompt)
        if margin >= MARGIN_MIN and len(set(greedy)) >= GREEDY_DISTINCT_MIN:
            return prompt, logits, greedy
    raise SystemExit("no prompt has a clear answer")


@torch.no_grad()
def answer(model, prompt):
    """Logits over the prompt, greedy tokens after it, and the least margin of these."""
    tokens, margin = list(prompt), float("inf")
    first = model(torch.tensor([prompt])).logits[0]
    while len(tokens) < len(prompt) + GREEDY_TOKENS and margin >= MARGIN_MIN:
        last = model(torch.tensor([tokens])).logits[0, -1]
        top = last.topk(2)
        margin = min(margin, ((top.values[0] - top.values[1]) / last.std()).item())
        tokens.append(top.indices[0].item())
    return first, tokens[len(prompt) :], margin


def main():
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(2)
    root = pathlib.Path(sys.argv[1])
    for index, model in enumerate(MODELS):
        if not sys.argv[2:] or model.name in sys.argv[2:]:
            made = clear_model(model, index)
            write(model, made, root / model.name)
            write_reference(root / model.name, made.reference, model.config.vocab_size, index)


main()
