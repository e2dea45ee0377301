"""Policies in pairs on the same seeds."""

import dataclasses

import numpy as np
import pytest
from report_runs import SEEDS

from gym_text_policies.report.bootstrap import probability_of_better
from gym_text_policies.report.pairs import pairs_of
from gym_text_policies.report.runs import read_runs
from gym_text_policies.report.statistics import PairedTest
from gym_text_policies.report.table import shown_difference


def result(better, levels=10):
    return PairedTest(0.0, 0.0, 1.0, levels, better=better)


def test_few_differing_seeds_are_never_certain():
    assert probability_of_better(np.zeros(9)) == 0.5
    one = probability_of_better(np.array([1.0] + [0.0] * 99))
    assert one == pytest.approx(0.75, abs=0.03)  # one seed won: a flat prior on the share of seeds won gives 3/4
    all_ten, against = probability_of_better(np.ones(10)), probability_of_better(-np.ones(10))
    assert all_ten > 0.995 and against < 0.005
    assert result(all_ten).better_text == "> 0.99" and result(against).better_text == "< 0.01"
    assert result(1.0, 9).better_text == "0.99" and result(1.0, 9).few and shown_difference(-0.001) == "0.00"
    assert result(0.992, 50).better_text == "0.99"  # 4,000 draws cannot tell it from 0.99


def test_pairs_are_of_the_seeds_that_both_have_played(run):
    comparison = pairs_of(read_runs([run]).variants)
    assert comparison.policies[0] == "gold (expert)" and "forward" not in comparison.policies  # all its episodes are errors
    pairs = [pair for row in comparison.pairs for pair in row if pair]
    assert len(pairs) == 12 and {pair.levels for pair in pairs} == {len(SEEDS)} and all(pair.few for pair in pairs)
    assert comparison.pairs[0][1].better == 1 - comparison.pairs[1][0].better


def test_a_level_counts_once_in_a_pair_and_is_known_from_whichever_policy_tells(run):
    first, second = (variant for variant in read_runs([run]).variants if variant.policy in ("gold (expert)", "random"))

    def of(variant, level):
        episodes = tuple(dataclasses.replace(one, level=level(one.seed)) for one in variant.episodes)
        return dataclasses.replace(variant, episodes=episodes)

    told, old = of(first, lambda seed: seed // 2), of(second, lambda seed: None)
    assert pairs_of([told, old]).pairs[0][1].levels == len(SEEDS) // 2
    assert pairs_of([of(first, lambda seed: None), old]).pairs[0][1].levels == len(SEEDS)
