"""Makes one file for each format: random blocks, then the f32 values that the reference gives them.

    python make.py        # needs PyPI gguf, and torch for FP8

A file is: blocks (u32), their bytes, their values (f32), all little-endian. Scales are drawn so that no
value is infinite or NaN; every other bit is random.
"""

import pathlib
import struct

import gguf
import numpy as np
import torch

FORMATS = "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4".split()
F16_SCALES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0],
}  # fmt: skip
HERE = pathlib.Path(__file__).parent


def blocks_of(name, random):
    length, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    count = 64 if length == 1 else 8 if length == 32 else 2
    if name == "F32":
        return random.standard_normal((count, 1), dtype=np.float32).view(np.uint8)
    if name == "F16":
        return random.standard_normal((count, 1), dtype=np.float32).astype(np.float16).view(np.uint8)
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    for at in F16_SCALES.get(name, []):
        scales = random.standard_normal((count, 1), dtype=np.float32).astype(np.float16)
        blocks[:, at : at + 2] = scales.view(np.uint8)
    if name == "BF16":
        blocks[:, 1] = 0x3E | blocks[:, 1] & 0x81
    if name == "MXFP4":
        blocks[:, 0] = [0, 1, 2, 100, 120, 127, 128, 140]
    return blocks


def write(name, blocks, values):
    data = struct.pack("<I", len(blocks)) + blocks.tobytes() + values.astype("<f4").tobytes()
    (HERE / f"{name}.bin").write_bytes(data)


def main():
    for name in FORMATS:
        blocks = blocks_of(name, np.random.default_rng(FORMATS.index(name)))
        write(name, blocks, gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name]))
    every = np.array([b for b in range(256) if b & 0x7F != 0x7F], dtype=np.uint8).reshape(-1, 1)
    write("FP8", every, torch.from_numpy(every).view(torch.float8_e4m3fn).float().numpy())


main()
