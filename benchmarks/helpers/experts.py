"""An expert put to the test in one episode: its path is played as it is, or it takes over after random actions."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym


@dataclass(frozen=True)
class PathPlayed:
    """A gold path, played from the start."""

    length: int
    """Its steps; 0 where there is none."""
    won: bool
    """Whether it wins within the environment's limit."""
    invalid: int
    """Steps that the game did not understand."""
    unlisted: int
    """Steps that were not among the valid actions."""
    observations: tuple[Any, ...]
    """Before each step."""


def spread(numbers: Sequence[int]) -> tuple[int, float, int]:
    """Return the least, the mean and the greatest of some numbers."""
    return min(numbers), statistics.fmean(numbers), max(numbers)


def play_gold_path(env: gym.Env[Any, Any], seed: int) -> PathPlayed:
    """Play the gold path of an episode to its end, or to the environment's limit."""
    spec, (obs, info) = env.get_wrapper_attr("text_spec"), env.reset(seed=seed)
    path, truncated, invalid, unlisted, seen = info.get("gold_path", ()), False, 0, 0, []
    for name in path:
        if truncated:
            break
        seen.append(obs)
        unlisted += name not in spec.names(obs)
        obs, _, _, truncated, info = env.step(spec.encode(name, obs))
        invalid += not info["action_was_valid"]
    return PathPlayed(len(path), bool(path and info["success"]), invalid, unlisted, tuple(seen))


@dataclass(frozen=True)
class TakenOver:
    """An episode in which the replanning expert takes over after random actions."""

    over: bool
    """Whether the random actions ended the episode."""
    failed: bool
    """Whether they lost the game, as far as the game says so."""
    hint: bool
    """Whether the expert had a plan then, or the game was won."""
    won: bool
    """Whether the episode is won by following the expert's hints."""
    observations: tuple[Any, ...]
    """Before each step."""


def take_over(env: gym.Env[Any, Any], seed: int, steps: int, draw: Callable[[Any], Any]) -> TakenOver:
    """Play random actions, then follow the hints of the expert as long as there are any.

    Args:
        env: With ``expert="replan"``; its actions are their names.
        seed: Of the episode.
        steps: Random actions before the expert takes over.
        draw: Draws an action for an observation.
    """
    (obs, info), over, seen = env.reset(seed=seed), False, []
    for _ in range(steps):
        if not over:
            seen.append(obs)
            obs, _, terminated, truncated, info = env.step(draw(obs))
            over = terminated or truncated
    ended, failed, hint = over, bool(info["failure"]), "gold_action" in info or bool(info["success"])
    while not over and "gold_action" in info:
        seen.append(obs)
        obs, _, terminated, truncated, info = env.step(info["gold_action"])
        over = terminated or truncated
    return TakenOver(ended, failed, hint, bool(info["success"]), tuple(seen))
