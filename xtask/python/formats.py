"""Weights as blocks of bytes, and the values that those bytes mean."""

import gguf
import numpy as np
import torch

# Formats that the gguf package can read but not write: where their f16 scales are in a block, and how
# many times the first the second (of the minima) has to be for values around 0.
RANDOM_BLOCKS = {
    "Q2_K": ([80, 82], 1.5), "Q3_K": ([108], 0), "Q4_K": ([0, 2], 7.5), "Q5_K": ([0, 2], 15.5),
    "Q6_K": ([208], 0), "IQ4_NL": ([0], 0), "IQ4_XS": ([0], 0),
}  # fmt: skip


def kind(name):
    return gguf.GGMLQuantizationType[name]


def encode(values, name, random):
    """Bytes of a tensor in a GGUF format; random ones of the same size where there is no quantiser."""
    if name in RANDOM_BLOCKS:
        return random_blocks(values.shape, values.std(), name, random)
    return gguf.quants.quantize(np.ascontiguousarray(values), kind(name))


def decode(data, name):
    return gguf.quants.dequantize(data, kind(name))


def random_blocks(shape, size, name, random):
    length, width = gguf.GGML_QUANT_SIZES[kind(name)]
    count = shape[-1] // length
    blocks = random.integers(0, 256, (*shape[:-1], count, width), dtype=np.uint8)
    factors = random.uniform(0.6, 1.4, (*shape[:-1], count, 1))
    scale(blocks, name, factors)
    found = decode(blocks.reshape(*shape[:-1], -1), name).std()
    scale(blocks, name, factors * size / found)
    return blocks.reshape(*shape[:-1], -1)


def scale(blocks, name, factors):
    places, minimum = RANDOM_BLOCKS[name]
    for at, part in zip(places, (1.0, minimum)):
        blocks[..., at : at + 2] = (factors * part).astype(np.float16).view(np.uint8)


def split_mxfp4(data):
    """The blocks and scales of a Hugging Face folder out of GGUF's 17-byte blocks.

    GGUF has value i and i + 16 in a byte, Hugging Face 2i and 2i + 1.
    """
    blocks = data.reshape(*data.shape[:-1], -1, 17)
    scales, packed = blocks[..., 0], blocks[..., 1:]
    codes = np.concatenate([packed & 15, packed >> 4], axis=-1)
    return codes[..., 0::2] | codes[..., 1::2] << 4, np.ascontiguousarray(scales)


def fp8_tiles(values, tile):
    """e4m3 values and the scale of each tile; the last tiles may be partial."""
    rows, cols = values.shape
    data = torch.empty(rows, cols, dtype=torch.float8_e4m3fn)
    scales = torch.empty(-(-rows // tile[0]), -(-cols // tile[1]))
    for i, j in np.ndindex(scales.shape):
        place = np.s_[i * tile[0] : (i + 1) * tile[0], j * tile[1] : (j + 1) * tile[1]]
        part = torch.from_numpy(values[place])
        scales[i, j] = part.abs().max() / 448.0
        data[place] = (part / scales[i, j]).to(torch.float8_e4m3fn)
        values[place] = (data[place].float() * scales[i, j]).numpy()
    return data, scales
