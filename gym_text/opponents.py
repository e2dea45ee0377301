"""The opponent in a game for two players: a random player, a function, or a policy that another package makes by its name."""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from gym_text.errors import UsageError
from gym_text.spec import Observation
from gym_text.text_env import TextEnv

Player = Callable[[Observation], str]
"""Maps an observation to the name of an action."""
Opponent = Literal["random"] | str | Player
NamedOpponents = Callable[[str, Any], Callable[[int], Player]]
"""Maps a policy's name and the environment to a function from the seed of an episode's level to the player of that episode."""

_HOOK = "__gym_text_opponents__"
"""A package that offers policies sets this attribute to ``module:function``: a function of type `NamedOpponents`."""


def opponents(opponent: Opponent, env: TextEnv) -> Callable[[int], Player]:
    """Return a function that maps the seed of an episode's level to the opponent of that episode.

    Raises:
        UsageError: If there is no such opponent, or the opponent is ``random`` in a game that does not list its moves.
    """
    game = getattr(env, "game", type(env).__name__)
    if opponent == "random":
        if "valid_actions" not in env.text_spec.fields:
            raise UsageError(f"opponent: expected a policy, as {game} lists no moves from which to draw; got 'random'.")
        return lambda seed: _RandomPlayer(np.random.default_rng([seed, 1]))
    if callable(opponent):
        return lambda seed: opponent
    if not isinstance(opponent, str) or not opponent:
        raise UsageError(
            f"opponent: expected 'random', a policy's name or a function from observation to action; got {opponent!r}."
        )
    hook = next((hook for module in list(sys.modules.values()) if (hook := getattr(module, "__dict__", {}).get(_HOOK))), None)
    if hook is None:
        raise UsageError(
            f"opponent: expected 'random' or a function; got {opponent!r}. Import gym_text_policies to use a policy's name."
        )
    module, _, function = hook.partition(":")
    named: NamedOpponents = getattr(importlib.import_module(module), function)
    return named(opponent, env)


def forked(player: Player) -> Player:
    """Return the player of a copy of the game: a copy that goes on as the player would, or the player if it has no ``fork``."""
    fork: Callable[[], Player] | None = getattr(player, "fork", None)
    return fork() if fork else player


class _RandomPlayer:
    """Draws a legal move at random.

    Args:
        rng: Draws the moves.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def __call__(self, obs: Observation) -> str:
        return str(obs["valid_actions"][self._rng.integers(len(obs["valid_actions"]))])

    def fork(self) -> _RandomPlayer:
        return _RandomPlayer(copy.deepcopy(self._rng))
