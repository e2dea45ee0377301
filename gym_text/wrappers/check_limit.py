"""`CheckLimit`: a warning where the step limit is too short for the expert."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium import logger
from gymnasium.utils import RecordConstructorArgs


class CheckLimit(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Warn at reset if ``info["gold_path"]`` is longer than the step limit, and say which limit would do.

    The registered environments have it on: inside them the limit, which is a wrapper's, is not known.

    Args:
        env: An environment with an expert.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self._limit = env.spec.max_episode_steps if env.spec else None

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        obs, info = self.env.reset(**kwargs)
        needed = len(info.get("gold_path", ()))
        if self._limit is not None and needed > self._limit:
            logger.warn(
                f"{self.spec.id if self.spec else self}: the expert needs {needed} steps here, the limit is {self._limit}. "
                f"Pass max_episode_steps={needed} or more to gym.make."
            )
        return obs, info
