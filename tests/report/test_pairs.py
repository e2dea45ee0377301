"""Policies in pairs on the same seeds."""

import dataclasses

import pytest
from report_runs import SEEDS

from gym_text_policies.report.compare import pairs_of
from gym_text_policies.report.runs import read_runs


def test_pairs_are_of_the_seeds_that_both_have_played(run):
    comparison = pairs_of(read_runs([run]).variants)
    assert comparison.policies[0] == "gold (expert)" and "forward" not in comparison.policies  # all its episodes are errors
    pairs = comparison.pairs
    assert len(pairs) == 6 and {pair.levels for pair in pairs.values()} == {len(SEEDS)}
    assert pairs[0, 3].interval[0] <= pairs[0, 3].difference <= pairs[0, 3].interval[1]
    assert min(pair.p for pair in pairs.values()) == pytest.approx(6 * 2 / 2 ** len(SEEDS)), "six comparisons, by Holm"


def test_a_level_counts_once_in_a_pair(run):
    first, second = (variant for variant in read_runs([run]).variants if variant.policy in ("gold (expert)", "random"))

    def of(variant, level):
        episodes = tuple(dataclasses.replace(one, level=level(one.seed)) for one in variant.episodes)
        return dataclasses.replace(variant, episodes=episodes)

    for level, levels in ((lambda seed: seed // 2, len(SEEDS) // 2), (lambda seed: None, len(SEEDS))):
        assert pairs_of([of(first, level), of(second, level)]).pairs[0, 1].levels == levels
