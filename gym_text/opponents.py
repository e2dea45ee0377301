"""Who plays the other side of a game for two: chance, a function, or a policy that another package knows by its name."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from gym_text.errors import UsageError
from gym_text.spec import Observation
from gym_text.text_env import TextEnv

Player = Callable[[Observation], str]
"""From an observation to the words of an action."""
Opponent = Literal["random"] | str | Player
NamedOpponents = Callable[[str, Any], Callable[[int], Player]]
"""From a name and the environment to a function that gives the player of an episode, by the seed of its level."""

_HOOK = "__gym_text_opponents__"
"""Attribute in which a package that knows policies says, as ``module:function``, which `NamedOpponents` makes them."""


def opponents(opponent: Opponent, env: TextEnv) -> Callable[[int], Player]:
    """Return a function that gives the opponent of an episode, by the seed of its level.

    Raises:
        UsageError: If there is no such opponent, or chance is to play a game whose moves are not listed.
    """
    game = getattr(env, "game", type(env).__name__)
    if opponent == "random":
        if "valid_actions" not in env.text_spec.fields:
            raise UsageError(f"opponent: expected a policy, as {game} does not list its moves for one to be drawn; got 'random'.")
        return _drawn
    if callable(opponent):
        return lambda seed: opponent
    if not isinstance(opponent, str) or not opponent:
        raise UsageError(
            f"opponent: expected 'random', a policy's name or a function from observation to action; got {opponent!r}."
        )
    hook = next((hook for module in list(sys.modules.values()) if (hook := getattr(module, "__dict__", {}).get(_HOOK))), None)
    if hook is None:
        raise UsageError(
            f"opponent: expected 'random' or a function; got {opponent!r}. import gym_text_policies makes policies known."
        )
    module, _, function = hook.partition(":")
    named: NamedOpponents = getattr(importlib.import_module(module), function)
    return named(opponent, env)


def _drawn(seed: int) -> Player:
    """Return a player that draws any legal move."""
    rng = np.random.default_rng([seed, 1])
    return lambda obs: str(obs["valid_actions"][rng.integers(len(obs["valid_actions"]))])
