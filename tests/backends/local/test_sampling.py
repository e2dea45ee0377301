"""Draws among the most probable tokens are those of transformers' `generate`."""

import math

import pytest
import torch

from gym_text_policies.backends.base import Request
from gym_text_policies.backends.local.sampling import Sampler


def logits_of(seed):
    return 3 * torch.randn(300, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("limits", [{"top_k": 5}, {"top_k": 1000, "top_p": 0.9}, {"min_p": 0.02}], ids=str)
def test_the_log_probability_is_that_of_the_distribution_that_was_drawn_from(limits):
    logits = logits_of(0) / 1.5
    order, kept = logits.argsort(descending=True), logits.softmax(-1)
    sizes = {"top_k": 5, "top_p": int((kept[order].cumsum(0) < 0.9).sum()) + 1, "min_p": int((kept >= 0.02 * kept.max()).sum())}
    left = torch.full_like(logits, -math.inf)
    among = order[: min(size for name, size in sizes.items() if limits.get(name, 1000) < 1000)]
    left[among] = logits[among]
    sampler = Sampler(Request((), temperature=1.5, seed=1, tokens=True, **limits))
    tokens = list(sampler.take(logits_of(0).expand(200, -1)))
    assert 1 < len({*tokens}) <= len(among)
    assert sampler.log_probs == pytest.approx([float(left.log_softmax(-1)[token]) for token in tokens])


def test_without_a_temperature_nothing_is_drawn_and_no_limit_holds():
    sampler = Sampler(Request((), top_k=1, top_p=0.1, min_p=0.5, seed=1, tokens=True))
    logits = logits_of(2)
    assert list(sampler.take(logits[None])) == [int(logits.argmax())]
    assert sampler.log_probs == pytest.approx([float(logits.log_softmax(-1).max())])
