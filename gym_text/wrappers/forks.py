"""`Forks`: copies of the environment in its present state, for policies that look ahead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from gym_text.copies import fork
from gym_text.errors import UsageError
from gym_text.spaces import AnyFunction


@dataclass(frozen=True)
class Fork:
    """Returns a copy of an environment in the state in which the environment is when it is called."""

    env: gym.Env[Any, Any]
    score: float
    """The game's score before the next step, or the sum of the rewards if the game has none."""

    def __call__(self, *, unseen: np.random.Generator | None = None) -> gym.Env[Any, Any]:
        """Return the copy; close it after use. With `unseen` it is one in which the unseen is drawn anew: see `TextEnv.fork`."""
        return fork(self.env, unseen=unseen)


class Forks(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Put a function into ``obs["fork"]`` that returns a copy of the environment in its present state.

    The player can try actions in the copy, and so knows more than other players: use it only for a policy that looks ahead. The
    function copies the state at the time of its call, so call it before the next step.

    >>> env = Forks(gym.make("gym_text:BabyAIText-v0"))
    >>> obs, info = env.reset(seed=0)
    >>> tried = obs["fork"]().step(2)[0]
    >>> tried["text"] == env.step(2)[0]["text"]
    True

    Args:
        env: An environment with Dict observations.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        if not isinstance(env.observation_space, spaces.Dict):
            raise UsageError(f"Forks: expected a Dict observation space; got {env.observation_space}.")
        self.observation_space = spaces.Dict({**env.observation_space.spaces, "fork": AnyFunction()})
        self._score = 0.0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        obs, info = self.env.reset(**kwargs)
        self._score = float(info.get("score", 0.0))
        return obs | {"fork": Fork(self.env, self._score)}, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play one action."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._score = float(info.get("score", self._score + float(reward)))
        return obs | {"fork": Fork(self.env, self._score)}, reward, terminated, truncated, info
