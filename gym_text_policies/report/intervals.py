"""Means and intervals of levels. Figures of any finite size: they are scaled by a power of two, which changes no digit."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import Protocol, TypeVar

import numpy as np

MOST = sys.float_info.max
_Z = NormalDist().inv_cdf(0.975)
"""Normal quantile of a 95 % interval."""


class Played(Protocol):
    """An episode, as far as its level is known."""

    @property
    def seed(self) -> int:
        """Its seed."""

    @property
    def level(self) -> int | None:
        """Number of the level that the seed plays; None where that is not known."""


P = TypeVar("P", bound=Played)


def levels_of(episodes: Iterable[Played]) -> dict[int, int]:
    """Return the level of each seed, as far as an episode tells; records of earlier versions do not."""
    return {episode.seed: episode.level for episode in episodes if episode.level is not None}


def by_level(
    episodes: Iterable[P], figure: Callable[[P], float], levels: Mapping[int, int] | None = None
) -> dict[tuple[bool, int], float]:
    """Return the mean figure of each level. Seeds beyond a fold's levels play levels again, which is no new evidence.

    Args:
        episodes: Of one policy in one environment.
        figure: What is measured of an episode.
        levels: The level of each seed, where other episodes tell more; by default as these tell it. A seed whose level nobody
            tells is a level of its own.
    """
    episodes = list(episodes)
    levels = levels_of(episodes) if levels is None else levels
    found: dict[tuple[bool, int], list[float]] = {}
    for episode in episodes:
        known = episode.seed in levels
        found.setdefault((known, levels[episode.seed] if known else episode.seed), []).append(figure(episode))
    return {level: values[0] if len(values) == 1 else mean(values) or 0.0 for level, values in found.items()}


def scaled(values: Sequence[float] | np.ndarray) -> tuple[np.ndarray, int]:
    """Return values divided by a power of two, and its exponent: their squares and sums neither overflow nor vanish."""
    array = np.clip(np.asarray(values, dtype=float), -MOST, MOST)
    exponent = math.frexp(float(np.abs(array).max(initial=0.0)))[1]
    return np.ldexp(array, -exponent), exponent


def unscaled(value: float, exponent: int) -> float:
    """Return a value multiplied by a power of two, at most the greatest number there is."""
    with np.errstate(over="ignore"):
        return float(np.clip(np.ldexp(value, exponent), -MOST, MOST))


def mean(values: Sequence[float]) -> float | None:
    """Return the mean, or None of no values."""
    if not len(values):
        return None
    array, exponent = scaled(values)
    return unscaled(float(np.mean(array)), exponent)


def mean_and_error(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the mean and its standard error. The mean of no values is None, and so is the error of fewer than two."""
    if len(values) < 2:
        return mean(values), None
    array, exponent = scaled(values)
    return mean(values), unscaled(float(np.std(array, ddof=1) / np.sqrt(len(array))), exponent)


def t_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return Student's 95 % interval of the mean, or None of fewer than two values."""
    if len(values) < 2:
        return None
    from scipy import stats

    array, exponent = scaled(values)
    centre = float(np.mean(array))
    half = float(stats.t.ppf(0.975, len(array) - 1) * np.std(array, ddof=1) / np.sqrt(len(array)))
    return unscaled(centre - half, exponent), unscaled(centre + half, exponent)


def wilson_interval(successes: float, trials: int) -> tuple[float, float] | None:
    """Return Wilson's 95 % interval of a rate, or None without trials. A level that was won in part counts so."""
    if trials == 0:
        return None
    rate, weight = successes / trials, _Z**2 / trials
    centre = (rate + weight / 2) / (1 + weight)
    half = math.sqrt(weight * (rate * (1 - rate) + weight / 4)) / (1 + weight)
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    return low if successes > 0 else 0.0, high if successes < trials else 1.0
