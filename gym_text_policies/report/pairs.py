"""Policies of an environment in pairs on the same levels: the probability that one has a higher mean return than the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gym_text_policies.report.bootstrap import DRAWS, probabilities_of_better
from gym_text_policies.report.runs import Variant
from gym_text_policies.report.statistics import by_level, levels_of
from gym_text_policies.report.table import number

MOST = 12
"""Most policies of an environment that are compared. The best ones are chosen."""
FEW = 10
"""A pair with fewer common levels is marked as uncertain."""


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
        """The probability as text. "> 0.99" needs enough levels, and three standard errors of the bootstrap."""
        for probability, text in ((self.probability, "> 0.99"), (1 - self.probability, "< 0.01")):
            if not self.few and probability - 3 * math.sqrt(probability * (1 - probability) / DRAWS) > 0.99:
                return text
        return f"{min(max(self.probability, 0.01), 0.99):.2f}"

    @property
    def shown_difference(self) -> str:
        """The difference as text; a difference that rounds to 0 has no sign."""
        text = number(self.difference, "+.2f")
        return "0.00" if float(text) == 0 else text


@dataclass(frozen=True)
class PairTable:
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


def pairs_of(variants: Sequence[Variant]) -> PairTable | None:
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
    both = {(i, j): [level for level in returns[i] if level in returns[j]] for i in range(len(best)) for j in range(i)}
    differences = {
        (i, j): np.array([returns[i][level] - returns[j][level] for level in common]) for (i, j), common in both.items() if common
    }
    better = probabilities_of_better(list(differences.values()))
    for ((i, j), difference), probability in zip(differences.items(), better, strict=True):
        mean = float(difference.mean())
        cells[i][j] = Pair(probability, mean, len(difference))
        cells[j][i] = Pair(1 - probability, -mean, len(difference))
    return PairTable(tuple(variant.policy for variant in best), tuple(map(tuple, cells)), len(ranked) - len(best))
