"""What is drawn from the global generators depends on one generator alone, and leaves them as they were."""

import random

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gym_text_policies.policies.user_policies import drawing_from


def draws(space):
    """Return a number from each global generator, and a sample."""
    return random.random(), np.random.random(), float(torch.rand(())), int(space.sample())


def test_the_same_generator_gives_the_same_draws_whatever_was_drawn_before():
    found, space = [], spaces.Discrete(10**6)
    for _ in range(2):
        random.random(), np.random.random(), torch.rand(())
        with drawing_from(np.random.default_rng(3), space):
            found.append(draws(space))
    with drawing_from(np.random.default_rng(4), space):
        assert not set(draws(space)) & set(found[0])
    assert found[0] == found[1]


def test_the_global_generators_go_on_as_if_nothing_had_been_drawn_even_after_an_error():
    def seeded():
        random.seed(1), np.random.seed(1), torch.manual_seed(1)

    seeded()
    expected = random.random(), np.random.random(), float(torch.rand(()))
    seeded()
    with pytest.raises(KeyError), drawing_from(np.random.default_rng(0)):
        random.random(), np.random.random(), torch.rand(())
        raise KeyError
    assert (random.random(), np.random.random(), float(torch.rand(()))) == expected
