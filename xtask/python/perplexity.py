"""Perplexity of the real models on a fixed text, by transformers on the dequantised files in f32.

    python perplexity.py GOLDEN MODELS     # reads GOLDEN/perplexity.txt, writes GOLDEN/perplexity.json

Each chunk starts afresh: its first token is given, the others are predicted.
"""

import json
import pathlib
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

NAMES = ["smollm2-135m", "qwen2.5-coder-1.5b"]
CHUNK = 1024  # tokens
CHUNKS = 7


def tokens_of(folder, file, text):
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    tokens = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(tokens) == text, f"{file}: the tokens are not the text"
    assert len(tokens) >= CHUNK * CHUNKS, f"{file}: only {len(tokens)} tokens"
    return tokens[: CHUNK * CHUNKS]


@torch.no_grad()
def measure(model, tokens):
    """Negative log-likelihood of all predicted tokens, and the top token at each of their places."""
    total, top = 0.0, []
    for start in range(0, len(tokens), CHUNK):
        chunk = torch.tensor([tokens[start : start + CHUNK]])
        logits = model(chunk).logits[0, :-1]
        total += torch.nn.functional.cross_entropy(logits, chunk[0, 1:], reduction="sum").item()
        top += logits.argmax(-1).tolist()
        print(f"  {start + CHUNK} tokens: {total:.3f} nats", flush=True)
    return total, top


def entry(folder, name, text):
    file = f"{name}.gguf"
    print(name, flush=True)
    tokens = tokens_of(folder, file, text)
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=file, dtype=torch.float32, attn_implementation="eager"
    )
    nll, top = measure(model.eval(), tokens)
    predicted = CHUNKS * (CHUNK - 1)
    perplexity = torch.tensor(nll / predicted, dtype=torch.float64).exp().item()
    print(f"  perplexity {perplexity:.4f}")
    return {"name": name, "nll": nll, "perplexity": perplexity, "tokens": tokens, "top": top}


def main():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(2)
    golden, models = map(pathlib.Path, sys.argv[1:3])
    text = (golden / "perplexity.txt").read_text()
    entries = [json.dumps(entry(models, name, text), separators=(",", ":")) for name in NAMES]
    body = ",\n".join(entries)
    (golden / "perplexity.json").write_text(f'{{"chunk": {CHUNK}, "models": [\n{body}\n]}}\n')


main()
