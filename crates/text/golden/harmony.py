"""Prompts as OpenAI's own `openai-harmony` (PyPI, 0.0.8) renders them: writes harmony.json.

The package wants the ranks of o200k_base from the network; they are rebuilt from gpt-oss's tokenizer.json, and the package
checks their digest.
"""
import base64
import json
import os
import pathlib
import tempfile

import corpus

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "flint"
CASES = json.loads((corpus.HERE / "cases.json").read_text())


def write_ranks(folder):
    vocab = json.loads((CACHE / "tokenizers/gpt-oss/tokenizer.json").read_text())["model"]["vocab"]
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    shifted = [b for b in range(256) if b not in plain]
    alphabet = {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(shifted)}
    line = lambda token, rank: base64.b64encode(bytes(alphabet[c] for c in token)).decode() + f" {rank}\n"
    ranks = "".join(line(token, rank) for token, rank in sorted(vocab.items(), key=lambda item: item[1]))
    (folder / "o200k_base.tiktoken").write_text(ranks)


folder = pathlib.Path(tempfile.mkdtemp())
write_ranks(folder)
os.environ["TIKTOKEN_ENCODINGS_BASE"] = str(folder)
from openai_harmony import (  # noqa: E402
    Author, Conversation, DeveloperContent, HarmonyEncodingName, Message, ReasoningEffort, Role, SystemContent,
    ToolDescription, load_harmony_encoding,
)


def system(case):
    variables = case.get("variables", {})
    content = SystemContent.new().with_conversation_start_date("2026-11-15")
    content = content.with_reasoning_effort(ReasoningEffort[variables.get("reasoning_effort", "medium").upper()])
    if "model_identity" in variables:
        content = content.with_model_identity(variables["model_identity"])
    return Message.from_role_and_content(Role.SYSTEM, content)


def developer(case):
    first = case["messages"][0]
    tools = [ToolDescription.new(t["name"], t["description"], parameters=t["parameters"]) for t in (CASES["tools"][n] for n in case.get("tools", []))]
    content = DeveloperContent.new()
    if first["role"] == "system":
        content = content.with_instructions(first["content"])
    if tools:
        content = content.with_function_tools(tools)
    return [Message.from_role_and_content(Role.DEVELOPER, content)] if tools or first["role"] == "system" else []


def assistant(message, keep_reasoning):
    text = lambda content, channel: Message.from_role_and_content(Role.ASSISTANT, content).with_channel(channel)
    calls = message.get("tool_calls", [])
    if keep_reasoning and "reasoning" in message:
        yield text(message["reasoning"], "analysis")
    if message["content"]:
        yield text(message["content"], "commentary" if calls else "final")
    for call in calls:
        arguments = json.dumps(call["arguments"], ensure_ascii=False, separators=(",", ":"))
        yield text(arguments, "commentary").with_recipient("functions." + call["name"]).with_content_type("<|constrain|>json")


def messages(case):
    given = case["messages"]
    finals = [i for i, m in enumerate(given) if m["role"] == "assistant" and not m.get("tool_calls")]
    yield system(case)
    yield from developer(case)
    for i, m in enumerate(given):
        if m["role"] == "user":
            yield Message.from_role_and_content(Role.USER, m["content"])
        elif m["role"] == "assistant":
            yield from assistant(m, not finals or i > finals[-1])
        elif m["role"] == "tool":
            author = Author.new(Role.TOOL, "functions." + m["name"])
            yield Message.from_author_and_content(author, m["content"]).with_channel("commentary").with_recipient("assistant")


def main():
    encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    result = {}
    for name, case in CASES["cases"].items():
        conversation = Conversation.from_messages(list(messages(case)))
        if case.get("add_generation_prompt", True):
            ids = encoding.render_conversation_for_completion(conversation, Role.ASSISTANT)
        else:
            ids = encoding.render_conversation(conversation)
        result[name] = {"text": encoding.decode_utf8(ids), "ids": corpus.fnv(ids)}
    (corpus.HERE / "harmony.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
