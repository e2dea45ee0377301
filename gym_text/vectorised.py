"""`PlayTogether`: what plays many episodes of an environment in one computation, in place of stepping each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np


class Played(NamedTuple):
    """One episode of several that are computed together."""

    total_reward: float
    length: int
    """Number of steps."""
    success: bool
    observations: np.ndarray
    """Observed numbers, the last state included, of shape (length + 1, k); empty if not kept."""
    actions: np.ndarray
    """Of shape (length,); empty if not kept."""


Act = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Maps observations (float32, shape (n, k)) and the indices of their episodes (int, shape (n,)) to actions, shape (n,)."""


class PlayTogether(Protocol):
    """Plays one episode for each seed, all of them in one computation, with the numbers that Gymnasium's environment has."""

    def __call__(self, act: Act, seeds: Sequence[int], *, limit: int, keep: bool) -> Sequence[Played]:
        """Return the episodes.

        Args:
            act: Chooses the actions of all episodes that still run.
            seeds: As ``env.reset(seed=…)`` takes them.
            limit: Most steps.
            keep: Whether to keep observations and actions.
        """
