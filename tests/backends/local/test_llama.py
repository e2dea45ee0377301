"""The forward pass on a CPU: reordered weights and a Llama of its own predict as transformers' modules do."""

import copy

import pytest
import torch
import transformers
from torch import nn

from gym_text_policies.backends.local import attention, llama
from gym_text_policies.backends.local import loading as local
from gym_text_policies.backends.local.attention import Mask
from gym_text_policies.backends.local.exactness import exact_prefixes
from gym_text_policies.backends.local.linear import FusedLinear, fast_types
from gym_text_policies.backends.local.llama import FusedLlama, optimise_for_cpu
from gym_text_policies.backends.local.packed import PackedPrefixes
from gym_text_policies.backends.local.prefixes import Branch
from gym_text_policies.backends.local.tree import depths, spans


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


needs_bfloat16 = pytest.mark.skipif(torch.bfloat16 not in fast_types(), reason="a CPU without products in bfloat16")


@needs_bfloat16
@pytest.mark.parametrize("options", [{}, {"num_key_value_heads": 1, "head_dim": 16, "attention_bias": True, "mlp_bias": True}])
def test_a_fused_llama_in_bfloat16_is_nearer_to_float32_than_the_module_is(options):
    model = tiny("llama", **options).bfloat16()
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config)  # positions in float32, as where a model is loaded
    exact, fused = copy.deepcopy(model).float(), optimise_for_cpu(copy.deepcopy(model))
    assert isinstance(fused, FusedLlama) and fused.dtype == torch.bfloat16
    expected = read(exact)
    own, plain = ((read(other) - expected).abs().mean() / expected.abs().mean() for other in (fused, model))
    assert own < plain and own < 0.02
    assert exact_prefixes(model, 1000, optimise=True).way == "packed", "as exact as the module's own bfloat16 allows"


@needs_bfloat16
def test_linear_layers_of_any_model_in_bfloat16_are_fused():
    model = tiny("qwen2").bfloat16()
    fused = optimise_for_cpu(copy.deepcopy(model))
    assert isinstance(fused.lm_head, FusedLinear) and closeness(model, fused) < 0.05


def test_a_cpu_that_cannot_multiply_bfloat16_keeps_the_module_and_says_so(monkeypatch, caplog, small_model):
    monkeypatch.setattr(llama, "fast_types", lambda: frozenset([torch.float32]))
    monkeypatch.setattr(local, "fast_types", lambda: frozenset([torch.float32]))
    monkeypatch.setattr(local, "load_model", lambda source: (copy.deepcopy(small_model[0]).bfloat16(), small_model[1]))
    assert type(optimise_for_cpu(tiny("llama").bfloat16())) is transformers.LlamaForCausalLM
    backend = local.load_transformers("smollm2", dtype="bfloat16", device="cpu", max_cached_tokens=77)
    assert backend.config["dtype"] == "bfloat16" and "Take dtype='float32'" in caplog.text


@pytest.mark.parametrize("room", [0, 5, 100])
@pytest.mark.parametrize("new", [2, 11, 12, 40, 70])
def test_attention_by_products_equals_attention_whatever_stands_behind_the_keys(new, room, monkeypatch):
    monkeypatch.setattr(attention, "_BLOCK", 32)
    torch.manual_seed(0)
    queries, keys, values = torch.randn(6, new, 16), torch.randn(2, new + 9, 16), torch.randn(2, new + 9, 16)
    parents = [*range(-1, new // 2), *[new // 2] * (new - new // 2 - 1)]  # a line of tokens, and single ones behind it
    tree = torch.tensor([depths(parents, 9), *spans(parents)])
    mask = Mask(9, tree, new, 9 + new, torch.float32)
    expected = nn.functional.scaled_dot_product_attention(
        queries[None], keys[None], values[None], mask.within(None), enable_gqa=True
    )[0]
    keys, values = (torch.cat([states, 100 * torch.randn(2, room, 16)], dim=1) for states in (keys, values))
    with torch.inference_mode():
        found = llama._attended(queries, keys, values, Mask(9, tree, new, 9 + new, torch.float32))
    assert torch.allclose(found, expected.transpose(0, 1).flatten(1), atol=1e-5)
