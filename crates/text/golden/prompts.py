"""Prompts as `transformers` renders them from the models' own templates: writes prompts.json."""
import datetime
import json
import os
import pathlib

import corpus
from gguf import GGUFReader
from tokenizers import Tokenizer
from transformers.utils import chat_template_utils

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "flint"
CASES = json.loads((corpus.HERE / "cases.json").read_text())


class FixedDate(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(CASES["now_unix_s"], datetime.timezone.utc)


chat_template_utils.datetime = FixedDate


def gguf(name):
    fields = GGUFReader(CACHE / "models" / f"{name}.gguf").fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    bos = tokens[fields["tokenizer.ggml.bos_token_id"].contents()]
    return fields["tokenizer.chat_template"].contents(), bos


def config(name):
    data = json.loads((CACHE / "tokenizers" / name / "tokenizer_config.json").read_text())
    return data["chat_template"], data.get("bos_token")


def fixture(name, bos):
    return (corpus.HERE / "templates" / f"{name}.jinja").read_text(), bos


MODELS = {
    "smollm2-135m": gguf("smollm2-135m"),
    "qwen2.5-coder-1.5b": gguf("qwen2.5-coder-1.5b"),
    "qwen3": config("qwen3"),
    "llama3.1": config("llama3.1"),
    "qwen3-coder": fixture("qwen3-coder", None),
    "gpt-oss": fixture("gpt-oss", "<|startoftext|>"),
}


# Whose `tokenizer.json` gives the ids of a model's prompts.
TOKENIZERS = {"qwen2.5-coder-1.5b": "qwen2.5", "qwen3": "qwen3", "qwen3-coder": "qwen3", "llama3.1": "llama3.1", "gpt-oss": "gpt-oss"}


def message(m):
    m = dict(m)
    if "reasoning" in m:
        m["reasoning_content"] = m["thinking"] = m.pop("reasoning")
    if "tool_calls" in m:
        call = lambda c: {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
        m["tool_calls"] = [call(c) for c in m["tool_calls"]]
    return m


def render(template, bos, case):
    tools = [{"type": "function", "function": CASES["tools"][name]} for name in case.get("tools", [])] or None
    compiled = chat_template_utils._compile_jinja_template(template)
    return compiled.render(
        messages=[message(m) for m in case["messages"]],
        tools=tools,
        documents=None,
        add_generation_prompt=case.get("add_generation_prompt", True),
        bos_token=bos or "",
        **case.get("variables", {}),
    )


def main():
    result = {}
    for model, (template, bos) in MODELS.items():
        tokenizer = TOKENIZERS.get(model) and Tokenizer.from_file(str(CACHE / "tokenizers" / TOKENIZERS[model] / "tokenizer.json"))
        result[model] = {}
        for name, case in CASES["cases"].items():
            if model in case.get("except", []):
                continue
            text = render(template, bos, case)
            result[model][name] = {"text": text}
            if tokenizer and name != "markers_in_text":
                result[model][name]["ids"] = corpus.fnv(tokenizer.encode(text, add_special_tokens=False).ids)
    (corpus.HERE / "prompts.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
