"""Paths of tokens behind a prompt, as servers are asked for them."""

import random

from gym_text_policies.backends.providers.paths import along, followers, parted


def random_paths(draw):
    return [[draw.randrange(6) for _ in range(draw.randrange(1, 5))] for _ in range(draw.randrange(1, 9))]


def test_the_values_of_followers_lie_along_each_path():
    paths = [[5, 2], [5, 6, 2], [7]]
    values = {before: {token: 10.0 * len(before) + token for token in tokens} for before, tokens in followers(paths).items()}
    assert along(paths, values) == [[5.0, 12.0], [5.0, 16.0, 22.0], [7.0]]


def test_parts_ask_for_each_follower_once_and_for_few_different_tokens_each():
    draw = random.Random(0)
    for _ in range(50):
        asked, most = followers(random_paths(draw)), draw.randrange(1, 5)
        parts = parted(asked, most)
        pairs = [(before, token) for part in parts for before, tokens in part for token in tokens]
        assert pairs == [(before, token) for before, tokens in asked.items() for token in tokens]
        assert max(len({token for _, tokens in part for token in tokens}) for part in parts) <= most
