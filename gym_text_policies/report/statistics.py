"""The statistics of tables and comparisons: means by level, intervals, and paired tests on the same levels."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from gym_text.errors import import_extra
from gym_text_policies.report.bootstrap import DRAWS, probability_of_better

MEASURES = ("success", "return", "steps")
STEPS_OF_WINS = "steps of wins"
"""Steps in the levels that both policies win."""
FEW = 10
"""A pair of policies with fewer common levels is marked as uncertain."""
_MOST_ADDITIONS = 5e8
"""Most additions for an exact p value of Wilcoxon's test: a second or two, enough for 1,000 differences of any kind."""
_Z = NormalDist().inv_cdf(0.975)
"""Normal quantile of a 95 % interval."""
Interval = tuple[float, float]


class Played(Protocol):
    """An episode with its level."""

    @property
    def seed(self) -> int:
        """The seed of the episode."""

    @property
    def level(self) -> int | None:
        """Number of the level that the seed plays; None if it is not known."""


P = TypeVar("P", bound=Played)


def levels_of(episodes: Iterable[Played]) -> dict[int, int]:
    """Return the level of each seed, if its record has one."""
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
    return {level: values[0] if len(values) == 1 else float(np.mean(values)) for level, values in figures.items()}


def mean(values: Sequence[float]) -> float | None:
    """Return the mean, or None if there are no values."""
    return float(np.mean(values)) if len(values) else None


def t_interval(values: Sequence[float]) -> Interval | None:
    """Return Student's 95 % interval of the mean, or None if there are fewer than two values."""
    if len(values) < 2:
        return None
    from scipy import stats

    centre = float(np.mean(values))
    half = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
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
    better: float | None = None
    """Probability that the policy has a higher mean return; see `probability_of_better`. None in other measures."""

    @property
    def few(self) -> bool:
        """Whether so few levels were compared that nothing is certain."""
        return self.levels < FEW

    @property
    def better_text(self) -> str:
        """The probability as text. "> 0.99" needs enough levels, and three standard errors of the bootstrap."""
        better = 0.5 if self.better is None else self.better
        for probability, text in ((better, "> 0.99"), (1 - better, "< 0.01")):
            if not self.few and probability - 3 * math.sqrt(probability * (1 - probability) / DRAWS) > 0.99:
                return text
        return f"{min(max(better, 0.01), 0.99):.2f}"

    @property
    def reversed(self) -> PairedTest:
        """The same test with the two policies exchanged."""
        alone = self.alone and self.alone[::-1]
        interval = self.interval and (-self.interval[1], -self.interval[0])
        better = None if self.better is None else 1 - self.better
        return PairedTest(self.value - self.difference, -self.difference, self.p, self.levels, alone, interval, better)


def run_of(episodes: Mapping[Any, Any]) -> Run:
    """Return what a policy reached in each level, from an `Episode` or `Summary` of each, without those that failed."""
    return {
        level: Result(float(episode.outcome == "won"), episode.total_reward, episode.length)
        for level, episode in episodes.items()
        if episode.error is None
    }


def run_by_level(episodes: Iterable[Any], levels: Mapping[int, int]) -> Run:
    """Return what a policy reached in each level, from its `Summary` of each episode; one that ended in an error is left out."""
    played = [episode for episode in episodes if episode.error is None]
    success = by_level(played, lambda episode: float(episode.won) if episode.tells_success else np.nan, levels)
    returns = by_level(played, lambda episode: episode.total_reward, levels)
    steps = by_level(played, lambda episode: episode.length, levels)
    return {level: Result(success[level], returns[level], steps[level]) for level in returns}


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
    tests["return"] = test_of_returns(own[:, 1], other[:, 1])
    both = (own[:, 0] == 1) & (other[:, 0] == 1)
    return tests | ({STEPS_OF_WINS: _test(own[both, 2], other[both, 2])} if both.any() else {})


def test_of_returns(own: np.ndarray, other: np.ndarray) -> PairedTest:
    """Return Wilcoxon's test of returns by level, with the probability that those of the first policy are higher."""
    return replace(_test(own, other), better=probability_of_better(own - other))


def _test(own: np.ndarray, other: np.ndarray, exact: bool = False) -> PairedTest:
    """Return the test of values by level; `exact`: McNemar's."""
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
    sizes = np.asarray(differences, dtype=float)
    sizes = np.ldexp(sizes, -math.frexp(float(np.abs(sizes).max(initial=0.0)))[1]).round(12)  # 1 - 2/3 and 1/3 are of one rank
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
