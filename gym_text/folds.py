"""Seeds and folds: train, dev and test levels that never meet."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym

Fold = Literal["train", "dev", "test"]
FOLDS = ("train", "dev", "test")
MAX_SEED = 2**63 - 1
FOLD_SIZE = 1_000_000
"""Seeds of one fold; the folds begin at 1, 2 and 3 times this number and never meet."""


def fold_seed(fold: Fold | None, seed: int) -> int:
    """Return `seed` shifted into a fold; without a fold, unchanged."""
    return seed if fold is None else FOLD_SIZE * (1 + FOLDS.index(fold)) + seed % FOLD_SIZE


def level_of(env: gym.Env[Any, Any], seed: int) -> int | None:
    """Return the number of the level that a seed plays in an environment; None if the environment has no such method."""
    return int(env.get_wrapper_attr("level_of")(seed)) if env.has_wrapper_attr("level_of") else None
