"""`TextSpec`, the schemas made of it, and the text spaces."""

import dataclasses
import json

import numpy as np
import pytest
from experts import with_expert

from gym_text import Action, Field, InvalidActionError, TextSpec, UsageError
from gym_text.mountain_car import MOUNTAIN_CAR_SPEC
from gym_text.spaces import ActionNames, FreeText

INDEX_SPEC = TextSpec("win", {"text": Field("what is")}, (Action("take {thing}", "pick it up"),), encoding="index")


def conforms(value, schema):
    """Return whether a JSON value conforms to a schema of the few keywords that we use."""
    for keyword in ("oneOf", "anyOf"):
        if keyword in schema:
            matches = sum(conforms(value, {"type": schema.get("type"), **option}) for option in schema[keyword])
            return matches == 1 if keyword == "oneOf" else matches >= 1
    if "const" in schema:
        return value == schema["const"]
    if schema["type"] == "object":
        assert not schema["additionalProperties"]
        known = schema["properties"]
        return set(schema["required"]) <= set(value) <= set(known) and all(conforms(value[key], known[key]) for key in value)
    if schema["type"] == "array" and "prefixItems" in schema:
        return len(value) == schema["minItems"] == schema["maxItems"] and all(map(conforms, value, schema["prefixItems"]))
    if schema["type"] == "array":
        return all(conforms(item, schema["items"]) for item in value)
    if schema["type"] == "number":
        least, most = schema.get("minimum", -np.inf), schema.get("maximum", np.inf)
        return isinstance(value, int | float) and least <= value <= most
    return schema["type"] == "string" and isinstance(value, str)


def as_json(obs):
    return {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in obs.items()}


# ---------------------------------------------------------------- the spec of each environment


@with_expert
def test_names_and_observations_of_an_episode_fit_the_spec(env_id, make):
    env = make(env_id)
    spec, (obs, info) = env.get_wrapper_attr("text_spec"), env.reset(seed=0)
    schema = json.loads(json.dumps(env.get_wrapper_attr("get_observation_schema")()))
    for name in (*spec.names(obs), *info["gold_path"]):
        action = spec.encode(name, obs)
        assert action in env.action_space and spec.decode(action, obs) == name
    for name in info["gold_path"]:
        assert conforms(as_json(obs), schema)
        obs, *_ = env.step(spec.encode(name, obs))
    assert conforms(as_json(obs), schema)
    assert not conforms({**as_json(obs), "more": ""}, schema)


def test_the_spec_has_the_fields_limits_and_actions_of_the_environment(env_id, make):
    env = make(env_id)
    spec, schema = env.get_wrapper_attr("text_spec"), env.get_wrapper_attr("get_observation_schema")()
    assert set(spec.fields) == set(env.observation_space) == set(schema["properties"]) == set(schema["required"])
    for key, field in spec.fields.items():
        space = env.observation_space[key]
        assert field.meaning == schema["properties"][key]["description"]
        assert field.is_list == isinstance(space, ActionNames)
        if field.quantities:
            low, high = (0, 1) if space.dtype == np.int8 else (space.low, space.high)
            assert space.shape == (len(field.quantities),)
            assert np.allclose([quantity.low for quantity in field.quantities], low, atol=1e-4)
            assert np.allclose([quantity.high for quantity in field.quantities], high, atol=1e-4)
    (obs, _), actions = env.reset(seed=0), env.get_wrapper_attr("get_action_schema")()
    assert all(conforms(name, actions) for name in spec.names(obs))
    assert all(action.meaning in json.dumps(actions) for action in spec.actions)
    said = spec.describe_fields().splitlines(), spec.describe_actions().splitlines()
    assert all(line.startswith(f"- {key}: {spec.fields[key].meaning}") for line, key in zip(said[0], spec.fields, strict=True))
    assert all(line == f"- {action.name}: {action.meaning}" for line, action in zip(said[1], spec.actions, strict=True))
    assert spec.reward and spec.goal == env.get_wrapper_attr("get_goal_description")() == json.loads(spec.to_json())["goal"]
    assert spec.to_json() == make(env_id).get_wrapper_attr("text_spec").to_json()
    assert spec.to_json() != dataclasses.replace(spec, goal="another").to_json()


# ---------------------------------------------------------------- encoding


