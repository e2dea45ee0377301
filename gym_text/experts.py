"""Which environments have an expert, and what each action costs it; the base class of tasks whose expert is a controller."""

from __future__ import annotations

import math
from abc import abstractmethod
from contextlib import closing
from functools import cached_property
from typing import Any, ClassVar, Self

import gymnasium as gym
import numpy as np

from gym_text.errors import UsageError
from gym_text.screen import prepare_pygame
from gym_text.spec import Observation
from gym_text.text_env import TextEnv

_MOST_STEPS = 1000
"""Most steps that the expert plays in a copy to win."""


class ControlTaskEnv(TextEnv):
    """A control task of Gymnasium's, whose expert is a function from an observation to an action's name.

    A subclass sets `_game`, Gymnasium's environment, and implements `_observation`.
    """

    most_steps: ClassVar[int]
    """Most steps of the expert's path, which it plays on a second game, the twin: the registered limit."""
    _game: Any
    _seen: Observation

    @staticmethod
    @abstractmethod
    def controller(obs: Observation) -> str:
        """Return the name of the expert's action."""

    @abstractmethod
    def _observation(self, state: np.ndarray) -> Observation:
        """Return the observation of a state."""

    def _start(self, seed: int) -> Observation:
        state, _ = self._game.reset(seed=seed)
        self._seen = self._observation(state)
        return self._seen

    def _plan(self, seed: int) -> tuple[str, ...] | None:
        obs, path = self._twin._start(seed), []
        for _ in range(self.most_steps):
            path.append(self.controller(obs))
            outcome = self._twin._play(self.text_spec.encode(path[-1], obs))
            if outcome.terminated:
                break
            obs = outcome.observation
        return tuple(path)

    @cached_property
    def _twin(self) -> Self:
        """A second game, on which the expert plans."""
        return self._anew()

    def _hint(self) -> str | None:
        return self.controller(self._seen)

    def _frame(self) -> np.ndarray:
        prepare_pygame("box2d")
        return np.asarray(self._game.render())

    def close(self) -> None:
        """End the episode and close the picture's surface."""
        super().close()
        self._game.close()


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


def replanning(env: gym.Env[Any, Any]) -> TextEnv:
    """Return an environment without its wrappers; raise `UsageError` unless it was made with ``expert="replan"``."""
    base = env.unwrapped
    if not isinstance(base, TextEnv) or base.expert != "replan":
        raise UsageError(f"best actions: expected an environment with expert='replan'; got {env}.")
    return base


def expert_costs(env: gym.Env[Any, Any]) -> dict[str, float]:
    """Return for each valid action, by its name, how many steps the expert takes to win after it; infinite where it does not win.

    The actions are tried in copies, in which the expert goes on; the environment stays as it is. A whole plan is not played, but
    counted. The costs are this expert's: another player might need fewer steps.

    >>> env = gym.make("gym_text:SokobanText-v0", expert="replan")
    >>> obs, info = env.reset(seed=0)
    >>> costs = expert_costs(env)
    >>> min(costs, key=costs.get) == info["gold_action"], min(costs.values()) == len(info["gold_path"]) - 1
    (True, True)

    Args:
        env: A `TextEnv` that was made with ``expert="replan"``, with a running episode. Its wrappers are left out, also those that
            change names.

    Raises:
        UsageError: If the environment has no such expert.
        StepOrderError: Without an episode.
    """
    base = replanning(env)
    return {name: _cost(base, name) for name in base.text_spec.names(base._observed)}


def best_actions(env: gym.Env[Any, Any]) -> tuple[str, ...]:
    """Return the names of all valid actions after which the expert takes the fewest steps to win; none if it wins after none.

    Argument and errors are those of `expert_costs`.
    """
    costs = expert_costs(env)
    fewest = min(costs.values(), default=math.inf)
    return tuple(name for name, cost in costs.items() if cost == fewest < math.inf)


def _cost(env: TextEnv, name: str) -> float:
    """Return how many steps the expert takes to win after an action."""
    obs = env._observed
    with closing(env.fork(hints=True)) as copied:
        for steps in range(_MOST_STEPS):
            obs, _, terminated, truncated, info = copied.step(env.text_spec.encode(name, obs))
            if info["success"]:
                return steps
            if terminated or truncated or "gold_action" not in info:
                break
            if "gold_steps" in info:
                return float(steps + info["gold_steps"])
            name = info["gold_action"]
    return math.inf
