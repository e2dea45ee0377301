"""Policies of an environment in pairs on the same levels: the probability that one has a higher mean return than the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gym_text_policies.report.runs import Variant
from gym_text_policies.report.statistics import PairedTest, by_level, levels_of, test_of_returns

MOST = 12
"""Most policies of an environment that are compared. The best ones are chosen."""


@dataclass(frozen=True)
class PairTable:
    """The best policies of an environment, each compared with each other one."""

    policies: tuple[str, ...]
    """Names of the policies, the best first."""
    pairs: tuple[tuple[PairedTest | None, ...], ...]
    """By row and column, how the returns of the row's policy differ from those of the column's. None on the diagonal, and where two
    policies have no common level."""
    left_out: int
    """Number of policies that are not compared."""


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
    cells: list[list[PairedTest | None]] = [[None] * len(best) for _ in best]
    for i in range(len(best)):
        for j in range(i):
            if common := [level for level in returns[i] if level in returns[j]]:
                own, other = (np.array([one[level] for level in common]) for one in (returns[i], returns[j]))
                cells[i][j] = test = test_of_returns(own, other)
                cells[j][i] = test.reversed
    return PairTable(tuple(variant.policy for variant in best), tuple(map(tuple, cells)), len(ranked) - len(best))
