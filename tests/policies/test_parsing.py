"""Answers become actions leniently, but never wrongly."""

import random
import re

import pytest

from gym_text.babyai.env import BABYAI_SPEC
from gym_text.mountain_car import MOUNTAIN_CAR_SPEC
from gym_text.textworld_express.house_games import CookingWorldEnv
from gym_text_policies.environments import environment_maker
from gym_text_policies.policies.parsing import parse_action, parse_fields, read_answer

PARTS, WORDS = re.compile(r"\w+|\W"), re.compile(r"\w+(?:['-]\w+)*|[^\w\s]")
GAMES = ("BabyAIText-v0", "CookingWorldText-v0", "MountainCarContinuousLLM-v0", "TextCraftText-v0")
KITCHEN = {"valid_actions": ("cook apple in oven", "look around", "take apple", "take apple from shelf", "take knife")}


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        ("take apple", "take apple"),
        ("Take Apple.", "take apple"),
        ("I take the apple from the shelf!", "take apple from shelf"),
        ("Let us take the knife now", "take knife"),
        ("take apple from shelf, then take knife", None),
        ("take apple or take knife", None),
        ("mistake apple", None),
        ("dance", None),
    ],
)
def test_a_text_answer_names_one_action_or_none(answer, action):
    assert parse_action(answer, CookingWorldEnv.game_spec, KITCHEN) == action


def test_names_that_differ_only_in_punctuation_are_not_guessed():
    obs = {"valid_actions": ("take a-b", "take a b!", "take a b?")}
    assert parse_action("TAKE A B", CookingWorldEnv.game_spec, obs) is None
    assert parse_action("take a b?", CookingWorldEnv.game_spec, obs) == "take a b?"


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
    ],
)
def test_a_number_is_a_force_where_actions_are_numbers(answer, action):
    assert parse_action(answer, MOUNTAIN_CAR_SPEC, {}) == action


