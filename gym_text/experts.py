"""Which environments have an expert; and the base class of control tasks, whose expert is a controller."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any, ClassVar, Self

import gymnasium as gym
import numpy as np

from gym_text.errors import UsageError
from gym_text.screen import prepare_pygame
from gym_text.spec import Observation
from gym_text.text_env import TextEnv


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
        """Return the name of the expert's action; `gym_text_policies.policies.baselines.ControllerPolicy` plays with it."""

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
