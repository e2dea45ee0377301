"""What is drawn: models that use the global random generators of their libraries draw reproducibly, and actions at a temperature.

Each turn seeds these generators.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

_one_at_a_time = threading.RLock()


@contextmanager
def drawing_from(rng: np.random.Generator, space: Any = None) -> Iterator[None]:
    """Seed the global random generators from `rng` while the block runs, so that its draws depend on `rng` alone.

    These are the generators of Python, NumPy and torch. Afterwards they have their former states. One thread at a time runs a
    block.

    Args:
        rng: The generator.
        space: A space that may be sampled as well, such as a model's `action_space`.
    """
    seed = int(rng.integers(2**32))
    torch = sys.modules.get("torch")
    with _one_at_a_time:
        python, numpy = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed)
        if hasattr(space, "seed"):
            space.seed(seed)
        try:
            if torch is None:
                yield
            else:
                gpus = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
                with torch.random.fork_rng(gpus):
                    torch.manual_seed(seed)
                    yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def evened(probabilities: Mapping[str, float], share: float) -> dict[str, float]:
    """Return the probabilities with a share of their mass spread evenly over all names."""
    return {name: (1 - share) * value + share / len(probabilities) for name, value in probabilities.items()}


def tempered(probabilities: Sequence[float], temperature: float) -> np.ndarray:
    """Return the probabilities to the power of 1 / temperature, rescaled to sum to 1. The temperature is above 0.

    `top_p`, `top_k` and `min_p` limit the tokens of words and thoughts; among valid actions any may be drawn.
    """
    # scaled so that the most probable choice has weight 1: else all weights could round to 0
    weights: np.ndarray = (np.array(probabilities) / max(probabilities)) ** (1 / temperature)
    shares: np.ndarray = weights / weights.sum()
    return shares
