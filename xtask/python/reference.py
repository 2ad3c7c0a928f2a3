"""Prompts for a tiny model, and its answers to them."""

import json

import torch

PROMPT_TOKENS = [160, 97, 130, 200]
LOGIT_POSITIONS = [0, 1, 23, 24, 31, 32, 63, 64]  # and the last: edges of windows and KV blocks
GREEDY_TOKENS = 40
GREEDY_DISTINCT_MIN = 10

# Between the top two logits, in deviations of all. Prompts are chosen clear; greedy tokens come as they come.
PROMPT_MARGIN_MIN = 0.1
GREEDY_MARGIN_MIN = 0.02


def margins(logits):
    top = logits.topk(2).values
    return (top[..., 0] - top[..., 1]) / logits.std(-1)


@torch.no_grad()
def logits_after(model, tokens):
    return model(torch.tensor([tokens])).logits[0]


def random_prompt(model, vocab, length, random):
    """Random tokens, each such that the answer after it is clear: the first that is not is drawn again."""
    tokens = torch.randint(vocab, (length,), generator=random).tolist()
    while True:
        unclear = (margins(logits_after(model, tokens)) < PROMPT_MARGIN_MIN).nonzero()
        if len(unclear) == 0:
            return tokens
        tokens[unclear[0].item()] = torch.randint(vocab, (), generator=random).item()


def greedy(model, prompt):
    """How decoding goes on; `None` when a token is nearly tied or the answer goes round in circles."""
    tokens = list(prompt)
    for _ in range(GREEDY_TOKENS):
        logits = logits_after(model, tokens)[-1]
        if margins(logits) < GREEDY_MARGIN_MIN:
            return None
        tokens.append(logits.argmax().item())
    answer = tokens[len(prompt) :]
    return answer if len(set(answer)) >= GREEDY_DISTINCT_MIN else None


def clear_prompt(model, vocab, length, random):
    """A prompt whose greedy answer is clear. Changing its end is enough to try another."""
    start = random_prompt(model, vocab, length - 1, random)
    for token in torch.randperm(vocab, generator=random).tolist():
        prompt = [*start, token]
        if margins(logits_after(model, prompt)[-1]) >= PROMPT_MARGIN_MIN:
            answer = greedy(model, prompt)
            if answer:
                return prompt, answer
    raise SystemExit("no prompt has a clear answer")


def make_prompts(model, vocab, seed):
    random = torch.Generator().manual_seed(seed)
    return [clear_prompt(model, vocab, length, random) for length in PROMPT_TOKENS]


def write(folder, model, prompts):
    entries, rows = [], []
    for tokens, answer in prompts:
        logits = logits_after(model, tokens)
        positions = [*LOGIT_POSITIONS, len(tokens) - 1]
        top = logits.argmax(-1).tolist()
        entry = dict(tokens=tokens, top=top, greedy=answer, logit_positions=positions)
        entries.append(json.dumps(entry, separators=(",", ":")))
        rows.append(logits[positions])
    body = ",\n ".join(entries)
    (folder / "reference.json").write_text(f'{{"prompts": [\n {body}\n]}}\n')
    (folder / "logits.bin").write_bytes(torch.cat(rows).numpy().astype("<f4").tobytes())
