"""Are the answers of a tiny model clear, and does every part of it matter?"""

import contextlib

import torch

NOISE = 0.01  # of the size of an activation: about what 8-bit activations cost

# The least share of top tokens that such noise leaves as they are, and that leaving out any one attention or
# MLP changes. They pull against each other: quantised models need the first, the others only the second.
QUANTISED_LIMITS = (0.995, 0.03)
FLOAT_LIMITS = (0.95, 0.15)


@torch.no_grad()
def top_tokens(model, prompts):
    return model(prompts).logits.argmax(-1)


@contextlib.contextmanager
def hooks(modules, register, hook):
    handles = [getattr(module, register)(hook) for module in modules]
    yield
    for handle in handles:
        handle.remove()


def kept_under_noise(model, prompts, random):
    def disturb(_module, inputs):
        x = inputs[0]
        noise = torch.randn(x.shape, generator=random) * x.pow(2).mean(-1, keepdim=True).sqrt()
        return (x + NOISE * noise, *inputs[1:])

    products = [m for name, m in model.named_modules() if takes_products(name, m)]
    expected = top_tokens(model, prompts)
    with hooks(products, "register_forward_pre_hook", disturb):
        found = top_tokens(model, prompts)
    return (found == expected).float().mean().item()


def takes_products(name, module):
    return isinstance(module, torch.nn.Linear) or name.endswith("mlp.experts")


def changed_without(model, part, prompts):
    def nothing(_module, _inputs, output):
        return tuple(torch.zeros_like(o) for o in output) if isinstance(output, tuple) else output * 0

    expected = top_tokens(model, prompts)
    with hooks([part], "register_forward_hook", nothing):
        found = top_tokens(model, prompts)
    return (found != expected).float().mean().item()


def measure(model, vocab):
    """The share of top tokens kept under noise, and that changed without each attention and each MLP."""
    random = torch.Generator().manual_seed(1)
    prompts = torch.randint(vocab, (16, 250), generator=random)
    changed = []
    for layer in model.model.layers:
        changed += [changed_without(model, part, prompts) for part in (layer.self_attn, layer.mlp)]
    return kept_under_noise(model, prompts, random), changed
