"""`History`: the last texts and actions, as a part of the observation."""

from __future__ import annotations

from collections import deque
from typing import Any

import gymnasium as gym
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from gym_text.errors import InvalidActionError, UsageError, check_int
from gym_text.spaces import TextHistory
from gym_text.spec import TextSpec


class History(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Put the episode's last n steps into ``obs["history"]``: a tuple of pairs (text, action name), the oldest first.

    The text of a pair is the ``obs["text"]`` that the action answered; the present ``obs["text"]`` is not in the history yet.
    An index beyond the valid actions has no name: its name in the history is the empty string.

    >>> env = History(gym.make("gym_text:BabyAIText-v0"), 5)
    >>> obs, info = env.reset(seed=0)
    >>> obs["history"]
    ()
    >>> before = obs["text"]
    >>> obs, *_ = env.step(2)
    >>> obs["history"] == ((before, "go forward"),)
    True

    Args:
        env: One of our environments.
        n: Most pairs to keep; None keeps all.
    """

    def __init__(self, env: gym.Env[Any, Any], n: int | None) -> None:
        n = None if n is None else check_int("n", n, 1, 1_000_000)
        RecordConstructorArgs.__init__(self, n=n)
        super().__init__(env)
        space = env.observation_space
        text = space.spaces.get("text") if isinstance(space, spaces.Dict) else None
        if not isinstance(space, spaces.Dict) or not isinstance(text, spaces.Text) or not env.has_wrapper_attr("text_spec"):
            raise UsageError(f"History: expected an environment with obs['text'] and a text_spec; got {env}.")
        self.observation_space = spaces.Dict({**space.spaces, "history": TextHistory(text.max_length, n)})
        self._spec: TextSpec = env.get_wrapper_attr("text_spec")
        self._pairs: deque[tuple[str, str]] = deque(maxlen=n)
        self._last: dict[str, Any] = {}

    def reset(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode, with an empty history."""
        obs, info = self.env.reset(**kwargs)
        self._pairs.clear()
        return self._with_history(obs), info

    def step(self, action: Any) -> tuple[dict[str, Any], Any, bool, bool, dict[str, Any]]:
        """Play one action and note it."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._pairs.append((self._last["text"], self._name(action)))
        return self._with_history(obs), reward, terminated, truncated, info

    def _with_history(self, obs: dict[str, Any]) -> dict[str, Any]:
        self._last = dict(obs)
        return obs | {"history": tuple(self._pairs)}

    def _name(self, action: Any) -> str:
        try:
            return self._spec.decode(action, self._last)
        except InvalidActionError:
            return ""
