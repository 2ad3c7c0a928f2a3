"""Digests of the reference's token ids for every chunk of the corpus: writes ids.json.

The reference is Hugging Face `tokenizers` (Oniguruma) on plain text, that is without added tokens. With
`--llama-cpp` the ids of the two GGUF vocabularies are also compared with llama.cpp's (through xllamacpp), on composed
text, because llama.cpp leaves out the NFC step of Qwen's tokenizer; the number of differences is printed.
"""
import json
import os
import pathlib
import sys
import unicodedata
import urllib.request

import corpus
from gguf import GGUFReader
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, Regex

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "flint"
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def from_json(name):
    data = json.loads((CACHE / "tokenizers" / name / "tokenizer.json").read_text())
    data["added_tokens"], data["post_processor"] = [], None
    return Tokenizer.from_str(json.dumps(data))


def from_gguf(name):
    fields = GGUFReader(CACHE / "models" / f"{name}.gguf").fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    vocab = {t: i for i, (t, kind) in enumerate(zip(tokens, types)) if kind == 1}
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE(vocab, merges))
    if fields["tokenizer.ggml.pre"].contents() == "smollm":
        steps = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    else:
        steps = [pre_tokenizers.Split(Regex(QWEN2), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return tokenizer


def llama_cpp(name):
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(CACHE / "models" / f"{name}.gguf")
    params.n_ctx, params.warmup = 256, False
    server = xllamacpp.Server(params)

    def encode(text):
        body = json.dumps({"content": text, "add_special": False, "parse_special": False}).encode()
        request = urllib.request.Request(server.listening_address + "/tokenize", body, {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request))["tokens"]

    return server, encode


def compare(name, tokenizer, chunks):
    server, encode = llama_cpp(name)
    for kind, part in (("code", chunks[: corpus.CODE_CHUNKS]), ("Unicode", chunks[corpus.CODE_CHUNKS :])):
        lines = [line for chunk in part for line in chunk.splitlines(keepends=True)] if kind == "code" else part
        lines = ["".join(lines[i : i + 200]) for i in range(0, len(lines), 200)] if kind == "code" else lines
        lines = [unicodedata.normalize("NFC", text) for text in lines]
        differ = sum(encode(text) != tokenizer.encode(text, add_special_tokens=False).ids for text in lines)
        print(f"{name}: {differ} of {len(lines)} stretches of {kind} differ from llama.cpp", file=sys.stderr)
    del server


def main():
    chunks = list(corpus.chunks())
    tokenizers = {name: from_gguf(name) for name in ("smollm2-135m", "qwen2.5-coder-1.5b")}
    tokenizers |= {name: from_json(name) for name in ("qwen2.5", "qwen3", "gpt-oss", "llama3.1")}
    result = {"corpus": [corpus.fnv(map(ord, chunk)) for chunk in chunks]}
    for name, tokenizer in tokenizers.items():
        ids = [tokenizer.encode(chunk, add_special_tokens=False).ids for chunk in chunks]
        result[name] = [corpus.fnv(i) for i in ids]
        if "--llama-cpp" in sys.argv and "-" in name and (CACHE / "models" / f"{name}.gguf").exists():
            compare(name, tokenizer, chunks)
    text = json.dumps(result, indent=0)
    (corpus.HERE / "ids.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