@pytest.mark.parametrize(
    ("name", "number", "decoded"),
    [
        ("push right", 0.5, "push right"),
        ("0.25", 0.25, "0.25"),
        ("-1", -1.0, "push left hard"),
        ("-0", 0.0, "coast"),
        ("1e-1", 0.1, "0.1"),
        (" 0.3 ", 0.3, "0.3"),
    ],
)
def test_a_box_action_is_a_name_or_a_number(name, number, decoded):
    action = MOUNTAIN_CAR_SPEC.encode(name, {})
    assert action.shape == (1,) and action.dtype == np.float32
    assert action[0] == np.float32(number)
    assert MOUNTAIN_CAR_SPEC.decode(action, {}) == decoded
    assert MOUNTAIN_CAR_SPEC.encode(decoded, {}) == action


@pytest.mark.parametrize("name", ["1.01", "-2", "nan", "inf", "hard left", "", "Push Right"])
def test_a_name_that_is_no_box_action_is_refused(name):
    with pytest.raises(InvalidActionError, match=f"'coast', .*'push right hard' or a number from -1 to 1; got '{name}'"):
        MOUNTAIN_CAR_SPEC.encode(name, {})


@pytest.mark.parametrize("env_id", ["BabyAIText-v0", "LunarLanderLLM-v2"])
def test_unknown_names_and_indices_of_a_discrete_action_are_refused(env_id, make):
    spec = make(env_id).get_wrapper_attr("text_spec")
    with pytest.raises(InvalidActionError, match=f"expected one of '{spec.actions[0].name}', .*; got 'fly'"):
        spec.encode("fly", {})
    for action in (-1, len(spec.actions), 1.5):
        with pytest.raises(InvalidActionError, match=f"expected an index from 0 to {len(spec.actions) - 1}; got {action}"):
            spec.decode(action, {})


def test_an_index_is_the_place_among_the_valid_actions():
    obs = {"valid_actions": ("go", "look")}
    assert [INDEX_SPEC.encode(name, obs) for name in INDEX_SPEC.names(obs)] == [0, 1]
    assert INDEX_SPEC.decode(1, obs) == "look"
    with pytest.raises(InvalidActionError, match="expected one of 'go', 'look'; got 'jump'"):
        INDEX_SPEC.encode("jump", obs)
    with pytest.raises(InvalidActionError, match="expected an index from 0 to 1; got 2"):
        INDEX_SPEC.decode(2, obs)


# ---------------------------------------------------------------- spaces


def test_free_text_contains_printable_ascii_up_to_its_bound():
    space = FreeText(5)
    assert all(text in space for text in ("", "a b\n", "12345"))
    assert not any(value in space for value in ("123456", "é", "\x00", 3, None, b"a", ["a"]))
    assert (space.shape, space.dtype) == ((), np.dtype(object))
    assert "5" in repr(space) and len(repr(space)) < 40


def test_action_names_contain_tuples_of_names():
    space = ActionNames(5)
    assert all(names in space for names in ((), ("a",), ("a", "b b")))
    assert not any(value in space for value in (["a"], "a", ("123456",), (3,), None))
    assert (space.shape, space.dtype) == ((), np.dtype(object))


def test_a_name_that_is_listed_twice_is_said_once_and_keeps_its_places():
    obs = {"valid_actions": ("a", "b", "a", "c")}
    assert INDEX_SPEC.names(obs) == ("a", "b", "c")
    assert [INDEX_SPEC.encode(name, obs) for name in INDEX_SPEC.names(obs)] == [0, 1, 3]
    assert [INDEX_SPEC.decode(place, obs) for place in range(4)] == ["a", "b", "a", "c"]


# ---------------------------------------------------------------- what cannot work is refused where it is written

FIELDS = {"text": Field("what you see")}
GO = Action("go", "move")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TextSpec("g", FIELDS, (GO,), encoding="txt"), "encoding: expected one of 'text', .*; got 'txt'. Did you mean"),
        (lambda: TextSpec("g", FIELDS, (GO, GO), "discrete"), "TextSpec.actions: expected a different name for each action"),
        (lambda: TextSpec("g", FIELDS, (Action("go", "m", 2.0),), "box"), "'go': expected a number from -1 to 1; got 2.0"),
        (lambda: TextSpec("g", FIELDS, (Action("go", "m", 0.5),), "box", size=2), "Action.value of 'go': expected 2 numbers"),
    ],
)
def test_a_spec_that_cannot_work_is_refused_where_it_is_written(make, message):
    with pytest.raises(UsageError, match=message):
        make()
