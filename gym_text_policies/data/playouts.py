"""Random play in exact copies of a game, which finds what raises the score, until the game is won.

Nobody is asked: neither a model nor an expert. From a state, playouts of random actions begin in copies. Each ends where the score
is higher than before, and the shortest of the first few is kept; from its end it goes on. Actions after which the game looks as it
did before are not tried again there. So a kitchen whose score rises with each ingredient, cut and dish is finished in a few
thousand steps of the game. Where the score tells nothing before the win, only a near win is found.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from gym_text.copies import fork
from gym_text.wrappers.forks import Look, look
from gym_text_policies.policy import text_spec

LENGTH = 14
"""Most actions of a playout that change something."""
ENOUGH = 4
"""The shortest of so many playouts is kept."""
_LEAST = 1e-9
"""A score that rises by less has not risen."""


@dataclass(frozen=True)
class _Rise:
    """The end of a playout: what was played, and the copy in which it was played."""

    names: tuple[str, ...]
    env: gym.Env[Any, Any]
    obs: Mapping[str, Any]
    score: float
    won: bool


def place_of(obs: Mapping[str, Any]) -> Look:
    """Return what a state looks like, whatever the last action was answered, where the observation has this apart."""
    return look({**obs, "text": obs.get("look") or obs.get("text", "")})


def way_to_win(env: gym.Env[Any, Any], obs: Mapping[str, Any], score: float, playouts: int, rng: random.Random) -> tuple[str, ...]:
    """Return actions that win from the state of an environment, which stays as it is; none if nothing was found.

    Args:
        env: The environment, which lists its actions.
        obs: Its observation.
        score: The game's score in this state.
        playouts: Most playouts for each rise of the score.
        rng: Draws the actions.
    """
    useless: defaultdict[Look, set[str]] = defaultdict(set)
    names: tuple[str, ...] = ()
    rise = _Rise((), fork(env), obs, score, won=False)
    while not rise.won:
        with closing(rise.env):
            found = _next_rise(rise, playouts, rng, useless)
        if found is None:
            return ()
        rise, names = found, names + found.names
    rise.env.close()
    return names


def _next_rise(rise: _Rise, playouts: int, rng: random.Random, useless: defaultdict[Look, set[str]]) -> _Rise | None:
    """Return the shortest of the first playouts that raise the score, or None."""
    best: _Rise | None = None
    enough = ENOUGH
    for _ in range(playouts):
        found = _playout(rise, len(best.names) - 1 if best else LENGTH, rng, useless)
        if found is None:
            continue
        if best:
            best.env.close()
        best, enough = found, enough - 1
        if best.won or not enough or len(best.names) == 1:
            break
    return best


def _playout(rise: _Rise, length: int, rng: random.Random, useless: defaultdict[Look, set[str]]) -> _Rise | None:
    """Play random actions in a copy up to a higher score; return None if there is none."""
    env, obs, played = fork(rise.env), rise.obs, list[str]()
    spec, here, score = text_spec(env), place_of(obs), rise.score
    for _ in range(length):
        names = [name for name in spec.names(dict(obs)) if name not in useless[here]]
        if not names:
            break
        name = rng.choice(names)
        obs, reward, over, _, info = env.step(spec.encode(name, dict(obs)))
        score, won = score + float(reward), bool(info.get("success"))
        if won or (score > rise.score + _LEAST and not over):
            return _Rise((*played, name), env, obs, score, won)
        if over or info.get("failure"):
            break
        there = place_of(obs)
        if there == here:
            useless[here].add(name)
        else:
            played.append(name)
            here = there
    env.close()
    return None
