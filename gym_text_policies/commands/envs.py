"""`gym-text envs`: the environments that can be played."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
from gymnasium import spaces

from gym_text.errors import GymTextError, MissingDependencyError, UsageError
from gym_text.experts import experts_of, has_expert
from gym_text.folds import FOLD_SIZE
from gym_text.registration import SERVED
from gym_text_policies.environments import import_module, make_environment, playable_ids
from gym_text_policies.environments.stored import owner_of
from gym_text_policies.policy import text_spec

_HEADER = ("id", "observation", "actions", "limit", "expert")
_MORE = ("expert", "levels a fold", "valid actions")
"""Columns of ``--all``, in place of the column ``expert``."""


@dataclass(frozen=True)
class EnvsConfig:
    """List the environments that a language model can play: id, observation, actions, step limit, and whether it has an expert."""

    part: str = field(default="", metadata={"positional": True})
    """List only ids that contain this text, in upper or lower case. A module may stand before it: my_games: lists all environments
    of the module my_games, and my_games:Maze those whose ids contain Maze."""
    all: bool = False
    """List also Gymnasium's own environments, which DescribeObservation describes in words. Show for each environment what its
    expert does, the number of levels of a fold, and the number of valid actions at the start of level 0."""


def run(config: EnvsConfig) -> str:
    """Return the table."""
    module, _, part = config.part.rpartition(":")
    ids = _ids_of(module) if module else playable_ids(gymnasium=config.all or bool(part))
    matches = [name for name in ids if part.lower() in name.rpartition(":")[2].lower()]
    if not matches:
        where = f"no environment of {module}" if module else "no id"
        raise UsageError(f"envs: expected a part of an id; {where} contains {part!r}. gym-text envs --all lists all that ship.")
    header = (*_HEADER[:-1], *_MORE) if config.all else _HEADER
    rows = [header, *((*row, *[""] * (len(header) - len(row))) for row in (_row(name, more=config.all) for name in matches))]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines) + f"\n\ngym-text play ID lets you play; arguments go into the name: {SERVED}"


def _ids_of(module: str) -> list[str]:
    """Return the names by which a module's environments are played, once it is imported."""
    before = set(gym.registry)
    import_module(module, f"envs {module!r}: expected a module that registers environments before the colon")
    names = [name for name in gym.registry if name not in before or f"{owner_of(name)}.".startswith(f"{module}.")]
    return [f"{module}:{name}" for name in names]


def describe_space(space: gym.Space[Any]) -> str:
    """Return a space in a few words."""
    if isinstance(space, spaces.Text):
        return "Text"
    if isinstance(space, spaces.Discrete):
        return f"Discrete({space.n})"
    return f"Box{space.shape}" if isinstance(space, spaces.Box) else type(space).__name__


def _row(name: str, *, more: bool) -> tuple[str, ...]:
    """Return the cells of an environment. If it cannot be made, these are its id and the reason."""
    try:
        with make_environment(name.rpartition(":")[2]) as env:
            limit = env.spec.max_episode_steps if env.spec else None
            keys = ", ".join(env.observation_space) if isinstance(env.observation_space, spaces.Dict) else ""
            others = _more(env) if more else ("yes" if has_expert(env) else "no",)
    except MissingDependencyError as error:
        return name, str(error)
    except (GymTextError, gym.error.Error) as error:
        return name, f"cannot be made: {error}"
    return name, keys, describe_space(env.action_space), str(limit or "its own"), *others


def _more(env: gym.Env[Any, Any]) -> tuple[str, ...]:
    """Return the cells of `_MORE`."""
    spec, (obs, _) = text_spec(env), env.reset(seed=0)
    names = spec.names(obs)
    actions = f"{len(names)} {'listed' if 'valid_actions' in obs else 'named'}" if names else "any words"
    levels = getattr(env.unwrapped, "fold_size", FOLD_SIZE)
    return ", ".join(experts_of(env)) or "none", f"{levels:,}", actions
