"""llama.cpp's HTTP server on a free port, with its prompt cache on. Ends with its standard input."""

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
params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
server = xllamacpp.Server(params)
print(server.listening_address, file=answers, flush=True)
sys.stdin.read()
