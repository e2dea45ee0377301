"""The statistics of tables and comparisons: means by level, intervals, and tests of paired differences on the same levels."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from gym_text.errors import import_extra

MEASURES = ("success", "return", "steps")
STEPS_OF_WINS = "steps of wins"
"""Steps in the levels that both policies win."""
FEW = 10
"""A pair of policies with fewer common levels is marked as uncertain."""
DRAWS = 4000
"""Bootstrap samples."""
_CHUNK = 200
"""Bootstrap samples in memory at once."""
_Z = NormalDist().inv_cdf(0.975)
"""Normal quantile of a 95 % interval."""
Interval = tuple[float, float]


def by_level(episodes: Iterable[Any], figure: Callable[[Any], Any]) -> dict[Hashable, Any]:
    """Return the mean of a figure over the episodes of each level. Several episodes of one level are no independent evidence.

    Args:
        episodes: The episodes of one policy in one environment: each an `Episode` or a `Summary`.
        figure: Returns the figure of an episode, or several as a tuple.
    """
    figures: dict[Hashable, list[Any]] = {}
    for episode in episodes:
        level = ("seed", episode.seed) if episode.level is None else ("level", episode.level)
        figures.setdefault(level, []).append(figure(episode))
    return {level: values[0] if len(values) == 1 else np.mean(values, axis=0) for level, values in figures.items()}


def mean(values: Sequence[float]) -> float | None:
    """Return the mean, or None if there are no values."""
    return float(np.mean(values)) if len(values) else None


def t_interval(values: Sequence[float]) -> Interval | None:
    """Return Student's 95 % interval of the mean, or None if there are fewer than two values."""
    if len(values) < 2:
        return None
    centre = float(np.mean(values))
    quantile = import_extra("scipy.stats", "bench").t.ppf(0.975, len(values) - 1)
    half = float(quantile * np.std(values, ddof=1) / np.sqrt(len(values)))
    return centre - half, centre + half


def return_interval(returns: Sequence[float], bounds: Interval | None = None) -> Interval | None:
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


def wilson_interval(successes: float, trials: int) -> Interval | None:
    """Return Wilson's 95 % interval of a rate, or None without trials. `successes` may be a fraction: levels won in part."""
    if trials == 0:
        return None
    rate, weight = successes / trials, _Z**2 / trials
    centre = (rate + weight / 2) / (1 + weight)
    half = math.sqrt(weight * (rate * (1 - rate) + weight / 4)) / (1 + weight)
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    return low if successes > 0 else 0.0, high if successes < trials else 1.0


class Result(NamedTuple):
    """What a policy reached in a level: the figures of an episode, or their means over several episodes."""

    success: float
    """1 if the episode was won; NaN if the environment does not say what a success is."""
    total_reward: float
    steps: float


Run = Mapping[Hashable, Result]
"""Level -> what one training run of a policy reached there."""


@dataclass(frozen=True)
class PairedTest:
    """How a policy differs from another one in one measure on the same levels."""

    value: float
    """The policy's mean over the levels and its training runs."""
    difference: float
    """Its mean less the other policy's."""
    p: float
    """Two-sided p value; see `tests_of_means`."""
    levels: int
    """Number of levels that were compared."""
    alone: tuple[int, int] | None = None
    """Number of levels that the policy alone wins, and that the other one alone wins, in McNemar's test; None in Wilcoxon's."""
    interval: Interval | None = None
    """95 % interval of the difference; see `bootstrap`."""


def result_of(episode: Any) -> Result:
    """Return what an `Episode` or its `Summary` reached."""
    success = float(episode.outcome == "won") if episode.tells_success else np.nan
    return Result(success, episode.total_reward, episode.length)


def run_of(episodes: Mapping[Any, Any]) -> Run:
    """Return what a policy reached in each level, from an `Episode` or `Summary` of each, without those that failed."""
    return {level: result_of(episode) for level, episode in episodes.items() if episode.error is None}


def common_levels(runs: Iterable[Run]) -> list[Hashable]:
    """Return the levels that all runs have, in the order of the first run."""
    first, *others = runs
    return [level for level in first if all(level in run for run in others)]


def table_of(runs: Iterable[Run], levels: Sequence[Hashable]) -> np.ndarray:
    """Return the results of runs in levels as an array (runs, levels, measures)."""
    return np.array([[run[level] for level in levels] for run in runs], dtype=float)


def paired_tests(policy: Sequence[Run], other: Sequence[Run]) -> dict[str, PairedTest]:
    """Test how a policy differs from another one, on the levels that all their training runs have; see `tests_of_means`."""
    levels = common_levels([*policy, *other])
    return tests_of_means(table_of(policy, levels).mean(axis=0), table_of(other, levels).mean(axis=0)) if levels else {}


