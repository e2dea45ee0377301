"""`Picture`: the rendered picture of the present state, as a part of the observation."""

from __future__ import annotations

import contextlib
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from gym_text.errors import MissingDependencyError, UsageError
from gym_text.screen import prepare_pygame
from gym_text.spaces import Anything, is_picture


class Picture(gym.ObservationWrapper[Any, Any, Any], RecordConstructorArgs):
    """Put what ``env.render()`` draws into ``obs["picture"]``: uint8 of shape (height, width, 3).

    Args:
        env: An environment made with ``render_mode="rgb_array"``.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        if env.render_mode != "rgb_array":
            raise UsageError(
                f"Picture: expected an environment made with render_mode='rgb_array'; got render_mode={env.render_mode!r}. "
                "Give it to gym.make, or leave another one out."
            )
        if not isinstance(env.observation_space, spaces.Dict):
            raise UsageError(f"Picture: expected a Dict observation space; got {env.observation_space}.")
        self.observation_space = spaces.Dict(
            {**env.observation_space.spaces, "picture": Anything("picture", is_picture, np.zeros((1, 1, 3), np.uint8))}
        )
        with contextlib.suppress(MissingDependencyError):
            prepare_pygame("box2d")  # many environments draw with pygame, which may fail without a screen

    def observation(self, observation: Any) -> Any:
        """Return an observation with the picture of the present state.

        Raises:
            UsageError: If the environment draws something else.
        """
        picture = self.env.render()
        if not is_picture(picture):
            raise UsageError(
                f"Picture: expected render() to return a uint8 array of shape (height, width, 3); got {str(picture)[:60]!r}."
            )
        return observation | {"picture": np.array(picture)}  # a copy, as an environment may draw into the same array again
