"""Are the answers of a tiny model clear, and does every part of it matter?"""

import contextlib

import torch

NOISE = 0.01  # of the size of an activation: about what 8-bit activations cost
KEPT_MIN = 0.995  # share of top tokens that such noise leaves as they are
CHANGED_MIN = 0.1  # share of top tokens that change when any one attention or MLP is left out


@torch.no_grad()
def top_tokens(model, prompts):
    return torch.cat([model(torch.tensor([prompt])).logits[0].argmax(-1) for prompt in prompts])


@contextlib.contextmanager
def hooks(modules, register, hook):
    handles = [getattr(module, register)(hook) for module in modules]
    yield
    for handle in handles:
        handle.remove()


def kept_under_noise(model, prompts):
    random = torch.Generator().manual_seed(1)

    def disturb(_module, inputs):
        x = inputs[0]
        noise = torch.randn(x.shape, generator=random) * x.pow(2).mean(-1, keepdim=True).sqrt()
        return (x + NOISE * noise, *inputs[1:])

    products = [m for name, m in model.named_modules() if takes_products(name, m)]
    expected = top_tokens(model, prompts)
    with hooks(products, "register_forward_pre_hook", disturb):
        rounds = [(top_tokens(model, prompts) == expected).float().mean() for _ in range(4)]
    return sum(rounds).item() / len(rounds)


def takes_products(name, module):
    return isinstance(module, torch.nn.Linear) or name.endswith("mlp.experts")


def changed_without(model, part, prompts):
    def nothing(_module, _inputs, output):
        return tuple(torch.zeros_like(o) for o in output) if isinstance(output, tuple) else output * 0

    expected = top_tokens(model, prompts)
    with hooks([part], "register_forward_hook", nothing):
        found = top_tokens(model, prompts)
    return (found != expected).float().mean().item()


def check(name, model, prompts):
    kept = kept_under_noise(model, prompts)
    changed = []
    for layer in model.model.layers:
        changed += [changed_without(model, part, prompts) for part in (layer.self_attn, layer.mlp)]
    parts = " ".join(f"{part:.0%}" for part in changed)
    print(f"{name}: noise keeps {kept:.2%}, without a part {parts} change", flush=True)
    assert kept >= KEPT_MIN, f"{name}: the answers are not clear; make the embedding stronger"
    assert min(changed) >= CHANGED_MIN, f"{name}: a part hardly matters; make the embedding weaker"
