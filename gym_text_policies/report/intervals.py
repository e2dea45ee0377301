"""Means and intervals over levels. Values are scaled by a power of two, so that no sum of finite values overflows."""

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
    """An episode with its seed and its level."""

    @property
    def seed(self) -> int:
        """The seed of the episode."""

    @property
    def level(self) -> int | None:
        """Number of the level that the seed plays; None if it is not known."""


P = TypeVar("P", bound=Played)


def levels_of(episodes: Iterable[Played]) -> dict[int, int]:
    """Return the level of each seed, if its record has one. Records of earlier versions have none."""
    return {episode.seed: episode.level for episode in episodes if episode.level is not None}


def by_level(
    episodes: Iterable[P], figure: Callable[[P], float], levels: Mapping[int, int] | None = None
) -> dict[tuple[bool, int], float]:
    """Return the mean of a figure over the episodes of each level. Several episodes of one level are no independent evidence.

    Args:
        episodes: The episodes of one policy in one environment.
        figure: Returns the figure of an episode.
        levels: The level of each seed; by default from these episodes. A seed that is missing counts as a level of its own.
    """
    episodes = list(episodes)
    levels = levels_of(episodes) if levels is None else levels
    figures: dict[tuple[bool, int], list[float]] = {}
    for episode in episodes:
        known = episode.seed in levels
        figures.setdefault((known, levels[episode.seed] if known else episode.seed), []).append(figure(episode))
    return {level: values[0] if len(values) == 1 else mean(values) or 0.0 for level, values in figures.items()}


def scaled(values: Sequence[float] | np.ndarray) -> tuple[np.ndarray, int]:
    """Return values divided by a power of two, and its exponent: their squares and sums neither overflow nor vanish."""
    array = np.clip(np.asarray(values, dtype=float), -MOST, MOST)
    exponent = math.frexp(float(np.abs(array).max(initial=0.0)))[1]
    return np.ldexp(array, -exponent), exponent


def unscaled(value: float, exponent: int) -> float:
    """Return a value multiplied by a power of two, at most the greatest finite number."""
    with np.errstate(over="ignore"):
        return float(np.clip(np.ldexp(value, exponent), -MOST, MOST))


def mean(values: Sequence[float]) -> float | None:
    """Return the mean, or None if there are no values."""
    if not len(values):
        return None
    array, exponent = scaled(values)
    return unscaled(float(np.mean(array)), exponent)


def mean_and_error(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the mean and its standard error. Without values the mean is None; with fewer than two the error is None."""
    if len(values) < 2:
        return mean(values), None
    array, exponent = scaled(values)
    return mean(values), unscaled(float(np.std(array, ddof=1) / np.sqrt(len(array))), exponent)


def t_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return Student's 95 % interval of the mean, or None if there are fewer than two values."""
    if len(values) < 2:
        return None
    from scipy import stats

    array, exponent = scaled(values)
    centre = float(np.mean(array))
    half = float(stats.t.ppf(0.975, len(array) - 1) * np.std(array, ddof=1) / np.sqrt(len(array)))
    return unscaled(centre - half, exponent), unscaled(centre + half, exponent)


def return_interval(returns: Sequence[float], bounds: tuple[float, float] | None = None) -> tuple[float, float] | None:
    """Return a 95 % interval of the mean return: Student's, cut at the bounds that no return can leave.

    If all returns are equal, they say nothing of their spread, and Student's interval would be a point. Then the interval is
    Wilson's, for a share of the way from the lower bound to the upper one. Wilson's is right for returns of any kind between the
    bounds, since none spread more than those that are at one bound or the other.

    >>> [round(end, 6) for end in return_interval([0.0, 0.0, 0.0], (0.0, 1.0))], return_interval([0.0, 0.0, 0.4], (0.0, 1.0))[0]
    ([0.0, 0.561497], 0.0)

    Args:
        returns: The mean return of each level.
        bounds: The least and the greatest return; None if they are not known. They are not used if a return is beyond them.
    """
    student = t_interval(returns)
    if bounds is None or not len(returns) or min(returns) < bounds[0] or max(returns) > bounds[1]:
        return student
    low, high = bounds
    if min(returns) == max(returns):
        wilson = wilson_interval(len(returns) * (returns[0] - low) / (high - low), len(returns))
        return wilson and (low + (high - low) * wilson[0], low + (high - low) * wilson[1])
    return student and (max(low, student[0]), min(high, student[1]))


def wilson_interval(successes: float, trials: int) -> tuple[float, float] | None:
    """Return Wilson's 95 % interval of a rate, or None without trials. `successes` may be a fraction: levels won in part."""
    if trials == 0:
        return None
    rate, weight = successes / trials, _Z**2 / trials
    centre = (rate + weight / 2) / (1 + weight)
    half = math.sqrt(weight * (rate * (1 - rate) + weight / 4)) / (1 + weight)
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    return low if successes > 0 else 0.0, high if successes < trials else 1.0
