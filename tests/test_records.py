"""The records survive JSON, and their derived values follow from the steps."""

import dataclasses
import json

import numpy as np
import pytest

from gym_text_policies import Decision, Episode, Step
from gym_text_policies.records import plain

SYSTEM = {"role": "system", "content": "You play."}


def step(number: int, **changes) -> Step:
    message = {"role": "user", "content": f"state {number}"}
    decision = Decision("go", messages=(SYSTEM, message), completion="go!", tokens_in=10, tokens_out=2, probabilities={"go": 1.0})
    fields = {"reward": 0.5, "terminated": False, "truncated": False, "success": False, "failure": False, "score": 0.0}
    return Step({"goal": "win", "text": f"state {number}"}, decision, action_was_valid=True, **(fields | changes))


def episode(*steps: Step, error: str | None = None) -> Episode:
    last = {"goal": "win", "text": "end"} if steps else {}
    return Episode("key", {"id": "Env-v0"}, {"kind": "test"}, 3, steps, last, error, level=7)


@pytest.mark.parametrize(
    "record", [episode(step(0), step(1), step(2)), episode(), episode(error="E: x"), episode(step(0), error="E: x")]
)
def test_an_episode_survives_json(record):
    assert Episode.from_json(json.loads(json.dumps(record.to_json()))) == record


def test_what_a_step_repeats_is_stored_once():
    text = json.dumps(episode(*(step(i) for i in range(50))).to_json())
    assert text.count("You play.") == 1
    assert text.count('"goal"') == 1


def test_a_prompt_that_restarts_is_restored_exactly():
    plainly = dataclasses.replace(step(1), decision=Decision("go"))
    record = episode(step(0), plainly, step(2))
    assert Episode.from_json(json.loads(json.dumps(record.to_json()))) == record


@pytest.mark.parametrize(
    ("last", "error", "outcome"),
    [
        ({"terminated": True, "success": True}, None, "won"),
        ({"truncated": True, "success": True}, None, "won"),
        ({"terminated": True, "failure": True}, None, "lost"),
        ({"terminated": True}, None, "lost"),
        ({"truncated": True}, None, "truncated"),
        ({}, "PolicyError: no answer", "error"),
    ],
)
def test_the_outcome_follows_from_the_last_step(last, error, outcome):
    assert episode(step(0), step(1, **last), error=error).outcome == outcome


def test_sums_run_over_all_steps():
    invalid = dataclasses.replace(step(1), action_was_valid=False)
    record = episode(step(0), invalid, step(2))
    assert (record.total_reward, record.length, record.invalid) == (1.5, 3, 1)
    assert (record.tokens_in, record.tokens_out) == (30, 6)


def test_float32_is_stored_by_its_shortest_digits():
    values = plain({"a": np.array([0.1, -2.5], dtype=np.float32), "b": ("x", "y"), "c": np.int8(1)})
    assert json.dumps(values) == '{"a": [0.1, -2.5], "b": ["x", "y"], "c": 1}'
    assert np.float32(values["a"][0]) == np.float32(0.1)
