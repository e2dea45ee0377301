"""Checks for finite numbers: NaN or infinity ends a run before it reaches a weight or a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gym_text.errors import RunError


def check_finite(where: str, **values: Any) -> None:
    """Raise `RunError` unless all numbers that are learnt from are finite.

    Args:
        where: The iteration or step, as in ``iteration 3``.
        values: Numbers, arrays or tensors, by their names.
    """
    if bad := _first(values):
        raise RunError(
            f"{where}: expected finite numbers to learn from; {bad}. It has changed no weight, and the last checkpoint is kept. "
            "Look at the rewards or the data, or take a lower learning rate."
        )


def check_weights(path: Path, tensors: Mapping[str, Any]) -> None:
    """Raise `RunError` unless all tensors that are to be written into a file are finite.

    Args:
        path: The file.
        tensors: By name.
    """
    if bad := _first(tensors):
        raise RunError(f"{path.name}: expected finite tensors to write; {bad}. It is not written; what was there before is kept.")


def _first(values: Mapping[str, Any]) -> str:
    """Return the first number that is not finite, as in ``policy_loss is nan``; an empty text if all numbers are finite."""
    for name, value in values.items():
        numbers = np.asarray(value.detach().float().cpu() if hasattr(value, "detach") else value, dtype=float)
        if not np.isfinite(numbers).all():
            return f"{name} is {numbers[~np.isfinite(numbers)].flat[0]}"
    return ""
