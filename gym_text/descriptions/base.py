"""`Description`: a Gymnasium environment in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gym_text.mountain_car_vector import PlayTogether
from gym_text.spec import Field, Quantity, TextSpec

OBSERVATION = "observation"
"""Key of the environment's original observation, unless that is itself a dict."""


class Ending(NamedTuple):
    """The last step of an episode."""

    observation: Any
    """The environment's original observation."""
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
    """A `TextSpec`, and what else is known of an environment."""

    spec: TextSpec
    describe: Callable[[Any], str] | None = None
    """Describes the environment's original observation in words; None: by `words_of_numbers`."""
    success: Callable[[Ending], bool] = never
    """Returns whether the task is done at the end of an episode."""
    limit: int | None = None
    """Most steps of an episode, for an environment that is registered without a limit and may never end."""
    play_together: PlayTogether | None = None
    """Plays many episodes in one computation; None if each environment has to be stepped."""


def fields(meaning: str, quantities: Iterable[Quantity], *, is_scalar: bool = False) -> dict[str, Field]:
    """Return the fields of a description: the words, the task, and the environment's original observation."""
    return {
        "text": Field("the state in words"),
        "goal": Field("the task"),
        OBSERVATION: Field(meaning, tuple(quantities), is_scalar=is_scalar),
    }


def words_of_numbers(spec: TextSpec, obs: Any) -> str:
    """Describe an observation by its texts, and the names, values and units of its quantities, one line for each field.

    Args:
        spec: Names the quantities.
        obs: A dict of the fields that are texts, vectors or single numbers.
    """
    lines = []
    for key, field in spec.fields.items():
        if key != "goal" and isinstance(obs.get(key), str):
            lines.append(obs[key])
        elif field.quantities:
            values = np.asarray(obs[key], dtype=np.float64).reshape(-1)
            parts = (
                f"{quantity.name} {value:.4g}{' ' if quantity.unit else ''}{quantity.unit}"
                for quantity, value in zip(field.quantities, values, strict=True)
            )
            lines.append(", ".join(parts) + ".")
    return "\n".join(lines)
