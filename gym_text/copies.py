"""Copies of environments: a copy is made with the same arguments and replays the running episode's actions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import gymnasium as gym

from gym_text.spec import Observation


class Replayable(gym.Env[Observation, Any]):
    """An environment that `copy.deepcopy` and `pickle` can copy in the middle of an episode.

    A copy is made with the same arguments and replays the episode's actions. It shares neither the window nor the game.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Make an environment and keep its arguments for its copies."""
        env = super().__new__(cls)
        env.__arguments = args, kwargs
        return env

    @abstractmethod
    def _episode_so_far(self) -> tuple[int, Sequence[Any]] | None:
        """Return the running episode's level and the actions played in it, or None without a running episode."""

    @abstractmethod
    def _replay_episode(self, level: int, actions: Sequence[Any]) -> None:
        """Begin the episode of a level and play actions in it."""

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy needs: the constructor's arguments, the spec, the generator, and the running episode's actions."""
        return {
            "arguments": self.__arguments,
            "spec": self.spec,
            "generator": (self._np_random, self._np_random_seed),
            "episode": self._episode_so_far(),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Become the copy that `__getstate__` describes."""
        args, kwargs = self.__arguments = state["arguments"]
        type(self).__init__(self, *args, **kwargs)
        self.spec = state["spec"]
        if state["episode"] is not None:
            self._replay_episode(*state["episode"])
        self._np_random, self._np_random_seed = state["generator"]
