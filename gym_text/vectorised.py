"""`PlayTogether`: plays many episodes of an environment in one computation instead of stepping each environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np


class Played(NamedTuple):
    """An episode that was computed together with others."""

    total_reward: float
    length: int
    """Number of steps."""
    success: bool
    observations: np.ndarray
    """All observations, of shape (length + 1, k); the last is that of the final state. Empty if not kept."""
    actions: np.ndarray
    """All actions, of shape (length,); empty if not kept."""


Act = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Maps observations (float32, shape (n, k)) and the indices of their episodes (int, shape (n,)) to actions, shape (n,)."""


class PlayTogether(Protocol):
    """Plays one episode for each seed, all in one computation, with exactly the numbers of Gymnasium's environment."""

    def __call__(self, act: Act, seeds: Sequence[int], *, limit: int, keep: bool) -> Sequence[Played]:
        """Return the episodes.

        Args:
            act: Chooses the actions of all episodes that still run.
            seeds: Seeds of the episodes, as ``env.reset(seed=…)`` takes them.
            limit: Most steps of an episode.
            keep: Whether to keep observations and actions.
        """
