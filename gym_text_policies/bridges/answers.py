"""What all bridges do about an answer that cannot be used: one that names no possible action, or several.

The model is told, with the actions that are possible. No step is made: the game stands still, and the answer costs nothing. After
`MOST_UNUSABLE` such answers in a row the episode ends, as at a step limit.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from gym_text.errors import check_int
from gym_text.spec import Observation, TextSpec
from gym_text_policies.environments import MOST_STEPS
from gym_text_policies.policy import text_spec

MOST_UNUSABLE = 5
"""Number of unusable answers in a row after which an episode ends."""
_NOTHING = "(nothing)"


def told(spec: TextSpec, obs: Observation) -> str:
    """Return what the model is told about an unusable answer."""
    name = f"Name exactly one of these actions: {spec.choices(obs)}." if spec.lists_actions else "Say your action, in any words."
    return f"That cannot be used, and nothing has happened. {name}"


class Unusable(str):
    """An answer that cannot be used, in place of an action."""

    __slots__ = ()


class Tally:
    """Counts the unusable answers of an episode.

    Args:
        most: Number of unusable answers in a row after which the episode ends, 1 or more.

    Raises:
        UsageError: If the number is none.
    """

    def __init__(self, most: int = MOST_UNUSABLE) -> None:
        self.most = check_int("max_unusable", most, 1, MOST_STEPS)
        self.total = 0
        """Number of unusable answers so far."""
        self.in_a_row = 0
        """Number of unusable answers since the last usable one."""

    def add(self, *, usable: bool) -> bool:
        """Count an answer; return whether the episode ends."""
        self.total += not usable
        self.in_a_row = 0 if usable else self.in_a_row + 1
        return self.in_a_row >= self.most


class TellUnusable(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Takes `Unusable` answers as actions: the next observation tells the model, and the game stands still.

    Args:
        env: An environment with ``obs["text"]`` and a ``text_spec``.
        most: Number of unusable answers in a row after which the episode is truncated.
    """

    def __init__(self, env: gym.Env[Any, Any], most: int = MOST_UNUSABLE) -> None:
        RecordConstructorArgs.__init__(self, most=most)
        super().__init__(env)
        self.text_spec = _Telling(**vars(text_spec(env)))
        self._tally = Tally(most)
        self._last: tuple[Observation, dict[str, Any]] = {}, {}

    def reset(self, **arguments: Any) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode."""
        self._tally = Tally(self._tally.most)
        self._last = self.env.reset(**arguments)
        return self._last

    def step(self, action: Any) -> tuple[Observation, Any, bool, bool, dict[str, Any]]:
        """Play an action, or tell that an answer cannot be used."""
        if isinstance(action, Unusable):
            obs, info = self._last
            ends = self._tally.add(usable=False)
            return {**obs, "text": told(self.text_spec, obs)}, 0.0, False, ends, {**info, "action_was_valid": False}
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._tally.add(usable=True)
        self._last = obs, info
        return obs, reward, terminated, truncated, info


class _Telling(TextSpec):
    """A specification in which an unusable answer is an action, too."""

    def encode(self, name: str, obs: Observation) -> Any:
        """Turn an action's name into the environment's action, and let an unusable answer be."""
        return Unusable(name or _NOTHING) if isinstance(name, Unusable) else super().encode(name, obs)

    def decode(self, action: Any, obs: Observation) -> str:
        """Turn an action back into its name, or into the words that could not be used."""
        return str(action) if isinstance(action, Unusable) else super().decode(action, obs)
