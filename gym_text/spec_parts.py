"""Checks of the parts of a `TextSpec`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

from gym_text.errors import UsageError

T = TypeVar("T")


def check_texts(what: str, **texts: Any) -> None:
    """Raise `UsageError` unless each of `texts` is a string."""
    for name, text in texts.items():
        if not isinstance(text, str):
            raise UsageError(f"{what}.{name}: expected a text; got {text!r} ({type(text).__name__}).")


def all_of(what: str, parts: Any, kind: type[T]) -> tuple[T, ...]:
    """Return parts as a tuple; raise `UsageError` unless each of them is of the class `kind`."""
    if isinstance(parts, str) or not isinstance(parts, Iterable):
        raise UsageError(f"{what}: expected a tuple of {kind.__name__}(…); got {parts!r}.")
    checked: tuple[T, ...] = tuple(parts)
    for part in checked:
        if not isinstance(part, kind):
            raise UsageError(f"{what}: expected {kind.__name__}(…); got {part!r} ({type(part).__name__}).")
    return checked


def is_number(value: Any) -> bool:
    """Return whether a value is a real number, NaN and infinity among them; True and False do not count."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def check_range(what: str, low: Any, high: Any) -> None:
    """Raise `UsageError` unless two limits are finite numbers, the first below the second."""
    if not all(is_number(limit) and math.isfinite(limit) for limit in (low, high)) or low >= high:
        raise UsageError(f"{what}: expected finite numbers low < high; got {low!r} and {high!r}.")
