"""Makes the tiny models with their reference answers.

    python golden.py FOLDER        # needs PyPI torch, transformers, gguf, safetensors and numpy

For each model: `folder/` (Hugging Face), `model.gguf`, `reference.json` (prompts, the top token after each
of their tokens, and how greedy decoding goes on) and `logits.bin` (f32, little-endian: a row for each of the
positions that the reference names).
"""

import dataclasses
import pathlib
import shutil
import sys

import numpy as np
import torch
import transformers

import check
import files
import formats
import reference
import tiny
from configs import MODELS


@dataclasses.dataclass
class Made:
    """A model, and what of it is quantised in which file."""

    reference: torch.nn.Module
    views: dict  # GGUF name -> values
    encoded: dict  # GGUF name -> (bytes, format), for tensors that are not floats
    tensors: dict  # Hugging Face name -> tensor
    quantization: dict  # for config.json


def make(model, index):
    config = model.config
    weights = {name: w.numpy() for name, w in tiny.random_weights(config, model.gains, 100 + index).items()}
    views = files.gguf_views(config, weights)
    encoded = quantise(model, views, np.random.default_rng(index))
    tensors, quantization = files.folder_tensors(config, weights), {}
    if model.experts_format:
        tensors, quantization = with_mxfp4(tensors, encoded)
    if model.fp8_tile:
        tensors, quantization = with_fp8(tensors, weights, model.fp8_tile)
    built = tiny.build(config, {name: torch.from_numpy(w) for name, w in weights.items()})
    return Made(built, views, encoded, tensors, quantization)


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


def main():
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)  # tiny products: a second thread would only wait
    root = pathlib.Path(sys.argv[1])
    for index, model in enumerate(MODELS):
        if not sys.argv[2:] or model.name in sys.argv[2:]:
            made = make(model, index)
            prompts = reference.make_prompts(made.reference, model.config.vocab_size, 200 + index)
            check.check(model.name, made.reference, [tokens for tokens, _ in prompts])
            write(model, made, root / model.name)
            reference.write(root / model.name, made.reference, prompts)


main()
