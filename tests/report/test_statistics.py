"""Tests on the same levels, against values that were computed by hand."""

import numpy as np
import pytest

from gym_text_policies.report.statistics import STEPS_OF_WINS, Result, bootstrap, mcnemar, paired_tests, percentiles, signed_rank


def test_mcnemars_test_is_the_chance_that_a_fair_coin_falls_so_unevenly():
    assert mcnemar(3, 7) == mcnemar(7, 3) == 2 * (1 + 10 + 45 + 120) / 2**10
    assert mcnemar(0, 6) == 2 / 2**6 and mcnemar(4, 4) == mcnemar(0, 0) == 1
    assert mcnemar(0, 3000) == 0 < mcnemar(0, 900)  # beyond the smallest number, and before it


def test_wilcoxons_test_counts_the_signs_that_give_so_small_a_sum_of_ranks():
    assert signed_rank([1, 2, 3, 4, 5]) == 2 / 2**5
    assert signed_rank([10, 20, 30, 40, -50]) == 2 * 10 / 2**5  # ten sets of the ranks 1 to 5 have a sum of 5 or less
    assert signed_rank([0, 0]) == 1 and signed_rank([1, 2, 3, 4, 5, 0]) == signed_rank([1, 2, 3, 4, 5])
    assert signed_rank([1 - 2 / 3] * 3 + [-1 / 3] * 3) == 1  # equal but for their last digit


def test_wins_returns_and_steps_are_tested_on_the_levels_that_all_have_played():
    old = {level: Result(level in (1, 2), 0.5, 10) for level in (1, 2, 3, 4, 99)}
    new = {level: Result(level != 1, 1.0, 9 - level) for level in (0, 1, 2, 3, 4)}
    tests = paired_tests([new], [old])
    assert {name: test.levels for name, test in tests.items()} == {"success": 4, "return": 4, "steps": 4, STEPS_OF_WINS: 1}
    assert tests["success"].alone == (2, 1) and tests["success"].p == 1 and tests["success"].difference == 0.25
    assert tests["return"].value == 1 and tests["return"].p == 2 / 2**4 and tests["return"].alone is None
    assert tests[STEPS_OF_WINS].difference == 7 - 10


def test_training_runs_that_win_different_levels_are_tested_by_their_means():
    base = [{level: Result(0, 0, 1) for level in range(5)}]
    runs = [{level: Result(level <= 3 * run, level, 1) for level in range(5)} for run in range(2)]
    tests = paired_tests(runs, base)
    assert tests["success"].alone is None and tests["success"].value == (1 + 3 * 0.5) / 5
    silent = [{level: Result(np.nan, 1, 1) for level in range(5)}]
    assert paired_tests(silent, base).keys() == {"return", "steps"} and paired_tests(runs, [{9: Result(0, 0, 1)}]) == {}


def test_a_training_run_is_drawn_whole_and_environments_with_other_runs_are_drawn_apart():
    effects = np.random.default_rng(1).normal(size=(20, 1))
    table, names = np.repeat(effects, 30, axis=1), tuple(map(str, range(20)))
    others = tuple(f"other {name}" for name in names)
    expected = effects.std() / np.sqrt(20)
    once, same, apart = bootstrap([[(names, table)] * 2, [(names, table)] * 2, [(names, table), (others, table)]], np.mean).std(
        axis=1
    )
    assert once == pytest.approx(expected, rel=0.05) and same == pytest.approx(expected, rel=0.05)
    assert apart == pytest.approx(expected / np.sqrt(2), rel=0.05)


def test_the_interval_covers_the_true_mean_of_levels_and_training_runs():
    rng = np.random.default_rng(3)
    covered, names = 0, tuple(map(str, range(10)))
    for _ in range(60):
        table = rng.normal(size=(10, 1)) + rng.normal(size=(1, 25)) + rng.normal(size=(10, 25))
        low, high = percentiles(bootstrap([[(names, table)]], np.mean)[0])
        covered += low < 0 < high
    assert 0.9 <= covered / 60 < 1  # draws of levels alone cover it 70 times in 100, draws of runs alone 85 times
