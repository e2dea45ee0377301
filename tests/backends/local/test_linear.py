"""Linear layers on a CPU: with weights in oneDNN's layout a model predicts as transformers' module does."""

import copy

import pytest
import torch
import transformers

from gym_text_policies.backends.local import linear
from gym_text_policies.backends.local import loading as local
from gym_text_policies.backends.local.linear import FusedLinear, fast_types, optimise_for_cpu
from gym_text_policies.backends.local.packed import PackedPrefixes
from gym_text_policies.backends.local.prefixes import Branch

needs_bfloat16 = pytest.mark.skipif(torch.bfloat16 not in fast_types(), reason="a CPU without products in bfloat16")


def read(model):
    """Return what a model predicts after trees, lines and single tokens, behind nothing and behind what it has read."""
    prefixes = PackedPrefixes(model, 1000)
    one, two = prefixes.open([(1, 2, 3, 4, 5), (7,) * 30])
    branches = [Branch.line(one, [1, 2, 3, 4, 5], [2, 4]), Branch(two, [7] * 30, [*range(-1, 28), 20], [29, 3, 28])]
    logits = prefixes.compute(branches)
    for branch in branches:
        branch.keep(len(branch.tokens) - 1)
    logits += prefixes.compute([Branch.line(one, [8], [0]), Branch(two, [8, 9, 10], [-1, 0, 0], [1, 2])])
    prefixes.compute([Branch.line(one, [11, 12], [])])  # no prediction is asked for
    return torch.cat(logits)


def tiny(kind):
    """Return a random model, its weights of a size that matters."""
    sizes = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6, "vocab_size": 64}
    config = transformers.AutoConfig.for_model(kind, num_key_value_heads=2, **sizes)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(0)
    for weight in model.parameters():
        weight.data.normal_(0, 0.3, generator=generator)
    return model


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_a_fused_model_predicts_as_the_module_does(kind):
    model = tiny(kind)
    fused, expected = optimise_for_cpu(copy.deepcopy(model)), read(model)
    assert isinstance(fused.lm_head, FusedLinear)
    assert float((read(fused) - expected).abs().max() / expected.abs().max()) < 1e-5


@needs_bfloat16
def test_a_fused_model_in_bfloat16_is_nearer_to_float32_than_the_module_is():
    model = tiny("llama").bfloat16()
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config)  # positions in float32, as where a model is loaded
    exact, fused = copy.deepcopy(model).float(), optimise_for_cpu(copy.deepcopy(model))
    assert fused.model.layers[0].mlp.up_proj.weight.dtype == torch.bfloat16 and fused.lm_head.weight.dtype == torch.float32
    expected = read(exact)
    own, plain = ((read(other) - expected).abs().mean() / expected.abs().mean() for other in (fused, model))
    assert own < plain and own < 0.02


def test_a_cpu_that_cannot_multiply_bfloat16_keeps_the_module_and_says_so(monkeypatch, caplog, small_model):
    for module in (linear, local):
        monkeypatch.setattr(module, "fast_types", lambda: frozenset([torch.float32]))
    monkeypatch.setattr(local, "load_model", lambda source: (copy.deepcopy(small_model[0]).bfloat16(), small_model[1]))
    assert not any(isinstance(layer, FusedLinear) for layer in optimise_for_cpu(tiny("llama").bfloat16()).modules())
    backend = local.load_transformers("smollm2", dtype="bfloat16", device="cpu", max_cached_tokens=77)
    assert backend.config["dtype"] == "bfloat16" and "Take dtype='float32'" in caplog.text
