"""The forward pass on a CPU: reordered weights and a Llama of its own predict as transformers' modules do."""

import copy

import pytest
import torch
import transformers
from torch import nn

from gym_text_policies.backends.local.linear import FusedLinear
from gym_text_policies.backends.local.llama import FusedLlama, optimise_for_cpu
from gym_text_policies.backends.local.packed import PackedPrefixes
from gym_text_policies.backends.local.prefixes import Branch


@pytest.mark.parametrize("bias", [False, True])
def test_fused_layers_have_the_same_sums(bias):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(192, 576, bias=bias), nn.ReLU(), nn.Linear(576, 96, bias=bias))
    fused = optimise_for_cpu(copy.deepcopy(plain))
    assert isinstance(fused[0], FusedLinear) and isinstance(fused[2], FusedLinear)
    with torch.inference_mode():
        for tokens in (1, 2, 7, 8, 9, 64, 65, 300):
            inputs = torch.randn(1, tokens, 192)
            expected = plain(inputs)
            assert fused(inputs).shape == expected.shape
            assert float((fused(inputs) - expected).abs().max() / expected.abs().max()) < 1e-5


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


def closeness(model, other):
    expected = read(model)
    return float((read(other) - expected).abs().max() / expected.abs().max())


def tiny(kind, **options):
    """Return a random model, its weights and biases of a size that matters."""
    sizes = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6, "vocab_size": 64}
    config = transformers.AutoConfig.for_model(kind, **{"num_key_value_heads": 2, **sizes, **options})
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(0)
    for weight in model.parameters():
        weight.data.normal_(0, 0.3, generator=generator)
    return model


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_key_value_heads": 6, "tie_word_embeddings": True},
        {"num_key_value_heads": 1, "head_dim": 16, "attention_bias": True, "mlp_bias": True},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0}, "rms_norm_eps": 0.1},
    ],
    ids=["grouped heads", "tied head", "biases", "scaled positions"],
)
def test_a_fused_llama_predicts_as_the_module_does(options):
    model = tiny("llama", **options)
    fused = optimise_for_cpu(copy.deepcopy(model))
    assert isinstance(fused, FusedLlama)
    assert closeness(model, fused) < 1e-5


@pytest.mark.parametrize("kind, options", [("qwen2", {}), ("mistral", {"sliding_window": None}), ("llama", {"hidden_act": "gelu"})])
def test_what_is_no_plain_llama_keeps_its_own_forward_pass(kind, options):
    model = tiny(kind, **options)
    fused = optimise_for_cpu(copy.deepcopy(model))
    assert type(fused) is type(model) and isinstance(fused.lm_head, FusedLinear)
    assert closeness(model, fused) < 1e-5
