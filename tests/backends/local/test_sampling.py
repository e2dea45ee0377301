"""Draws among the most probable tokens are those of transformers' `generate`."""

import math

import pytest
import torch
from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from gym_text_policies.backends.local.sampling import Draw, Sampler

LIMITS = [
    *({"top_k": number} for number in (1, 1000)),
    *({"top_p": share} for share in (0.05, 0.9)),
    {"min_p": 0.3},
    {"top_k": 40, "top_p": 0.8, "min_p": 0.1},
]
WARPERS = {"top_k": TopKLogitsWarper, "top_p": TopPLogitsWarper, "min_p": MinPLogitsWarper}


def logits_of(seed):
    return 3 * torch.randn(300, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_limits_leave_the_tokens_and_the_probabilities_that_transformers_leaves(limits, temperature=0.7):
    for seed in range(5):
        expected = TemperatureLogitsWarper(temperature)(None, logits_of(seed)[None])
        for name, value in limits.items():
            expected = WARPERS[name](value)(None, expected)
        found = Draw(temperature, **limits).limited(logits_of(seed) / temperature)
        assert torch.equal(found > -math.inf, expected[0] > -math.inf)
        assert torch.allclose(found.softmax(-1), expected[0].softmax(-1))


def test_the_log_probability_is_that_of_the_distribution_that_was_drawn_from():
    draw, logits = Draw(1.5, top_k=5, top_p=0.9), logits_of(0)
    left = draw.limited(logits / 1.5).log_softmax(-1)
    sampler = Sampler(draw, 1, keeps=True)
    tokens = list(sampler.take(logits.expand(200, -1)))
    assert 1 < len({*tokens}) <= 5
    assert sampler.log_probs == pytest.approx([float(left[token]) for token in tokens])


def test_without_a_temperature_nothing_is_drawn_and_no_limit_holds():
    sampler = Sampler(Draw(0.0, top_k=1, top_p=0.1, min_p=0.5), 1, keeps=True)
    logits = logits_of(2)
    assert list(sampler.take(logits[None])) == [int(logits.argmax())]
    assert sampler.log_probs == pytest.approx([float(logits.log_softmax(-1).max())])
