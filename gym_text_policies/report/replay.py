"""An episode played again by its recorded actions: for its pictures, and for what its record does not hold."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from gym_text.errors import GymTextError, MissingDependencyError
from gym_text.pictures import draw_panel, prepare_pygame
from gym_text_policies.records import Episode

_logger = logging.getLogger(__name__)


class State(NamedTuple):
    """A state of an episode: before its step of that number, or the last one."""

    number: int
    env: gym.Env[Any, Any]
    obs: Any
    info: dict[str, Any]
    so_far: float
    """Sum of the rewards up to it."""

    def picture(self) -> np.ndarray:
        """Return its picture, uint8 of shape (height, width, 3); of what draws nothing a panel with its text."""
        frame = None
        if self.env.render_mode == "rgb_array":
            with contextlib.suppress(GymTextError, gym.error.Error):  # what it draws with is not installed
                frame = self.env.render()
        if isinstance(frame, np.ndarray) and frame.ndim == 3:
            return frame
        return draw_panel(str(self.obs["goal"]), str(self.obs["text"]))


def replayed(episode: Episode, make_env: Callable[[], gym.Env[Any, Any]]) -> Iterator[State]:
    """Play an episode again and yield its states, one more than it has steps; each is gone with the next.

    Args:
        episode: What was played.
        make_env: Makes the same environment, without the policy's wrappers.
    """
    if "gym_text." not in str(gym.spec(episode.environment["id"]).entry_point):
        with contextlib.suppress(MissingDependencyError):
            prepare_pygame("box2d")  # Gymnasium's own environments draw with it, and some complain where there is no screen
    env = make_env()
    try:
        spec = env.get_wrapper_attr("text_spec")
        obs, info = env.reset(seed=episode.seed)
        so_far = 0.0
        for number, step in enumerate(episode.steps):
            yield State(number, env, obs, info, so_far)
            obs, reward, _, _, info = env.step(spec.encode(step.decision.action, dict(obs)))
            so_far += float(reward)
        if not math.isclose(so_far, episode.total_reward, rel_tol=1e-6, abs_tol=1e-6):
            _logger.warning("seed %d: its pictures may not show what happened: played again, its return is another.", episode.seed)
        yield State(episode.length, env, obs, info, so_far)
    finally:
        env.close()
