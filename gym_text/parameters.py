"""The parameters of games that an engine makes. A game declares each of them once, in its table ``parameters``.

The constructor's signature and checks, and the rows of the docstring, are made from this table.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from gym_text.errors import UsageError, check_int


class Range(NamedTuple):
    """An integer parameter."""

    engine_name: str
    low: int
    """Least value."""
    high: int
    """Greatest value."""
    default: int
    meaning: str

    @property
    def values(self) -> str:
        """The values, in words for the docstring."""
        return f"{self.low} to {self.high}"

    def check(self, name: str, value: object) -> int:
        """Return the value for the engine, or raise `UsageError`."""
        return check_int(name, value, self.low, self.high)


class Flag(NamedTuple):
    """A parameter that is on or off."""

    engine_name: str
    default: bool
    meaning: str

    @property
    def values(self) -> str:
        """The values, in words for the docstring."""
        return "bool"

    def check(self, name: str, value: object) -> int:
        """Return the value for the engine, or raise `UsageError`."""
        if not isinstance(value, (bool, np.bool_)):
            raise UsageError(f"{name}: expected True or False; got {value!r}.")
        return int(value)


class Choice(NamedTuple):
    """An integer parameter that has few values."""

    engine_name: str
    choices: tuple[int, ...]
    """The values, the least first."""
    default: int
    meaning: str

    @property
    def values(self) -> str:
        """The values, in words for the docstring."""
        return ", ".join(map(str, self.choices))

    def check(self, name: str, value: object) -> int:
        """Return the value for the engine, or raise `UsageError`."""
        if isinstance(value, bool) or value not in self.choices:
            raise UsageError(f"{name}: expected one of {self.values}; got {value!r}.")
        return check_int(name, value, self.choices[0], self.choices[-1])


Parameters = Mapping[str, Range | Flag | Choice]
"""The parameters of a game by their names in Python."""


def signature_of(parameters: Parameters, others: Iterable[inspect.Parameter]) -> inspect.Signature:
    """Return the signature of a game's constructor: its parameters, then `others`; all are keyword-only."""
    game_parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=p.default, annotation=type(p.default).__name__)
        for name, p in parameters.items()
    ]
    return inspect.Signature([*game_parameters, *others], return_annotation="None")
