"""Sequences that attend in one product have the predictions of those that attend one after the other."""

import gc
import random

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from gym_text_policies.backends.local import exactness, pooled
from gym_text_policies.backends.local.packed import PackedPrefixes
from gym_text_policies.backends.local.pooled import PooledPrefixes
from gym_text_policies.backends.local.prefixes import Branch

SIZE = {
    **{"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "max_position_embeddings": 512, "vocab_size": 97},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "initializer_range": 0.2, "sliding_window": 16},
}


def random_model(kind, **own):
    torch.manual_seed(0)
    ends = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SIZE | ends | own)).eval()


def random_branch(draw, prefix, prompt):
    """Return a prompt's new tokens with a tree behind them, of which anything may be asked for."""
    new = list(prompt[len(prefix.tokens) :])
    tokens = new + [draw.randrange(97) for _ in range(draw.randrange(6))]
    parents = [*range(-1, len(new) - 1), *(draw.randrange(len(new) - 1, node) for node in range(len(new), len(tokens)))]
    wanted = sorted(draw.sample(range(len(tokens)), draw.randrange(1, len(tokens) + 1)))
    return Branch(prefix, tokens, parents, wanted), draw.randrange(len(new) + 1)


@pytest.mark.parametrize(("kind", "key_heads"), [("llama", 2), ("llama", 4), ("mistral", 2)])
def test_predictions_are_those_of_one_sequence_after_the_other(kind, key_heads, monkeypatch):
    monkeypatch.setattr(pooled, "_BLOCK", 64)  # the store grows many times
    model = random_model(kind, num_key_value_heads=key_heads)
    draw, known = random.Random(0), [()]
    ways = PackedPrefixes(model, 10_000), PooledPrefixes(model, 10_000)  # nothing is forgotten: both remember the same
    for _ in range(25):
        prompts = tuple(
            {
                (*draw.choice(known), *(draw.randrange(97) for _ in range(draw.choice((1, 3, 40)))))[-150:]
                for _ in range(draw.randrange(1, 6))
            }
        )
        known = [*known[-8:], *prompts]
        state, found = draw.getstate(), []
        for way in ways:
            draw.setstate(state)
            opened = way.open(prompts)
            branches = [random_branch(draw, prefix, prompt) for prefix, prompt in zip(opened, prompts, strict=True)]
            found.append(torch.cat(way.compute([branch for branch, _ in branches])))
            for branch, size in branches:
                branch.keep(size)
        assert float((found[0] - found[1]).abs().max() / found[0].abs().max()) < 1e-5
        assert ways[0].computed == ways[1].computed
    del opened, branches, branch
    gc.collect()
    store = ways[1]._store
    assert len(ways[1]) + len(store._free) == store._slots, "what is not remembered is free"
    assert len({*store._free}) == len(store._free)


def test_short_branches_are_not_padded_to_a_long_one(monkeypatch):
    model = random_model("llama")
    prefixes, passes = PooledPrefixes(model, 1000), []
    monkeypatch.setattr(PackedPrefixes, "compute", lambda self, branches: passes.append([len(b.tokens) for b in branches]) or [0])
    lengths = [3, 100, 3, 4, 3, 3]
    branches = [Branch.line(prefix, [5] * size, [0]) for prefix, size in zip(prefixes.open([(7,)] * 6), lengths, strict=True)]
    with pytest.raises(StopIteration):  # the stand-in answers for one
        prefixes.compute(branches)
    assert sorted(passes) == [[3, 3, 4, 3, 3], [100]]


def test_on_a_gpu_it_is_the_first_way_and_what_it_does_not_know_is_read_otherwise(monkeypatch):
    llama, gemma = random_model("llama"), random_model("gemma2")
    assert type(exactness.exact_prefixes(llama, 100)) is PackedPrefixes
    monkeypatch.setattr(exactness, "_POOLED_ON", ("cpu",))
    assert type(exactness.exact_prefixes(llama, 100)) is PooledPrefixes
    assert type(exactness.exact_prefixes(gemma, 100)) is PackedPrefixes
