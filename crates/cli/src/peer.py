"""llama.cpp as a measuring device: the address of its HTTP server, then one JSON order a line in, one JSON result a line out."""

import json
import os
import sys

import xllamacpp

model, threads, context = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # the library prints to standard output

params = xllamacpp.CommonParams()
params.model.path = model
params.n_ctx = context
params.n_parallel = 1
params.cpuparams.n_threads = threads
params.cpuparams_batch.n_threads = threads
params.n_gpu_layers = 0
params.cache_ram_mib = 0
params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
server = xllamacpp.Server(params)
print(server.listening_address, file=answers, flush=True)

for line in sys.stdin:
    order = json.loads(line)
    result = server.handle_completions(
        {
            "prompt": order["tokens"],
            "max_tokens": order["decode"] + 1,
            "temperature": 0,
            "ignore_eos": True,
            "cache_prompt": False,
            "stream": False,
        }
    )
    timings = result["timings"]
    # The first token comes out of the prefill; the rest are decoded.
    share = order["decode"] / (order["decode"] + 1)
    times = {
        "prefill_s": timings["prompt_ms"] / 1e3,
        "decode_s": timings["predicted_ms"] / 1e3 * share,
        "decoded": order["decode"],
    }
    print(json.dumps(times), file=answers, flush=True)
