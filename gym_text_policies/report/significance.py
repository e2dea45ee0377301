"""Paired tests on the same levels, the interquartile mean, and a bootstrap over levels and training runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gym_text.errors import import_extra
from gym_text_policies.records import Episode
from gym_text_policies.report.compare import DRAWS
from gym_text_policies.report.intervals import scaled
from gym_text_policies.report.table import Summary

MEASURES = ("success", "return", "steps")
STEPS_OF_WINS = "steps of wins"
"""Steps in the levels that both policies win."""
_CHUNK = 200
"""Bootstrap samples in memory at once."""
_MOST_ADDITIONS = 5e8
"""Most additions for an exact p value of Wilcoxon's test: a second or two, enough for 1,000 differences of any kind."""


class Result(NamedTuple):
    """What a policy reached in a level: the figures of an episode, or their means over several episodes."""

    success: float
    """1 if the episode was won; NaN if the environment does not say what a success is."""
    total_reward: float
    steps: float


Run = Mapping[Hashable, Result]
"""Level -> what one training run of a policy reached there."""


def run_of(episodes: Mapping[Any, Episode | Summary]) -> Run:
    """Return what a policy reached in each level, from an episode of each; one that ended in an error is left out."""
    return {
        level: Result(float(episode.outcome == "won"), episode.total_reward, episode.length)
        for level, episode in episodes.items()
        if episode.error is None
    }


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
    interval: tuple[float, float] | None = None
    """95 % interval of the difference; see `bootstrap`."""


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
    tests = {MEASURES[column]: _test(own[:, column], other[:, column], exact and column == 0) for column in columns}
    both = (own[:, 0] == 1) & (other[:, 0] == 1)
    return tests | ({STEPS_OF_WINS: _test(own[both, 2], other[both, 2])} if both.any() else {})


def _test(own: np.ndarray, other: np.ndarray, exact: bool = False) -> PairedTest:
    """Return the test of values by level; `exact`: McNemar's."""
    differences = own - other
    alone = (int((differences > 0).sum()), int((differences < 0).sum())) if exact else None
    p = mcnemar(*alone) if alone else signed_rank(differences)
    return PairedTest(float(own.mean()), float(differences.mean()), p, len(differences), alone)


def mcnemar(gained: int, lost: int) -> float:
    """Return the p value of McNemar's exact test: the chance that a fair coin falls at least as unevenly.

    >>> mcnemar(3, 7), mcnemar(0, 6)
    (0.34375, 0.03125)

    Args:
        gained: Number of levels that only the one policy wins.
        lost: Number of levels that only the other policy wins.
    """
    trials = gained + lost
    tail = sum(math.comb(trials, count) for count in range(min(gained, lost) + 1))
    return min(1.0, tail / 2 ** (trials - 1)) if trials else 1.0


def signed_rank(differences: Sequence[float] | np.ndarray) -> float:
    """Return the p value of Wilcoxon's signed-rank test; 1 if all differences are 0, which the test leaves out.

    The p value is exact, also with equal differences: the share of all choices of signs whose smaller sum of ranks is as small. It
    is counted by the shift algorithm (Streitberg and Roehmel 1986), where scipy takes the normal distribution if there are zeros or
    equal differences among more than 13. From about a thousand differences on that are not 0, it is scipy's.

    >>> signed_rank([1.0] * 5 + [0.0] * 35)
    0.0625

    Raises:
        MissingDependencyError: If scipy is not installed.
    """
    stats = import_extra("scipy.stats", "bench")
    sizes = scaled(differences)[0].round(12)  # 1 - 2/3 and 1/3 are of one rank
    sizes = sizes[sizes != 0]
    if not len(sizes):
        return 1.0
    ranks = (2 * stats.rankdata(np.abs(sizes))).astype(int)  # twice the mean rank of equal ones is whole
    ranks //= np.gcd.reduce(ranks)
    least = min(ranks[sizes > 0].sum(), ranks[sizes < 0].sum())
    if len(ranks) * least > _MOST_ADDITIONS:
        return float(stats.wilcoxon(sizes).pvalue)
    chances = np.zeros(least + 1)  # of each sum of positive ranks, if signs were drawn
    chances[0] = 1
    for rank in ranks:
        half = chances / 2
        chances[:rank] = half[:rank]
        chances[rank:] = half[rank:] + half[:-rank]
    return min(1.0, 2 * float(chances.sum()))


def iqm(values: Any, axis: int = -1) -> Any:
    """Return the interquartile mean: the mean without the lowest and the highest quarter of the values.

    >>> float(iqm([0, 1, 2, 3, 4, 5, 6, 100]))
    3.5
    """
    ordered = np.sort(np.moveaxis(np.asarray(values, dtype=float), axis, -1), axis=-1)
    cut = ordered.shape[-1] // 4
    return ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1)


def bootstrap(
    policies: Sequence[Sequence[tuple[tuple[str, ...], np.ndarray]]], statistic: Callable[..., Any], seed: int = 0
) -> np.ndarray:
    """Return a statistic of each policy in 4,000 bootstrap samples, as an array (policies, samples).

    The bootstrap is stratified, as in rliable (Agarwal et al. 2021, https://arxiv.org/abs/2108.13264): each environment keeps its
    number of levels and of training runs. Levels are drawn once for all policies, so that differences are paired. A training run
    is drawn whole, with all its levels: they are no independent evidence about training. rliable expects a training run for each
    task, and draws the runs of each task apart. Environments whose runs have different names are treated in this way here, too.
    Each level counts once: where an environment has fewer runs, each of them counts more; see `pooled`.

    Args:
        policies: For each policy the names of its runs and their table (runs, levels) in each environment. The levels of an
            environment are the same for all policies.
        statistic: Takes values and an axis, as `numpy.mean` and `iqm` do.
        seed: Seed of the samples.
    """
    rng = np.random.default_rng(seed)
    samples: list[list[np.ndarray]] = [[] for _ in policies]
    for _ in range(DRAWS // _CHUNK):
        levels = [rng.integers(table.shape[1], size=(_CHUNK, 1, table.shape[1])) for _, table in policies[0]]
        for tables, found in zip(policies, samples, strict=True):
            drawn = {names: rng.integers(len(names), size=(_CHUNK, len(names), 1)) for names in dict.fromkeys(n for n, _ in tables)}
            values = [table[drawn[names], level] for (names, table), level in zip(tables, levels, strict=True)]
            found.append(statistic(pooled(values), axis=-1))
    return np.stack([np.concatenate(found) for found in samples])


def pooled(tables: Sequence[np.ndarray]) -> np.ndarray:
    """Return the results of several environments in one row, so that each level counts once however many runs played it.

    >>> pooled([np.array([[1.0], [2.0]]), np.array([[5.0]])]).tolist()
    [1.0, 2.0, 5.0, 5.0]

    Args:
        tables: Results (..., runs, levels) in each environment. Those with fewer runs are repeated, to as many as the least common
            multiple of the numbers of runs.

    Returns:
        Array (..., results).
    """
    most = math.lcm(*(table.shape[-2] for table in tables))
    flat = [np.repeat(table, most // table.shape[-2], axis=-2).reshape(*table.shape[:-2], -1) for table in tables]
    return np.concatenate(flat, axis=-1)


def percentiles(samples: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of bootstrap samples."""
    low, high = np.percentile(samples, [2.5, 97.5])
    return float(low), float(high)
