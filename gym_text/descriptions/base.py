"""`Description`: the words for a Gymnasium environment that has none."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gym_text.spec import Field, Quantity, TextSpec
from gym_text.vectorised import PlayTogether

OBSERVATION = "observation"
"""Key under which the environment's own observation stands, unless that is itself a dict."""


class Ending(NamedTuple):
    """The last step of an episode, or of an episode so far."""

    observation: Any
    """The environment's own observation."""
    reward: float
    terminated: bool
    truncated: bool
    score: float
    """Sum of the episode's rewards so far."""


def never(_: Ending) -> bool:
    """Return False: no ending is a success."""
    return False


@dataclass(frozen=True)
class Description:
    """A `TextSpec`, and the function that turns an observation into words."""

    spec: TextSpec
    describe: Callable[[Any], str]
    """From the environment's own observation to words."""
    success: Callable[[Ending], bool] = never
    """Whether the task is done; asked at the end of the episode."""
    limit: int | None = None
    """Most steps of an episode, for environments that are registered without a limit and may go on for ever."""
    play_together: PlayTogether | None = None
    """Plays many episodes in one computation; None where the environment is stepped."""


def fields(meaning: str, quantities: Iterable[Quantity], *, is_scalar: bool = False) -> dict[str, Field]:
    """Return the fields of a description: the words, the task, and the environment's own observation."""
    return {
        "text": Field("the state in words"),
        "goal": Field("the task"),
        OBSERVATION: Field(meaning, tuple(quantities), is_scalar=is_scalar),
    }


def side(value: float, negative: str, positive: str, digits: int = 2) -> str:
    """Return a space and the direction of a value; empty if it rounds to 0 at this many digits."""
    rounded = round(value, digits)
    return "" if rounded == 0 else f" {negative if rounded < 0 else positive}"


def amount(value: float, unit: str, negative: str, positive: str, digits: int = 2) -> str:
    """Return the absolute value, its unit and the direction that its sign means.

    >>> amount(-0.25, "m/s", "to the left", "to the right")
    '0.25 m/s to the left'
    """
    return f"{abs(value):.{digits}f} {unit}{side(value, negative, positive, digits)}"


def degrees(cos: float, sin: float) -> float:
    """Return the angle with this cosine and sine, from -180 to 180 degrees."""
    return math.degrees(math.atan2(sin, cos))


def cart_and_pole(place: str, velocity: float, angle: float, spin: float) -> str:
    """Say where a cart is, how it moves, and how the pole on it stands and turns; positive is to the right."""
    moves, tilts, turns = (
        amount(value, unit, "to the left", "to the right", 3)
        for value, unit in ((velocity, "m/s"), (angle, "radians"), (spin, "radians/s"))
    )
    return f"The cart is {place} and moves at {moves}.\nThe pole tilts by {tilts} and turns at {turns}."


def words_of_numbers(spec: TextSpec, obs: Any) -> str:
    """Describe an observation by the names, values and units of its quantities, one line for each field.

    Args:
        spec: Names the quantities.
        obs: A dict of the fields that are vectors or single numbers.
    """
    lines = []
    for key, field in spec.fields.items():
        if field.quantities:
            values = np.asarray(obs[key], dtype=np.float64).reshape(-1)
            parts = (
                f"{quantity.name} {value:.4g}{' ' if quantity.unit else ''}{quantity.unit}"
                for quantity, value in zip(field.quantities, values, strict=True)
            )
            lines.append(", ".join(parts) + ".")
    return "\n".join(lines)
