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

    A pair has the ``obs["text"]`` before the action, and the action's name; the present ``obs["text"]`` is not in the history yet.
    An index beyond the valid actions has no name: the history has the empty string.

    >>> env = History(gym.make("gym_text:BabyAIText-v0"), 5)
    >>> obs, info = env.reset(seed=0)
    >>> obs["history"]
    ()
    >>> before = obs["text"]
    >>> obs, *_ = env.step(2)
    >>> obs["history"] == ((before, "go forward"),)
    True

    Args:
        env: An environment with ``obs["text"]`` and a ``text_spec``.
        n: Most pairs to keep; None keeps all.
        whole: Whether to put the whole observations of these steps into ``obs["earlier"]``: a tuple, the oldest first.
    """

    def __init__(self, env: gym.Env[Any, Any], n: int | None, *, whole: bool = False) -> None:
        RecordConstructorArgs.__init__(self, n=n, **({"whole": True} if whole else {}))  # left out if False, as in earlier records
        super().__init__(env)
        n = None if n is None else check_int("n", n, 1, 1_000_000)
        space = env.observation_space
        text = space.spaces.get("text") if isinstance(space, spaces.Dict) else None
        if not isinstance(space, spaces.Dict) or not isinstance(text, spaces.Text) or not env.has_wrapper_attr("text_spec"):
            raise UsageError(f"History: expected an environment with obs['text'] and a text_spec; got {env} with {space}.")
        earlier = {"earlier": spaces.Sequence(space)} if whole else {}
        self.observation_space = spaces.Dict({**space.spaces, "history": TextHistory(text.max_length, n), **earlier})
        self._spec: TextSpec = env.get_wrapper_attr("text_spec")
        self._pairs: deque[tuple[str, str]] = deque(maxlen=n)
        self._earlier: deque[dict[str, Any]] | None = deque(maxlen=n) if whole else None
        self._last: dict[str, Any] = {}

    def reset(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode, with an empty history."""
        obs, info = self.env.reset(**kwargs)
        self._pairs.clear()
        if self._earlier is not None:
            self._earlier.clear()
        return self._with_history(obs), info

    def step(self, action: Any) -> tuple[dict[str, Any], Any, bool, bool, dict[str, Any]]:
        """Play one action and add it to the history."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        try:
            name = self._spec.decode(action, self._last)
        except InvalidActionError:
            name = ""
        self._pairs.append((self._last["text"], name))
        if self._earlier is not None:
            self._earlier.append(self._last)
        return self._with_history(obs), reward, terminated, truncated, info

    def _with_history(self, obs: dict[str, Any]) -> dict[str, Any]:
        self._last = dict(obs)
        earlier = {} if self._earlier is None else {"earlier": tuple(self._earlier)}
        return obs | {"history": tuple(self._pairs)} | earlier
