"""Copies of environments in the middle of an episode: how fast `fork` makes them, beside a reset with a replay of the episode."""

from __future__ import annotations

import copy
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym

from gym_text.copies import fork
from helpers.harness import by_turns

Env = gym.Env[Any, Any]
SECONDS = 0.04
"""Least time of the copies in a round, if 50 copies take that long."""
SEEDS = 10
"""Episodes that are begun in search of one that is long enough."""


def env_ids() -> list[str]:
    """Return the ids of all environments but TextWorld's, whose games need a Python of their own."""
    entries = {name: str(spec.entry_point) for name, spec in gym.registry.items()}
    return sorted(name for name, entry in entries.items() if entry.startswith("gym_text.") and ".textworld." not in entry)


def in_progress(env_id: str, steps: int) -> tuple[Env, int]:
    """Return an environment after so many steps of one episode, or before the end of the longest episode; and the steps."""
    env = gym.make(env_id, expert="off", max_episode_steps=-1)
    _, seed, actions = max((episode(env, seed, steps) for seed in range(SEEDS)), key=lambda found: (found[0], -found[1]))
    env.reset(seed=seed)
    for action in actions:
        env.step(action)
    return env, len(actions)


def episode(env: Env, seed: int, steps: int) -> tuple[int, int, list[Any]]:
    """Play at random; return the number of steps without an end, the seed, and the actions."""
    spec, rng, (obs, _) = env.get_wrapper_attr("text_spec"), random.Random(seed), env.reset(seed=seed)
    actions: list[Any] = []
    while len(actions) < steps:
        actions.append(spec.encode(rng.choice(spec.names(obs)), obs))
        obs, _, terminated, truncated, _ = env.step(actions[-1])
        if terminated or truncated:
            actions.pop()
            break
    return len(actions), seed, actions


def copies_a_second(env_id: str, steps: int, rounds: int) -> dict[str, float]:
    """Return copies a second by `fork` and by `copy.deepcopy`, which take turns, and the number of steps before them.

    The seconds are those of this thread, in which games play: what other processes take does not count.
    """
    env, played = in_progress(env_id, steps)

    def spent(copied: Callable[[Env], Env], number: int = 1) -> float:
        start = time.thread_time()
        for _ in range(number):
            copied(env).close()
        return time.thread_time() - start

    spent(fork)
    number = max(1, min(50, int(SECONDS / spent(fork))))
    seconds = by_turns({"fork": partial(spent, fork, number), "replay": partial(spent, copy.deepcopy, number)}, rounds, rounds)
    env.close()
    return {name: number / statistics.median(times) for name, times in seconds.items()} | {"step": played}
