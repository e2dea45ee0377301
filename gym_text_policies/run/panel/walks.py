"""Walks through a level, by the expert's path or at random, and digests of what a player can perceive on them."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from gym_text_policies.files.json_data import plain
from gym_text_policies.policy import text_spec
from gym_text_policies.run.panel.worlds import Panel

RANDOM_STEPS = 20
"""Most steps of the random path of a digest."""
Choose = Callable[[Mapping[str, Any], Mapping[str, Any]], str | None]
"""From an observation and ``info`` to the name of an action; None ends the walk."""


@dataclass(frozen=True)
class Walk:
    """An episode that follows a fixed path."""

    total_reward: float
    """The return."""
    length: int
    """Number of steps."""
    over: bool
    """Whether the episode had ended at the last step."""
    won: bool
    """Whether the task was done then."""
    digest: str
    """SHA-256 of all that a player can perceive on the walk, as hexadecimal digits."""


def walk(env: gym.Env[Any, Any], level: int, choose: Choose, most: int | None = None, *, decimals: int = 6) -> Walk:
    """Play a level.

    Args:
        env: The environment.
        level: Seed of the episode.
        choose: Chooses the actions.
        most: Most steps; None: to the end of the episode.
        decimals: Decimals to which the digest rounds rewards.
    """
    obs, info = env.reset(seed=level)
    spec, content, total, length, over = text_spec(env), hashlib.sha256(), 0.0, 0, False
    content.update(_perceived(obs, None, info, decimals))
    while not over and length != most and (name := choose(obs, info)) is not None:
        obs, reward, terminated, truncated, info = env.step(spec.encode(name, dict(obs)))
        total, length, over = total + float(reward), length + 1, bool(terminated or truncated)
        content.update(_perceived(obs, (name, float(reward), bool(terminated), bool(truncated)), info, decimals))
    return Walk(total, length, over, bool(info.get("success")), content.hexdigest())


def _perceived(obs: Mapping[str, Any], step: tuple[str, float, bool, bool] | None, info: Mapping[str, Any], decimals: int) -> bytes:
    """Return as one line what a player can perceive: the action, the observation, the reward, and how the episode ended."""
    played = None if step is None else [step[0], round(step[1], decimals) + 0.0, *step[2:]]  # adding 0 turns -0 into 0
    ended = [bool(info.get("success")), bool(info.get("failure"))]
    return (json.dumps([played, plain(obs), ended], sort_keys=True) + "\n").encode()


def by_expert(obs: Mapping[str, Any], info: Mapping[str, Any]) -> str | None:
    """Return the next action of the expert's path; None at its end."""
    action: str | None = info.get("gold_action")
    return action


def at_random(env: gym.Env[Any, Any], name: str, level: int, number: int) -> Choose:
    """Return a function that draws one of the valid actions.

    The draws are those of `random.Random.random`, which is the same in all versions of Python.

    Args:
        env: The environment.
        name: Name of the world.
        level: Seed of the level.
        number: Number of the walk in this level.
    """
    rng, spec = random.Random(f"{name} {level} {number}"), text_spec(env)

    def draw(obs: Mapping[str, Any], info: Mapping[str, Any]) -> str:
        names = spec.names(dict(obs))
        return names[int(rng.random() * len(names))]

    return draw


def expert_walks(panel: Panel, name: str, levels: Sequence[int]) -> Iterator[Walk]:
    """Yield the walk along the expert's path in each level of a world."""
    with closing(panel.maker(name, expert="path")()) as env:
        for level in levels:
            yield walk(env, level, by_expert, decimals=panel.worlds[name].decimals)


def random_walks(
    panel: Panel, name: str, levels: Sequence[int], number: int = 0, most: int | None = RANDOM_STEPS
) -> Iterator[Walk]:
    """Yield a random walk in each level of a world, the one of a number."""
    with closing(panel.maker(name, expert="off")()) as env:
        for level in levels:
            yield walk(env, level, at_random(env, name, level, number), most, decimals=panel.worlds[name].decimals)


def level_digest(expert: Walk, drawn: Walk) -> str:
    """Return the digest of a level, 16 hexadecimal digits, from the expert's walk and a random one."""
    return hashlib.sha256(f"{expert.digest} {drawn.digest}".encode()).hexdigest()[:16]


def level_digests(panel: Panel, name: str, levels: Sequence[int]) -> Iterator[str]:
    """Yield the digest of each level of a world."""
    yield from map(level_digest, expert_walks(panel, name, levels), random_walks(panel, name, levels))
