"""What a model has read is kept by token prefix: predictions stay the same, and memory is bounded."""

import random

import pytest
import torch

from gym_text_policies.backends.local import packed
from gym_text_policies.backends.local.packed import PackedPrefixes
from gym_text_policies.backends.local.prefixes import Branch


@pytest.mark.parametrize("block", [256, 13])
def test_packed_sequences_have_the_logits_of_plain_ones(small_model, block, monkeypatch):
    network, _ = small_model
    monkeypatch.setattr(packed, "_BLOCK", block)  # 13: the last of 40 tokens, whose parent is the 21st, is a block by itself
    monkeypatch.setattr(packed, "_MOST_BLOCKS", 40)

    def close(logits, *tokens):
        plain = network(torch.tensor([tokens])).logits[0, -1]
        return float((logits - plain).abs().max() / plain.abs().max()) < 1e-5

    prefixes = PackedPrefixes(network, 1000)
    (short, long) = prefixes.open([(5, 6, 7), (8,) * 40])
    first, second = Branch.line(short, [5, 6, 7], [2]), Branch(long, [8] * 40, [*range(-1, 38), 20], [39, 38])
    with torch.inference_mode():
        one, two = prefixes.compute([first, second])
        first.keep(2), second.keep(39)
        assert close(one[0], 5, 6, 7)
        assert close(two[0], *[8] * 22), "the last token's parent is the 21st"
        assert close(two[1], *[8] * 39)
        (again,) = prefixes.open([(5, 6, 9, 10)])
        assert again is short and again.tokens == [5, 6]
        (three,) = prefixes.compute([Branch.line(again, [9, 10], [1])])
        assert close(three[0], 5, 6, 9, 10)
        assert prefixes.open([(*[8] * 30, 9)])[0].tokens == [8] * 30, "a copy of what is common"
        assert prefixes.match([8] * 39 + [1]) == 39


def test_what_is_remembered_is_bounded_and_the_least_recently_used_goes_first(small_model):
    prefixes = PackedPrefixes(small_model[0], 600)
    for number in range(10):
        (prefix,) = prefixes.open([(number,) * 100])
        branch = Branch.line(prefix, [number] * 100, [])
        prefixes.compute([branch])
        branch.keep(100)
        prefixes.open([(0,) * 101])
    assert len(prefixes) <= 600 + 128
    assert prefixes.match([0] * 100) == 99 and prefixes.match([9] * 100) == 99
    assert prefixes.match([1] * 100) == 0


def test_the_longest_remembered_beginning_is_found_among_many(small_model):
    draw, prefixes = random.Random(0), PackedPrefixes(small_model[0], 10_000)
    for _ in range(60):
        prompt = tuple(draw.choice((1, 2)) for _ in range(draw.randrange(1, 12)))
        expected = max((own.common(prompt[:-1]) for own in prefixes._known), default=0)
        assert prefixes.match(prompt) == expected
        (prefix,) = prefixes.open([prompt])
        assert prefix.tokens == list(prompt[:expected])
        branch = Branch.line(prefix, prompt[expected:], [])
        prefixes.compute([branch])
        branch.keep(len(branch.tokens))