@pytest.mark.parametrize("part", ["turn left ", '{"a":[', '{"\\"', '{"action":"turn left"}', "1 ", "a-"])
def test_a_very_long_answer_means_what_a_short_one_of_its_kind_means(part):
    short, long = 3 * part, part * (60_000 // len(part))  # quadratic work would take minutes
    for spec, obs in ((BABYAI_SPEC, {}), (MOUNTAIN_CAR_SPEC, {}), (CookingWorldEnv.game_spec, KITCHEN)):
        assert parse_action(long, spec, obs) == parse_action(short, spec, obs)
    assert parse_fields(long) == parse_fields(short)


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
    assert parse_action(answer, CookingWorldEnv.game_spec, obs) == action


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


# ---------------------------------------------------------------- what was not said is not played


@pytest.mark.parametrize(
    ("names", "answer", "action"),
    [
        ("[A B]|[B C]", "[B A]", None),
        ("[A B]|[B C]", "[b c]", "[B C]"),
        ("[B-]", "[B]", None),
        ("[B-]", "[B+]", None),
        ("[B-]", "B-", "[B-]"),
        ("a|b|c", "", None),
        ("a|b|c", "A.", "a"),
        ("+1|0", "-1", None),
        ("+1|0", "1", None),
        ("-1|0", "\N{MINUS SIGN}1", "-1"),
        ("1|2", "1.5", None),
        ("5", ".5", None),
        ("5", "1,5", None),
        ("5", "1/5", None),
        ("5", "It is 5.", "5"),
        ("|go", "", None),
        ("!|go", "?", None),
        ("[0 1 +]|[0 1 -]|[1 0 +]", "I add them: [0 1 +]", "[0 1 +]"),
        ("[1 2]|[2 1]", "My move is [1,2].", "[1 2]"),
        ("[2, 3]|[3, 2]", "[2,3]", "[2, 3]"),
        ("[2]|[12]", "1[2]", None),
        ("[5]|[7]", "5!", "[5]"),
        ("say the word|say a word", "say a word now", "say a word"),
        ("take apple", "Take <b>the</b> apple", None),
        ("take apple", "take the 'apple'", "take apple"),
        ("turn_left|turn left", "I turn_left", "turn_left"),
        ("1|-1", "\N{FULLWIDTH HYPHEN-MINUS}1", "-1"),
        ("1|-1", "\N{EM DASH}1", None),
        ("1|-1", "It is Negative **1**.", None),
        ("1|-1", "-**1**", None),
        ("B|B-", "B\N{NON-BREAKING HYPHEN}", "B-"),
        ("e|a", "e\N{COMBINING ACUTE ACCENT}", None),
    ],
)
def test_signs_and_articles_of_a_name_have_to_be_said(names, answer, action):
    assert parse_action(answer, CookingWorldEnv.game_spec, {"valid_actions": tuple(names.split("|"))}) == action


@pytest.mark.parametrize(
    "answer",
    [
        *("- 0.5", "\N{PLUS-MINUS SIGN}0.5", "50%", "0.5%", "0.5 %", "0.5.1"),
        *("\N{EM DASH}0.5", "minus 0.5", "Negative **0.5**", "-(0.5)", "-**0.5**", "force-0.5", "1-0.5"),
    ],
)
def test_a_number_loses_no_sign(answer):
    assert parse_action(answer, MOUNTAIN_CAR_SPEC, {}) is None


def names_of(name):
    """Return the spec of a game, and its lists of names at the start and after a few drawn steps."""
    env = environment_maker(name)()
    obs, _ = env.reset(seed=0)
    rng, spec, lists = random.Random(0), env.get_wrapper_attr("text_spec"), []
    while len(lists) < 4:
        lists.append(spec.names(obs))
        obs, *_ = env.step(spec.encode(rng.choice(lists[-1]), obs))
    env.close()
    return spec, lists


def edited(name, pieces, rng):
    """Return a name with one token or one character inserted, deleted, replaced, or swapped with the next."""
    parts = list(name) if rng.random() < 0.5 else PARTS.findall(name)
    place, edit = rng.randrange(len(parts)), rng.randrange(4)
    if edit == 3:
        parts[place : place + 2] = parts[place : place + 2][::-1]
    else:
        parts[place : place + (edit > 0)] = [rng.choice(pieces)] if edit < 2 else []
    return "".join(parts)


def core(text):
    """Return a text without what an edit may change of a name that is still meant: case, spaces, signs, articles."""
    return [word for word in re.findall(r"[^\W_]+", text.lower()) if word not in ("a", "an", "the")]


def within(answer, names):
    """Return the one name that stands in an answer by itself, but for case and spaces, and in no longer one that does."""
    spaced = {name: f" {' '.join(WORDS.findall(name.lower()))} " for name in names}
    found = [name for name in names if spaced[name] in f" {' '.join(WORDS.findall(answer.lower()))} "]
    longest = [name for name in found if not any(name != other and spaced[name] in spaced[other] for other in found)]
    return longest[0] if len(longest) == 1 else None


@pytest.mark.parametrize("name", GAMES)
def test_a_name_with_one_mistake_never_plays_another_action(name):
    spec, lists = names_of(name)
    rng = random.Random(1)
    others = [*"+-[]., aA0x\n", " the "]
    pieces = [[*names, *(part for name in names for part in PARTS.findall(name)), *others * len(names)] for names in lists]
    for turn in range(2_000):
        names = lists[turn % len(lists)]
        said = rng.choice(names)
        answer = edited(said, pieces[turn % len(lists)], rng)
        action = parse_action(answer, spec, {"valid_actions": names})
        if action in (None, answer) or (action == said and core(answer) == core(said)):
            continue
        assert action == within(answer, names) or (spec.encoding == "box" and re.search(r"\d", answer)), (said, answer, action)
    for names in lists:
        for said in names:
            assert parse_action(said, spec, {"valid_actions": names}) == said
            assert parse_action(f"I choose: **{said}**", spec, {"valid_actions": names}) == said


# ---------------------------------------------------------------- answers that were cut


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        ("take apple", None),  # from where?
        ("take apple from shelf", "take apple from shelf"),
        ("Take the apple from shelf", None),
        ("take kn", None),
        ("take knife", "take knife"),
        ("take knife. Then I", None),
        ("", None),
    ],
)
def test_an_answer_that_was_cut_is_a_whole_name_with_which_no_longer_one_begins(answer, action):
    assert parse_action(answer, CookingWorldEnv.game_spec, KITCHEN, finish="length") == action


def test_a_number_that_was_cut_is_none_and_a_refusal_names_no_action():
    assert parse_action("0.1", MOUNTAIN_CAR_SPEC, {}, finish="length") is None
    for finish in ("refusal", "content_filter"):
        assert parse_action("turn left", BABYAI_SPEC, {}, finish=finish) is None
        assert parse_fields('{"action": "turn left"}', finish=finish) is None
        assert read_answer('{"action": "turn left"}', BABYAI_SPEC, {}, finish=finish) == (None, None)


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        ('{"action": "drop"}', "drop"),
        ('{"action": "drop", "why": "I', None),
        ('{"action": "drop"} or {"action": "tog', None),
        ('So: {"action": "drop"}', None),
        ('{"action": "drop"}{"action": "drop"}', "drop"),
        ('{"why": {"action": "drop"}', None),
    ],
)
def test_a_json_object_that_was_cut_is_unusable(answer, action):
    assert read_answer(answer, BABYAI_SPEC, {}, finish="length")[0] == action


@pytest.mark.parametrize("answer", ['{"reasoning": "Never turn left', '```json\n{ "reasoning": "Do not turn left", "action": tur'])
def test_words_in_a_damaged_object_name_no_action(answer):
    assert read_answer(answer, BABYAI_SPEC, {}) == (None, None)
    assert read_answer("I turn left.", BABYAI_SPEC, {}) == ("turn left", None)