def tests_of_means(own: np.ndarray, other: np.ndarray) -> dict[str, PairedTest]:
    """Test how a policy differs from another one.

    Success: McNemar's exact test if each level is won or lost, Wilcoxon's signed-rank test if only some of several training runs
    win it. All else: Wilcoxon's test. The tests ask whether a difference holds on other levels, and take the runs as given.

    Args:
        own: The policy's means over its training runs, as an array (levels, measures).
        other: The same of the other policy.

    Returns:
        A test of each of `MEASURES`, and of `STEPS_OF_WINS`. Without a success in the environment its tests are missing.

    Raises:
        MissingDependencyError: If scipy is not installed.
    """
    known = not np.isnan([own[:, 0], other[:, 0]]).any()
    exact = bool(np.isin([own[:, 0], other[:, 0]], (0, 1)).all())
    columns = range(len(MEASURES)) if known else range(1, len(MEASURES))
    tests = {MEASURES[column]: paired_test(own[:, column], other[:, column], exact and column == 0) for column in columns}
    both = (own[:, 0] == 1) & (other[:, 0] == 1)
    return tests | ({STEPS_OF_WINS: paired_test(own[both, 2], other[both, 2])} if both.any() else {})


def paired_test(own: np.ndarray, other: np.ndarray, exact: bool = False) -> PairedTest:
    """Return Wilcoxon's test of values by level, or McNemar's test of levels that are won or lost if `exact`."""
    differences = own - other
    alone = (int((differences > 0).sum()), int((differences < 0).sum())) if exact else None
    p = mcnemar(*alone) if alone else signed_rank(differences)
    return PairedTest(float(own.mean()), float(differences.mean()), p, len(differences), alone)


def mcnemar(gained: int, lost: int) -> float:
    """Return the p value of McNemar's exact test: the chance that a fair coin falls at least as unevenly.

    >>> round(mcnemar(3, 7), 6), round(mcnemar(0, 6), 6)
    (0.34375, 0.03125)

    Args:
        gained: Number of levels that only the one policy wins.
        lost: Number of levels that only the other policy wins.
    """
    stats = import_extra("scipy.stats", "bench")
    return float(stats.binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0


def signed_rank(differences: Sequence[float] | np.ndarray) -> float:
    """Return the p value of Wilcoxon's signed-rank test by scipy; 1 if all differences are 0, which the test leaves out.

    >>> signed_rank([1.0] * 5 + [0.0] * 35)
    0.0625
    """
    stats = import_extra("scipy.stats", "bench")
    sizes = np.asarray(differences, dtype=float)
    sizes = np.ldexp(sizes, -math.frexp(float(np.abs(sizes).max(initial=0.0)))[1]).round(12)  # 1 - 2/3 and 1/3 are of one rank
    sizes = sizes[sizes != 0]
    return float(stats.wilcoxon(sizes).pvalue) if len(sizes) else 1.0


def holm(values: Sequence[float]) -> list[float]:
    """Return p values by Holm's correction for their number.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(values)
    corrected = np.maximum.accumulate(np.asarray(values)[order] * range(len(values), 0, -1))
    return [float(p) for p in np.minimum(corrected[np.argsort(order)], 1)]


def iqm(values: Any, axis: int = -1) -> Any:
    """Return the interquartile mean: the mean without the lowest and the highest quarter of the values.

    >>> float(iqm([0, 1, 2, 3, 4, 5, 6, 100]))
    3.5
    """
    return import_extra("scipy.stats", "bench").trim_mean(values, 0.25, axis=axis)


Table = tuple[tuple[str, ...], np.ndarray]
"""The names of a policy's training runs in an environment, and what they reached, as an array (runs, levels)."""


def bootstrap(policies: Sequence[Sequence[Table]], statistic: Callable[..., Any] = np.mean) -> np.ndarray:
    """Return a statistic of each policy in 4,000 bootstrap samples, as an array (policies, samples).

    The bootstrap is stratified, as in rliable (Agarwal et al. 2021, https://arxiv.org/abs/2108.13264): each environment keeps its
    number of levels and of training runs. Levels are drawn once for all policies, so that differences are paired. A training run
    is drawn whole, with all its levels: they are no independent evidence about training. rliable expects a training run for each
    task, and draws the runs of each task apart. Environments whose runs have different names are treated in this way here, too.

    Args:
        policies: The table of each policy in each environment. The levels of an environment are the same for all policies.
        statistic: Takes the means of levels over training runs, and an axis, as `numpy.mean` and `iqm` do.
    """
    rng = np.random.default_rng(0)
    samples: list[list[np.ndarray]] = [[] for _ in policies]
    for _ in range(DRAWS // _CHUNK):
        levels = [rng.integers(table.shape[1], size=(_CHUNK, 1, table.shape[1])) for _, table in policies[0]]
        for tables, found in zip(policies, samples, strict=True):
            drawn = {names: rng.integers(len(names), size=(_CHUNK, len(names), 1)) for names in dict.fromkeys(n for n, _ in tables)}
            means = [table[drawn[names], level].mean(axis=1) for (names, table), level in zip(tables, levels, strict=True)]
            found.append(statistic(np.concatenate(means, axis=1), axis=-1))
    return np.stack([np.concatenate(found) for found in samples])


def percentiles(samples: np.ndarray) -> Interval:
    """Return the 95 % interval of bootstrap samples."""
    low, high = np.percentile(samples, [2.5, 97.5])
    return float(low), float(high)
