"""`Forks`: copies of the environment in its present state, for policies that look ahead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from gym_text.copies import fork
from gym_text.errors import UsageError
from gym_text.spaces import Anything

Look = tuple[str, tuple[str, ...], tuple[tuple[str, str, tuple[int, ...], bytes], ...]]
"""What a state looks like: the text, the valid actions if they are listed, and key, type, shape and digest of each array."""


def look(obs: Mapping[str, Any]) -> Look:
    """Return what the state of an observation looks like; the picture of `Picture`, which may count steps, is left out."""
    arrays = {key: obs[key] for key in sorted(obs) if key != "picture" and isinstance(obs[key], np.ndarray)}
    digests = ((key, array.dtype.str, array.shape, sha256(array.tobytes()).digest()) for key, array in arrays.items())
    return str(obs.get("text", "")), tuple(obs.get("valid_actions", ())), tuple(digests)


@dataclass(frozen=True)
class Fork:
    """Returns a copy of an environment in the state in which the environment is when it is called."""

    env: gym.Env[Any, Any]
    score: float = 0.0
    """The sum of the episode's rewards before the next step."""
    failure: bool = False
    """Whether the task can no longer be done."""
    seen: frozenset[Look] = frozenset()
    """What the earlier states of the episode looked like."""

    def __call__(self) -> gym.Env[Any, Any]:
        """Return the copy; close it after use."""
        return fork(self.env)


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
        self.observation_space = spaces.Dict({**env.observation_space.spaces, "fork": Anything("function", callable, dict)})
        self._score = 0.0
        self._seen: frozenset[Look] = frozenset()
        self._present: Look = "", (), ()

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        obs, info = self.env.reset(**kwargs)
        self._score = 0.0
        self._seen = frozenset()
        return self._with_fork(obs, info), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play one action."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._score += float(reward)
        self._seen |= {self._present}
        return self._with_fork(obs, info), reward, terminated, truncated, info

    def _with_fork(self, obs: Mapping[str, Any], info: Mapping[str, Any]) -> dict[str, Any]:
        self._present = look(obs)
        return {**obs, "fork": Fork(self.env, self._score, bool(info.get("failure", False)), self._seen)}
