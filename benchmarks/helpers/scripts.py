"""Actions that are drawn once and then played by every contender."""

from __future__ import annotations

import random
from typing import Any

import gymnasium as gym

Script = tuple[int, list[str]]
"""A seed, and actions that do not end its game."""


def random_scripts(env: gym.Env[Any, Any], games: int, steps: int) -> list[Script]:
    """Return the first seeds whose game survives random valid actions, with those actions.

    Args:
        env: Without a step limit.
        games: Number of seeds.
        steps: Actions of each.
    """
    scripts: list[Script] = []
    seed = 0
    while len(scripts) < games:
        rng, (obs, _), actions, over = random.Random(seed), env.reset(seed=seed), [], False
        while len(actions) < steps and not over:
            actions.append(rng.choice(obs["valid_actions"]))
            obs, _, over, _, _ = env.step(actions[-1])
        if not over:
            scripts.append((seed, actions))
        seed += 1
    return scripts
