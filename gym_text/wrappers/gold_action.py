"""`GoldAction`: the expert's hint as a part of the observation."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from gym_text.episode_state import warn_of_short_limit
from gym_text.errors import UsageError
from gym_text.spaces import FreeText


class GoldAction(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Copy ``info["gold_action"]`` into ``obs["gold_action"]``; without a hint the observation has an empty string.

    Use it only for a policy that is the expert or learns from it.

    Args:
        env: An environment whose expert is not off.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        if getattr(env.unwrapped, "expert", None) == "off":
            raise UsageError("GoldAction: expected an environment made with expert='path' or 'replan'; this one has expert='off'.")
        if not isinstance(env.observation_space, spaces.Dict):
            raise UsageError(f"GoldAction: expected a Dict observation space; got {env.observation_space}.")
        self.observation_space = spaces.Dict({**env.observation_space.spaces, "gold_action": FreeText(256)})

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; warn if the expert's path is longer than the step limit."""
        obs, info = self.env.reset(**kwargs)
        if self.spec and self.spec.max_episode_steps is not None:
            warn_of_short_limit(self.spec.id, len(info.get("gold_path", ())), self.spec.max_episode_steps)
        return obs | {"gold_action": info.get("gold_action", "")}, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play one action."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs | {"gold_action": info.get("gold_action", "")}, reward, terminated, truncated, info
