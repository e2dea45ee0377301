"""`gym-text envs`: the environments that can be played."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
from gymnasium import spaces

from gym_text.errors import GymTextError, MissingDependencyError, UsageError
from gym_text.text_env import has_expert
from gym_text_policies.environments import make_environment, playable_ids

_HEADER = ("id", "observation", "actions", "limit", "expert")


@dataclass(frozen=True)
class EnvsConfig:
    """List the environments that a language model can play: id, observation, actions, step limit, and whether it has an expert."""

    part: str = field(default="", metadata={"positional": True})
    """Only ids that contain this text; upper and lower case are the same."""
    all: bool = False
    """Also Gymnasium's own environments, which DescribeObservation describes in words."""


def run(config: EnvsConfig) -> str:
    """Return the table.

    Raises:
        UsageError: If no id contains the text.
    """
    wanted = [name for name in playable_ids(gymnasium=config.all or bool(config.part)) if config.part.lower() in name.lower()]
    if not wanted:
        raise UsageError(f"envs: expected a part of an id; no id contains {config.part!r}. gym-text envs --all lists all ids.")
    rows = [_HEADER, *(_row(name) for name in wanted)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADER))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines) + "\n\ngym-text play ID lets you play; arguments go into the name: BabyAIText-v0?task=goto"


def describe_space(space: gym.Space[Any]) -> str:
    """Return a space in a few words."""
    if isinstance(space, spaces.Text):
        return "Text"
    if isinstance(space, spaces.Discrete):
        return f"Discrete({space.n})"
    return f"Box{space.shape}" if isinstance(space, spaces.Box) else type(space).__name__


def _row(name: str) -> tuple[str, ...]:
    try:
        env = make_environment(name)
    except MissingDependencyError as error:
        return name, str(error), "", "", ""
    except (GymTextError, gym.error.Error) as error:
        return name, f"cannot be made: {error}", "", "", ""
    limit = env.spec.max_episode_steps if env.spec else None
    keys = ", ".join(env.observation_space) if isinstance(env.observation_space, spaces.Dict) else ""
    row = name, keys, describe_space(env.action_space), str(limit or "its own"), "yes" if has_expert(env) else "no"
    env.close()
    return row
