"""llama.cpp's own logits: one JSON list of tokens a line in; for each, the logits of all its rows out, as 32-bit floats."""

import ctypes
import glob
import json
import os
import struct
import sys

import xllamacpp

model_path, threads, rows_max = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
answers = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)  # the library prints to standard output

# The package has all of llama.cpp in it, but shows only its server.
library = ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(xllamacpp.__file__), "xllamacpp*.so"))[0])
i32, pointer = ctypes.c_int32, ctypes.c_void_p


class Params(ctypes.Structure):
    """Of a model or a context: larger than either, so that it need not be known what is in them."""

    _fields_ = [("bytes", ctypes.c_uint8 * 1024)]


class Batch(ctypes.Structure):
    _fields_ = [
        ("n_tokens", i32),
        ("token", ctypes.POINTER(i32)),
        ("embd", pointer),
        ("pos", ctypes.POINTER(i32)),
        ("n_seq_id", ctypes.POINTER(i32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(i32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]


def function(name, result, *arguments):
    found = getattr(library, name)
    found.restype, found.argtypes = result, arguments
    return found


def must(found, what):
    if not found:
        sys.exit(f"llama.cpp has no {what}")
    return found


function("llama_backend_init", None)()
load = function("llama_model_load_from_file", pointer, ctypes.c_char_p, Params)
model = must(load(model_path.encode(), function("llama_model_default_params", Params)()), "model")
params = function("llama_context_default_params", Params)()
# A context begins with its tokens, and the rows of a batch and of a part of one.
params.bytes[:12] = list(struct.pack("<3I", rows_max, rows_max, rows_max))
context = must(function("llama_init_from_model", pointer, pointer, Params)(model, params), "context")
function("llama_set_n_threads", None, pointer, i32, i32)(context, threads, threads)
vocab = function("llama_vocab_n_tokens", i32, pointer)(function("llama_model_get_vocab", pointer, pointer)(model))
memory = function("llama_get_memory", pointer, pointer)(context)
clear = function("llama_memory_clear", None, pointer, ctypes.c_bool)
decode = function("llama_decode", i32, pointer, Batch)
logits = function("llama_get_logits_ith", pointer, pointer, i32)
batch = function("llama_batch_init", Batch, i32, i32, i32)(rows_max, 0, 1)

for line in sys.stdin:
    tokens = json.loads(line)
    for at, token in enumerate(tokens):
        batch.token[at], batch.pos[at], batch.logits[at] = token, at, 1
        batch.n_seq_id[at], batch.seq_id[at][0] = 1, 0
    batch.n_tokens = len(tokens)
    clear(memory, True)
    if decode(context, batch) != 0:
        sys.exit("llama.cpp could not read these tokens")
    for row in range(len(tokens)):
        answers.write((ctypes.c_float * vocab).from_address(logits(context, row)))
    answers.flush()
