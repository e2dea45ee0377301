"""Compare policies in pairs on the same seeds: how probable it is that one of them is better."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gym_text_policies.report.runs import Variant

MOST = 12
"""Most policies of an environment that are compared: the best ones."""
FEW = 10
"""Fewer common seeds than this say little."""
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
    seeds: int
    """Seeds that both policies have played without an error."""

    @property
    def few(self) -> bool:
        """Whether there are too few seeds to say much."""
        return self.seeds < FEW

    @property
    def text(self) -> str:
        """The probability in words. "> 0.99" needs enough seeds and enough bootstrap samples; see `sure`."""
        if self.sure(self.probability):
            return "> 0.99"
        if self.sure(1 - self.probability):
            return "< 0.01"
        return f"{min(max(self.probability, 0.01), 0.99):.2f}"

    @property
    def shown_difference(self) -> str:
        """The difference as text; a difference that rounds to 0 has no sign."""
        text = f"{self.difference:+.2f}"
        return "0.00" if float(text) == 0 else text

    def sure(self, probability: float) -> bool:
        """Whether a probability is above 0.99 by three standard errors of the bootstrap, on enough seeds."""
        return not self.few and probability - 3 * math.sqrt(probability * (1 - probability) / DRAWS) > 0.99


@dataclass(frozen=True)
class Comparison:
    """The best policies of an environment, each compared with each."""

    policies: tuple[str, ...]
    """Best first."""
    pairs: tuple[tuple[Pair | None, ...], ...]
    """Pairs by row and column. None on the diagonal, and where two policies have no common seed."""
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
        key=lambda variant: (variant.row["success"], variant.row["return"]),
        reverse=True,
    )
    best = ranked[:MOST]
    if len(best) < 2:
        return None
    returns = [{e.seed: e.total_reward for e in variant.episodes if e.error is None} for variant in best]
    cells: list[list[Pair | None]] = [[None] * len(best) for _ in best]
    places = [(i, j) for i in range(len(best)) for j in range(i)]
    differences = [np.array([returns[i][s] - returns[j][s] for s in sorted(returns[i].keys() & returns[j])]) for i, j in places]
    for (i, j), difference, probability in zip(places, differences, probabilities_of_better(differences), strict=True):
        if len(difference):
            cells[i][j] = Pair(probability, float(difference.mean()), len(difference))
            cells[j][i] = Pair(1 - probability, -float(difference.mean()), len(difference))
    names = tuple(variant.policy for variant in best)
    return Comparison(names, tuple(map(tuple, cells)), len(ranked) - len(best))


def probabilities_of_better(differences: Sequence[np.ndarray], seed: int = 0) -> list[float]:
    """Return the probability that a mean is above 0, for each array of differences by seed.

    This is the Bayesian bootstrap (Rubin 1981, https://doi.org/10.1214/aos/1176345338): the weights of the seeds are drawn from a
    flat Dirichlet distribution. Two imagined seeds are added, one in favour of either policy. Each is as large as the root mean
    square of the differences that are not 0. Without them, two policies that differ in a single seed would be compared with
    certainty. With them, differences of one size give the same result as a flat prior on the share of seeds won.

    >>> even, better = probabilities_of_better([np.zeros(20), np.array([1.0] + [0.0] * 19)])
    >>> even, 0.7 < better < 0.8
    (0.5, True)
    """
    results = [0.5] * len(differences)
    by_count: dict[int, list[int]] = {}
    for i, difference in enumerate(differences):
        if np.any(difference):
            by_count.setdefault(len(difference), []).append(i)
    for count, places in by_count.items():
        rng = np.random.default_rng([seed, count])
        table = np.stack([_with_imagined(differences[i]) for i in places])  # (pairs, seeds + 2)
        above = np.zeros(len(places))
        for _ in range(DRAWS // _CHUNK):
            weights = rng.standard_exponential((_CHUNK, count + 2))  # their sum does not change the sign
            above += (weights @ table.T > 0).sum(axis=0)
        for i, fraction in zip(places, above / DRAWS, strict=True):
            results[i] = float(fraction)
    return results


def _with_imagined(difference: np.ndarray) -> np.ndarray:
    """Return the differences and two imagined ones."""
    size = math.sqrt(float(np.mean(np.square(difference[difference != 0]))))
    return np.concatenate([difference, [size, -size]])
