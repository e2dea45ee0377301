"""Answers become actions leniently, but never wrongly."""

import pytest

from gym_text.babyai.env import BABYAI_SPEC
from gym_text.mountain_car import MOUNTAIN_CAR_SPEC
from gym_text.textworld_express.cooking_world import COOKING_WORLD_SPEC
from gym_text_policies.policies.parsing import parse_action, parse_fields

KITCHEN = {"valid_actions": ("cook apple in oven", "look around", "take apple", "take apple from shelf", "take knife")}


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        ("take apple", "take apple"),
        ("Take Apple.", "take apple"),
        ("  **take apple**\n", "take apple"),
        ("I take the apple from the shelf!", "take apple from shelf"),
        ("Let us take the knife now", "take knife"),
        ("take apple from shelf, then take knife", None),
        ("take apple or take knife", None),
        ("take apples", None),
        ("mistake apple", None),
        ("dance", None),
        ("", None),
    ],
)
def test_a_text_answer_names_one_action_or_none(answer, action):
    assert parse_action(answer, COOKING_WORLD_SPEC, KITCHEN) == action


def test_an_action_said_twice_is_still_one():
    assert parse_action("turn left. Yes, turn left", BABYAI_SPEC, {}) == "turn left"


def test_names_that_differ_only_in_punctuation_are_not_guessed():
    obs = {"valid_actions": ("take a-b", "take a b!", "take a b?")}
    assert parse_action("TAKE A B", COOKING_WORLD_SPEC, obs) is None
    assert parse_action("take a b?", COOKING_WORLD_SPEC, obs) == "take a b?"


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        ("push left", "push left"),
        ("Push right hard!", "push right hard"),
        ("I apply 0.25 of force", "0.25"),
        ("-1", "push left hard"),
        ("5e-1", "push right"),
        ("2.0", None),
        ("between 0.1 and 0.2", None),
        ("v0.3", None),
        ("nothing", None),
    ],
)
def test_a_number_is_a_force_where_actions_are_numbers(answer, action):
    assert parse_action(answer, MOUNTAIN_CAR_SPEC, {}) == action


@pytest.mark.parametrize(
    "part",
    ["turn left ", "{", '{"a":[', '{"', '{"\\"', '{"a":"', '{"action":"turn left"}', "{}", "1", "1 ", "a-", "' ", "\0"],
)
def test_a_very_long_answer_means_what_a_short_one_of_its_kind_means(part):
    short, long = 3 * part, part * (250_000 // len(part))  # quadratic work would take hours
    for spec, obs in ((BABYAI_SPEC, {}), (MOUNTAIN_CAR_SPEC, {}), (COOKING_WORLD_SPEC, KITCHEN)):
        assert parse_action(long, spec, obs) == parse_action(short, spec, obs)
    assert parse_fields(long) == parse_fields(short)


def test_an_answer_of_ten_megabytes_is_not_read():
    assert parse_action("turn left " * 10**6, BABYAI_SPEC, {}) is None
    assert parse_fields('{"action": "turn left"}' * 10**6) is None


def test_braces_in_an_answer_do_not_hide_the_object():
    assert parse_fields("{" * 300 + '{"action": "turn left"}') == {"action": "turn left"}


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        ("go to the door", None),
        ("take big apple", "take big apple"),
        ("take big apple, apple", None),
        ("apple pie or take big apple", None),
    ],
)
def test_names_that_overlap_are_ambiguous_and_names_within_names_do_not_count(answer, action):
    obs = {"valid_actions": ("apple", "apple pie", "go to", "take big apple", "to door")}
    assert parse_action(answer, COOKING_WORLD_SPEC, obs) == action


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        ('{"action": "drop"}', "drop"),
        ('```json\n{"thoughts": {"deep": 1}, "action": "drop"}\n```', "drop"),
        ('{"action": "drop"} or {"action": "toggle"}', None),
        ('{"action": "drop"}{"action": "drop"}', "drop"),
        ('{"action": "dr', None),
        ('{"action": ["drop"]}', None),
        ("{" * 3000, None),
        ('{"action": 0.5}', "0.5"),
    ],
)
def test_fields_are_read_from_any_answer(answer, action):
    fields = parse_fields(answer)
    assert (fields and fields["action"]) == action
