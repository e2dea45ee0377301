"""Play the actions of a recorded episode again, for its pictures and for facts that the record lacks."""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
from collections.abc import Callable, Collection, Generator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from gym_text.errors import GymTextError, MissingDependencyError
from gym_text.experts import best_actions
from gym_text.screen import draw_page, prepare_pygame
from gym_text_policies.environments.stored import owner_of
from gym_text_policies.records import Episode

_logger = logging.getLogger(__name__)


class ReplayedState(NamedTuple):
    """A state of an episode that is played again."""

    number: int
    """Number of steps before this state."""
    env: gym.Env[Any, Any]
    obs: Any
    info: dict[str, Any]
    reward_so_far: float
    """Sum of the rewards up to this state."""

    def picture(self) -> np.ndarray:
        """Return a picture of the state, uint8 of shape (height, width, 3): the environment's, else a page with the text."""
        frame = None
        if self.env.render_mode == "rgb_array":
            with contextlib.suppress(GymTextError, gym.error.Error):  # the package that draws is not installed
                frame = self.env.render()
        if isinstance(frame, np.ndarray) and frame.ndim == 3:
            return frame
        return draw_page([("goal", str(self.obs["goal"])), ("text", str(self.obs["text"]))], facts=f"step {self.number}")


def replay(episode: Episode, make_env: Callable[[], gym.Env[Any, Any]]) -> Generator[ReplayedState]:
    """Play an episode again, and yield the state before each step and the last state. A state is valid until the next is yielded.

    If the return differs from the record's, a warning says so.

    Args:
        episode: The recorded episode.
        make_env: Makes the same environment, without the policy's wrappers.
    """
    if not owner_of(episode.environment["id"]).startswith("gym_text."):
        with contextlib.suppress(MissingDependencyError):
            prepare_pygame("box2d")  # most of Gymnasium's own environments draw with pygame, which may fail without a screen
    env = make_env()
    try:
        spec = env.get_wrapper_attr("text_spec")
        obs, info = env.reset(seed=episode.seed)
        reward_so_far = 0.0
        for number, step in enumerate(episode.steps):
            yield ReplayedState(number, env, obs, info, reward_so_far)
            obs, reward, _, _, info = env.step(spec.encode(step.decision.action, dict(obs)))
            reward_so_far += float(reward)
        if not math.isclose(reward_so_far, episode.total_reward, rel_tol=1e-6, abs_tol=1e-6):
            _logger.warning(
                "seed %d: expected the recorded return of %.4g; played again it is %.4g. The pictures may show something else.",
                episode.seed,
                episode.total_reward,
                reward_so_far,
            )
        yield ReplayedState(episode.length, env, obs, info, reward_so_far)
    finally:
        env.close()


def best_actions_in(
    episode: Episode, make_env: Callable[[], gym.Env[Any, Any]], numbers: Collection[int]
) -> dict[int, tuple[str, ...]]:
    """Play an episode again, and return the best actions in some of its states, by the number of steps before each.

    The environment must have an expert that replans: see `gym_text.experts.best_actions`.
    """
    with contextlib.closing(replay(episode, make_env)) as states:
        up_to_the_last = itertools.islice(states, max(numbers, default=-1) + 1)
        return {state.number: best_actions(state.env) for state in up_to_the_last if state.number in numbers}
