"""Draws of models that take them from the global generators of their libraries: each turn seeds those anew."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_one_at_a_time = threading.RLock()


@contextmanager
def drawing_from(rng: np.random.Generator, space: Any = None) -> Iterator[None]:
    """Let what is drawn while the block runs depend on a generator alone, and on nothing that was drawn before.

    The global generators of Python, NumPy and torch are seeded from it, and afterwards are as they were. One thread at a time.

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
