"""The table as a terminal shows it: what stands first, what fits, and why answers could not be used."""

import dataclasses

from gym_text_policies.report.figures import Summary, row
from gym_text_policies.report.statistics import return_interval, t_interval, wilson_interval
from gym_text_policies.report.table import fitted


def summary(seed, reward, **more):
    outcome = "won" if reward > 0.5 else "lost"
    return dataclasses.replace(Summary(str(seed), seed, outcome, None, reward, 4, 0, 10, 2, 0.5, 0.0), **more)


def figures():
    wrong = {"invalid": 3, "invalid_reasons": {"no action": 40, "cut": 2}}
    return [
        row("BabyAIText-v0?task=goto", "random", [summary(seed, float(seed % 2)) for seed in range(4)]),
        row("BabyAIText-v0?task=goto", "talks", [summary(0, 0.0, **wrong)]),
        row("LunarLanderLLM-v2", "random", [summary(seed, -190.0 - seed) for seed in range(4)]),
    ]


def test_success_comes_first_below_a_heading_for_each_environment():
    table, note = fitted(figures()).split("\n\n")
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert lines[0][:5] == ["policy", "success [95 %]", "return [95 %]", "episodes", "unusable answers"]
    headings = [line[0] for line in lines[2:] if not any(line[1:])]
    assert headings == ["BabyAIText-v0?task=goto", "LunarLanderLLM-v2"]
    assert lines[4][0] == "talks" and lines[4][4] == "75%: mostly no action"
    assert lines[6][2].startswith("-192 [") and "table.md" in note


def test_a_note_explains_a_column_only_where_the_table_has_it():
    told, usable = fitted(figures()), fitted([row("LunarLanderLLM-v2", "random", [summary(0, -190.0)])])
    assert "Unusable answers: share" in told and "Unusable answers" not in usable and "table.md" in usable
    assert "Unusable answers" not in fitted(figures(), 60), "the column did not fit"
    only = [row("BabyAIText-v0", "talks", [summary(0, 0.0, invalid=3, invalid_reasons={"cut": 3})])]
    assert "75%: too long " in fitted(only) and "Too long: the answer" in fitted(only), "there is no other reason"


def test_a_table_is_no_wider_than_asked_and_loses_the_least_telling_columns_first():
    wide, narrow = (fitted(figures(), width).partition("\n\n")[0] for width in (200, 80))
    assert max(map(len, narrow.splitlines())) <= 80 < max(map(len, wide.splitlines())) <= 200
    assert "episodes" in narrow and "tokens in" in wide and "tokens in" not in narrow


def test_an_interval_of_the_return_stays_within_the_returns_that_are_possible():
    values = [0.4, 0.0, 0.03]
    low, high = t_interval(values)
    assert low < 0 and return_interval(values, (0.0, 1.0)) == (0.0, high)
    assert return_interval(values) == (low, high)
    assert return_interval([2.0, 3.0], (0.0, 1.0)) == t_interval([2.0, 3.0]), "these bounds are another game's"
    assert return_interval([1.0] * 9, (0.0, 1.0)) == wilson_interval(9, 9), "equal returns say nothing of their spread"
    assert return_interval([-1.0] * 9, (-1.0, 1.0)) == (-1.0, 2 * wilson_interval(0, 9)[1] - 1)
    assert return_interval([], (0.0, 1.0)) is None and return_interval([5.0]) is None
