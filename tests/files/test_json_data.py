"""What a record holds is plain JSON, and comes back as it was."""

import math

import pytest

from gym_text_policies.files.json_data import begun, check_json, common, difference, restored


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"text": "a"}),
        ({"text": "a", "valid": [1]}, {"text": "a", "valid": [1, 2]}),
        ({"text": "a", "gone": 1, "also": None}, {"text": "b", "new": {"x": 1}}),
        ({"text": "a"}, {"text": "a"}),
    ],
)
def test_an_observation_is_restored_from_what_differs_from_the_one_before(before, after):
    stored = difference("observation", before, after)
    assert all(before.get(key, "none") != value for key, value in stored["observation"].items())
    assert restored("observation", before, stored) == after


@pytest.mark.parametrize("wrong", [{"observation": []}, {"observation": {}, "observation_without": "text"}])
def test_what_cannot_be_a_stored_difference_is_an_error(wrong):
    with pytest.raises(TypeError, match=r"observation: expected a (dict|list)"):
        restored("observation", {}, wrong)


def test_prompts_share_their_beginning_and_no_more_than_that_is_taken_back():
    assert common((1, 2, 3), (1, 2, 4, 5)) == 2 and common((), (1,)) == 0 and common((1, 2), (1, 2, 3)) == 2
    assert begun((1, 2, 3), 2) == (1, 2)
    for count in (4, -1, True, 2.0, "2"):
        with pytest.raises(ValueError, match="expected a number from 0 to 3"):
            begun((1, 2, 3), count)


def test_data_that_is_no_json_is_named_by_its_key():
    check_json("config", {"a": [1, None, "x"]})
    for value in (math.nan, {1, 2}, object()):
        with pytest.raises((TypeError, ValueError), match=r"config\['a'\]\['b'\]: expected plain JSON with finite numbers"):
            check_json("config", {"a": {"b": value}, "c": 1})
