"""Parameters out of a model's answers."""

import pytest
from searches import config

from gym_text_policies.policies.parametric import Parameter
from gym_text_policies.search import search
from gym_text_policies.search.model import RejectedError, check_new, parse_parameters, reason_of

PAIR = [Parameter("w_x", "", -6, 6), Parameter("w_y", "", -6, 6)]


@pytest.mark.parametrize(
    ("answer", "values"),
    [
        ("w_x = 1.5, w_y = -2", (1.5, -2)),
        ("**w_x**: 3e-1\n**w_y**: .5", (0.3, 0.5)),
        ("I would take [1, -1.5].", (1, -1.5)),
        ("1.25 -3", (1.25, -3)),
        ("\N{MINUS SIGN}1 and \N{MINUS SIGN}2", (-1, -2)),
        ('{"reason": "try 3", "w_x": 1, "w_y": 2e0}', (1, 2)),
        ('{"w_x": 1, "w_y": 2} no: {"W_X": "3", "W_Y": 4}', (3, 4)),
        ('{"parameters": [5, 6]}', (5, 6)),
        ('{"parameters": {"w_x": 0, "w_y": -6}}', (0, -6)),
        ('{"reason": "cut off", "w_x": 1.5, "w_y": 2.25', (1.5, 2.25)),
    ],
)
def test_numbers_are_read_as_they_are_meant(answer, values):
    assert parse_parameters(answer, PAIR) == values


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "There have to be 2 numbers, one for each parameter; found 0"),
        ("only 3", "found 1"),
        ("Between (0, 1) and (2, 3)", "found 4"),
        ("w_x = - 1.5, w_y = 2", "found 0"),
        ("7, 2", "w_x = 7 is not from -6 to 6"),
        ("w_x=1, w_y=1e999", "w_y = inf is not from"),
        ('{"w_x": NaN, "w_y": 1}', "w_x = nan is not"),
        ('{"w_x": true, "w_y": null}', "found 0"),
    ],
)
def test_what_cannot_be_used_is_told_why(answer, reason):
    with pytest.raises(RejectedError, match=reason):
        parse_parameters(answer, PAIR)


def test_a_repeat_is_rejected_with_its_value_and_the_reason_is_kept():
    found = search(config())
    with pytest.raises(RejectedError, match="tried before and gave"):
        check_new([value + 1e-9 for value in found.evaluations[0].parameters], found.evaluations)
    assert reason_of('{"reason": " up ", "p1": 1}') == "up"
    assert reason_of("Higher. p1=1") == "Higher. p1=1" and reason_of(" ") is None


@pytest.mark.parametrize(
    ("answer", "finish", "reason"),
    [
        ("w_x = 1.5, w_y = 2", "length", "found 1"),
        ("w_x = 1.5, w_y = 2.25e", "length", "found 1"),
        ("I cannot set w_x = 1 and w_y = 2.", "refusal", "no answer"),
    ],
)
def test_a_number_that_was_cut_is_not_read_and_a_refusal_proposes_nothing(answer, finish, reason):
    with pytest.raises(RejectedError, match=reason):
        parse_parameters(answer, PAIR, finish=finish)
    assert parse_parameters("w_x = 1.5, w_y = 2, which", PAIR, finish="length") == (1.5, 2)
