"""Functions that say whether an environment has an expert, and that let a controller plan an expert's path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym

from gym_text.errors import UsageError
from gym_text.spec import Observation
from gym_text.text_env import TextEnv


def closed_loop_path(twin: TextEnv, seed: int, controller: Callable[[Observation], str], limit: int) -> tuple[str, ...]:
    """Let `controller` play the episode of `seed` on `twin`, for at most `limit` steps; return the names of its actions."""
    obs, path = twin._start(seed), []
    for _ in range(limit):
        path.append(controller(obs))
        outcome = twin._play(twin.text_spec.encode(path[-1], obs))
        if outcome.terminated:
            break
        obs = outcome.observation
    return tuple(path)


def has_expert(env: gym.Env[Any, Any]) -> bool:
    """Return whether an environment has an expert, even if the expert is off."""
    return bool(experts_of(env)) if isinstance(env.unwrapped, TextEnv) else hasattr(env.unwrapped, "expert")


def experts_of(env: gym.Env[Any, Any]) -> tuple[str, ...]:
    """Return which of ``path`` and ``replan`` the expert of a `TextEnv` can do; nothing without an expert."""
    env_class = type(env.unwrapped)
    if not issubclass(env_class, TextEnv):
        return ()
    replans = (env_class._replan, env_class._hint) != (TextEnv._replan, TextEnv._hint)
    return ("path",) * (env_class._plan is not TextEnv._plan) + ("replan",) * replans


def check_expert(env: gym.Env[Any, Any], what: str, *, on: bool = True) -> None:
    """Raise `UsageError` unless an environment has the expert that something needs.

    Args:
        env: The environment.
        what: What needs the expert, for the message.
        on: Whether the expert of this environment must be on.
    """
    name = env.spec.id if env.spec else str(env)
    if not has_expert(env):
        raise UsageError(f"{what}: expected an environment with an expert; {name} has none.")
    if on and getattr(env.unwrapped, "expert", None) == "off":
        raise UsageError(f"{what}: expected an environment with expert='path' or 'replan'; {name} was made with expert='off'.")
