"""Compare policies in pairs on the same levels: the probability that one has a higher mean return than the other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gym_text_policies.report.intervals import by_level, levels_of, scaled, unscaled
from gym_text_policies.report.runs import Variant
from gym_text_policies.report.table import number

MOST = 12
"""Most policies of an environment that are compared. The best ones are chosen."""
FEW = 10
"""A pair with fewer common levels is marked as uncertain."""
DRAWS = 4000
"""Bootstrap samples."""
_CHUNK = 200
"""Bootstrap samples in memory at once."""


@dataclass(frozen=True)
class Pair:
    """The policy of a row compared with the policy of a column."""

    probability: float
    """Probability that the row's mean return is higher."""
    difference: float
    """Difference of the mean returns: row minus column."""
    levels: int
    """Levels that both policies have played without an error."""

    @property
    def few(self) -> bool:
        """Whether the pair has fewer than `FEW` levels."""
        return self.levels < FEW

    @property
    def text(self) -> str:
        """The probability as text. "> 0.99" needs enough levels and enough bootstrap samples; see `sure`."""
        if self.sure(self.probability):
            return "> 0.99"
        if self.sure(1 - self.probability):
            return "< 0.01"
        return f"{min(max(self.probability, 0.01), 0.99):.2f}"

    @property
    def shown_difference(self) -> str:
        """The difference as text; a difference that rounds to 0 has no sign."""
        text = number(self.difference, "+.2f")
        return "0.00" if float(text) == 0 else text

    def sure(self, probability: float) -> bool:
        """Whether a probability is above 0.99 by three standard errors of the bootstrap, on enough levels."""
        return not self.few and probability - 3 * math.sqrt(probability * (1 - probability) / DRAWS) > 0.99


@dataclass(frozen=True)
class Comparison:
    """The best policies of an environment, each compared with each other one."""

    policies: tuple[str, ...]
    """Names of the policies, the best first."""
    pairs: tuple[tuple[Pair | None, ...], ...]
    """Pairs by row and column. None on the diagonal, and where two policies have no common level."""
    left_out: int
    """Number of policies that are not compared."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Headings of the columns: the policies, or their numbers if there are more than six."""
        return self.policies if len(self.policies) <= 6 else tuple(str(i) for i in range(1, len(self.policies) + 1))

    @property
    def rows(self) -> tuple[str, ...]:
        """Headings of the rows: the policies, with their numbers if the columns have numbers."""
        pairs = zip(self.policies, self.columns, strict=True)
        return tuple(policy if column == policy else f"{column}. {policy}" for policy, column in pairs)


def compare(variants: Sequence[Variant]) -> Comparison | None:
    """Compare the best policies of an environment. Return None if there are fewer than two."""
    ranked = sorted(
        (variant for variant in variants if variant.row["return"] is not None),
        key=lambda variant: (variant.row["success"] or 0.0, variant.row["return"]),
        reverse=True,
    )
    best = ranked[:MOST]
    if len(best) < 2:
        return None
    levels = levels_of(episode for variant in variants for episode in variant.episodes)
    returns = [
        by_level([e for e in variant.episodes if e.error is None], lambda episode: episode.total_reward, levels) for variant in best
    ]
    cells: list[list[Pair | None]] = [[None] * len(best) for _ in best]
    pairs = [(i, j) for i in range(len(best)) for j in range(i)]
    differences = [_differences(returns[i], returns[j]) for i, j in pairs]
    better = probabilities_of_better([difference for difference, _ in differences])
    for (i, j), (difference, exponent), probability in zip(pairs, differences, better, strict=True):
        if len(difference):
            mean = unscaled(float(difference.mean()), exponent)
            cells[i][j] = Pair(probability, mean, len(difference))
            cells[j][i] = Pair(1 - probability, -mean, len(difference))
    names = tuple(variant.policy for variant in best)
    return Comparison(names, tuple(map(tuple, cells)), len(ranked) - len(best))


def _differences(first: Mapping[Any, float], second: Mapping[Any, float]) -> tuple[np.ndarray, int]:
    """Return the differences in the common levels, divided by a power of two, and the exponent of this power."""
    common = [level for level in first if level in second]
    both, exponent = scaled([*(first[level] for level in common), *(second[level] for level in common)])
    return both[: len(common)] - both[len(common) :], exponent


def probabilities_of_better(differences: Sequence[np.ndarray], seed: int = 0) -> list[float]:
    """Return the probability that a mean is above 0, for each array of differences by level.

    This is the Bayesian bootstrap (Rubin 1981, https://doi.org/10.1214/aos/1176345338): the weights of the levels are drawn from a
    flat Dirichlet distribution. Two imagined levels are added, one in favour of either policy. Each is as large as the root mean
    square of the differences that are not 0. Without them, two policies that differ in a single level would be compared with
    certainty. With them, differences of one size give the same result as a flat prior on the share of levels won.

    >>> even, better = probabilities_of_better([np.zeros(20), np.array([1.0] + [0.0] * 19)])
    >>> even, 0.7 < better < 0.8
    (0.5, True)
    """
    results = [0.5] * len(differences)
    by_count: dict[int, list[int]] = {}
    for i, difference in enumerate(differences):
        if np.any(difference):
            by_count.setdefault(len(difference), []).append(i)
    for count, indices in by_count.items():
        rng = np.random.default_rng([seed, count])
        table = np.stack([_with_imagined(scaled(differences[i])[0]) for i in indices])  # (pairs, levels + 2)
        above = np.zeros(len(indices))
        for _ in range(DRAWS // _CHUNK):
            weights = rng.standard_exponential((_CHUNK, count + 2))  # their sum does not change the sign
            above += (weights @ table.T > 0).sum(axis=0)
        for i, fraction in zip(indices, above / DRAWS, strict=True):
            results[i] = float(fraction)
    return results


def _with_imagined(difference: np.ndarray) -> np.ndarray:
    """Return the differences and those of the two imagined levels."""
    size = math.sqrt(float(np.mean(np.square(difference[difference != 0]))))
    return np.concatenate([difference, [size, -size]])
