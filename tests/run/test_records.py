"""The records survive JSON, and their derived values follow from the steps."""

import copy
import dataclasses
import json
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gym_text import UsageError
from gym_text_policies import Decision, Episode, EpisodeStore, Step
from gym_text_policies.files.json_data import plain
from gym_text_policies.records import Tokens
from gym_text_policies.report.figures import Summary, row

SYSTEM = {"role": "system", "content": "You play."}


def step(number: int, **changes) -> Step:
    message = {"role": "user", "content": f"state {number}"}
    decision = Decision("go", messages=(SYSTEM, message), completion="go!", tokens_in=10, tokens_out=2, probabilities={"go": 1.0})
    fields = {"reward": 0.5, "terminated": False, "truncated": False, "success": False, "failure": False, "score": 0.0}
    return Step({"goal": "win", "text": f"state {number}"}, decision, action_was_valid=True, **(fields | changes))


def episode(*steps: Step, error: str | None = None) -> Episode:
    last = {"goal": "win", "text": "end"} if steps else {}
    return Episode("key", {"id": "Env-v0"}, {"kind": "test"}, 3, steps, last, error, level=7)


def test_what_a_step_repeats_is_stored_once():
    text = json.dumps(episode(*(step(i) for i in range(50))).to_json())
    assert text.count("You play.") == 1
    assert text.count('"goal"') == 1


@pytest.mark.parametrize(
    ("last", "error", "outcome"),
    [
        ({"terminated": True, "success": True}, None, "won"),
        ({"truncated": True, "success": True}, None, "won"),
        ({"terminated": True, "failure": True}, None, "lost"),
        ({"terminated": True}, None, "lost"),
        ({"terminated": True, "success": None}, None, "ended"),
        ({"terminated": True, "success": None, "failure": True}, None, "lost"),
        ({"truncated": True}, None, "truncated"),
        ({}, "PolicyError: no answer", "error"),
    ],
)
def test_the_outcome_follows_from_the_last_step(last, error, outcome):
    assert episode(step(0, success=last.get("success", False)), step(1, **last), error=error).outcome == outcome


def test_sums_run_over_all_steps():
    invalid = dataclasses.replace(step(1), action_was_valid=False)
    record = episode(step(0), invalid, step(2))
    assert (record.total_reward, record.length, record.invalid) == (1.5, 3, 1)
    assert (record.tokens_in, record.tokens_out) == (30, 6)


def test_float32_is_stored_by_its_shortest_digits():
    values = plain({"a": np.array([0.1, -2.5], dtype=np.float32), "b": ("x", "y"), "c": np.int8(1)})
    assert json.dumps(values) == '{"a": [0.1, -2.5], "b": ["x", "y"], "c": 1}'
    assert np.float32(values["a"][0]) == np.float32(0.1)


keys = st.sampled_from(["goal", "text", "look"])
words = st.sampled_from(["", "a", "b"]) | st.text(max_size=5)
numbers = st.floats(-1e6, 1e6) | st.integers(-3, 3).map(float)
observations = st.dictionaries(keys, words | st.lists(words, max_size=2) | numbers, max_size=3)
messages = st.fixed_dictionaries({"role": st.sampled_from(["system", "user"]), "content": words})
ids = st.lists(st.integers(0, 2), max_size=4).map(tuple)
tokens = (
    st.builds(lambda prompt, said: Tokens(prompt, said, tuple(-0.5 * i for i in range(len(said)))), prompt=ids, said=ids)
    | st.none()
)
decisions = st.builds(
    Decision,
    action=words,
    valid=st.booleans(),
    messages=st.lists(messages, max_size=3).map(tuple),
    completion=words | st.none(),
    probabilities=st.none() | st.dictionaries(words, st.floats(0, 1), max_size=2),
    visits=st.none() | st.dictionaries(words, st.integers(0, 9), max_size=2),
    values=st.none() | st.dictionaries(words, numbers, max_size=2),
    simulator_steps=st.integers(0, 5),
    tokens_in=st.integers(0, 5),
    cost=st.floats(0, 1),
    tokens=tokens,
)
flags = dict.fromkeys(("terminated", "truncated", "success", "failure", "action_was_valid"), st.booleans())
steps = st.builds(
    Step, observation=observations, decision=decisions, reward=numbers, score=numbers, gold_action=words | st.none(), **flags
)
episodes = st.builds(
    Episode,
    key=words,
    environment=st.just({"id": "Env-v0"}),
    policy=st.just({}),
    seed=st.integers(0, 2**63 - 1),
    steps=st.lists(steps, max_size=4).map(tuple),
    last_observation=observations,
    error=words | st.none(),
    traceback=words | st.none(),
)


@settings(max_examples=40, deadline=None)
@given(record=episodes)
def test_reading_is_the_inverse_of_writing_whatever_an_episode_holds(record):
    assert Episode.from_json(json.loads(json.dumps(record.to_json()))) == record


HOSTILE = (
    *(None, True, -1, 10**400, 1e308, float("nan"), float("inf"), "", "x", "\ud800", [], {}, [[]], [None], [[], []], {"a": 1}),
    *([float("nan")], {"a": float("inf")}, [1, 2, 3, 4], [10**6, {}], json.loads("[" * 500 + "]" * 500)),
)


def places(data, path=()) -> Iterator[tuple]:
    """Yield the path of every part of JSON data."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield (*path, key)
        yield from places(value, (*path, key))


def mutants(data) -> Iterator[tuple]:
    """Yield data with one part replaced, or taken out."""
    for path in places(data):
        for value in (*HOSTILE, ...):
            changed = copy.deepcopy(data)
            part = changed
            for key in path[:-1]:
                part = part[key]
            if value is not ...:
                part[path[-1]] = value
            else:
                del part[path[-1]]
            yield path, value, changed


def test_a_record_with_any_field_changed_is_a_good_episode_or_a_sentence(tmp_path):
    environment = {"id": "E-v0", "kwargs": {"a": 1}, "max_episode_steps": 5, "wrappers": [["History", {"n": 1}]], "text_spec": "0"}
    said = {"tokens": Tokens((1, 2), (3,), (-0.5,)), "reasoning": "so", "valid": False, "retries": 1, "cost": 0.5}
    said |= {"visits": {"go": 2}, "values": {"go": 0.5}, "model_calls": 2}
    second = dataclasses.replace(step(1), decision=dataclasses.replace(step(0).decision, **said))
    record = dataclasses.replace(
        episode(step(0, gold_action="go"), second, error="E: x"), environment=environment, traceback="a.py:1 in f"
    )
    refused, read = [], 0
    for place, value, data in mutants(json.loads(json.dumps(record.to_json()))):
        try:
            again = Episode.from_json(data)
        except (ValueError, KeyError, TypeError):
            refused.append(data)
            continue
        read += 1
        json.dumps([again.to_json(), row("e", "p", [again]), dataclasses.asdict(Summary.of(again))], allow_nan=False)
        assert not isinstance(value, float) or np.isfinite(value), f"{place}: {value} was read"
        assert Episode.from_json(again.to_json()) == again
    assert len(refused) > 1300 and read > 100
    for data in refused[::40]:
        lines = json.dumps(data), json.dumps(record.to_json() | {"key": "other"})  # a last line alone may be of a crash
        (tmp_path / "episodes.jsonl").write_text("\n".join(lines) + "\n")
        with pytest.raises(UsageError, match="expected an episode; got"):
            list(EpisodeStore(tmp_path).episodes())
