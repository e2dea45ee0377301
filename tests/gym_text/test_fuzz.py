"""Whatever comes in, from a model, a file or a user: a value or an error of ours comes out. No other exception, no hang."""

import dataclasses
import json
import os
import string
import tempfile
from contextlib import contextmanager
from pathlib import Path

import gymnasium as gym
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gym_text import UsageError
from gym_text.babyai.env import BABYAI_SPEC
from gym_text.errors import GymTextError
from gym_text.lunar_lander import LUNAR_LANDER_SPEC
from gym_text.mountain_car import MOUNTAIN_CAR_SPEC
from gym_text.textworld_express.house_games import CookingWorldEnv
from gym_text_policies import Decision, Episode, EpisodeStore, Step, parse_config
from gym_text_policies.environments import parse_environment
from gym_text_policies.policies.parsing import parse_action, parse_fields
from gym_text_policies.run.experiment import AgentConfig, EnvironmentConfig, RunsConfig
from gym_text_policies.run.plan import read_plan

fuzz = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "30")),
    deadline=None,
    derandomize="FUZZ_EXAMPLES" not in os.environ,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
SPECS = [BABYAI_SPEC, LUNAR_LANDER_SPEC, MOUNTAIN_CAR_SPEC, CookingWorldEnv.game_spec]
PIECES = [
    *("turn left", "push", '{"action":', '"', "\\", "{", "}", "[", "]", ":", ",", "1", "-1e9", ".", "null", "\n"),
    *("\x00", "\ud800", "é"),
]
answers = st.one_of(st.text(max_size=200), st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
numbers = st.none() | st.booleans() | st.integers() | st.floats()
values = st.recursive(
    numbers | st.text(max_size=8), lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=6), v, max_size=3)
)
"""Any JSON, and numbers that JSON does not have."""
WORDS = ["a", "1", "&a ", "*a", "<<: ", ": ", "- ", "? ", ", ", "{", "}", "[", "]", "!!int ", "!!timestamp ", "!x ", "'", "  "]
files = st.one_of(
    st.binary(max_size=60),
    values.map(lambda value: json.dumps(value).encode()),
    answers.map(lambda answer: answer.encode("utf-8", "replace")),
    st.lists(st.sampled_from(WORDS), max_size=30).map(lambda words: "".join(words).encode()),
)
"""YAML, and what nearly is."""
SECTIONS = {"agent": AgentConfig, "environment": EnvironmentConfig, "experiment": RunsConfig}
experiments = st.fixed_dictionaries(
    {
        name: st.dictionaries(st.sampled_from([field.name for field in dataclasses.fields(kind)]), values, max_size=3)
        for name, kind in SECTIONS.items()
    }
).map(lambda given: json.dumps({**given, "environment": {"name": "BabyAIText-v0", **given["environment"]}}).encode())
"""Files with some of an experiment's keys, and always a name, without which nothing else counts."""


@contextmanager
def scratch(name, content):
    """Write a file into a folder of its own for the time of the block; atheris knows no fixtures."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        yield path


@fuzz
@given(answer=answers, spec=st.sampled_from(SPECS), names=st.lists(answers, max_size=4))
def test_an_answer_is_an_action_that_can_be_played_or_none(answer, spec, names):
    obs = {"valid_actions": tuple(sorted(set(names)))} if spec.encoding == "text" else {}
    for action in (parse_action(answer, spec, obs), parse_action(str((parse_fields(answer) or {}).get("action")), spec, obs)):
        if action is not None:
            spec.encode(action, obs)
            assert spec.encoding == "box" or action in spec.names(obs)


@fuzz
@given(value=values | st.binary(max_size=20), spec=st.sampled_from(SPECS))
def test_any_value_is_an_action_of_a_spec_or_an_error_of_ours(value, spec):
    obs = {"valid_actions": ("take apple",)}
    for translate in (spec.decode, spec.encode) if isinstance(value, str) else (spec.decode,):
        try:
            translate(value, obs)
        except GymTextError as error:
            assert "expected" in str(error)


@fuzz
@given(data=st.data())
def test_a_stored_line_is_an_episode_or_an_error_that_names_it(data):
    step = Step({"text": "a"}, Decision("go", probabilities={"go": 1.0}), 1.0, True, False, True, False, 1.0, True)
    line = Episode("key", {"id": "E-v0"}, {"kind": "k"}, 0, (step, step), {"text": "end"}).to_json()
    part = data.draw(st.sampled_from([line, line["steps"][0], line["steps"][1], line["steps"][0]["decision"]]))
    key = data.draw(st.sampled_from(sorted(part)) | st.text(max_size=5))
    part[key] = data.draw(values)
    text = json.dumps(line)
    if data.draw(st.booleans()):  # a byte that turned
        place = data.draw(st.integers(0, len(text) - 1))
        text = text[:place] + data.draw(st.sampled_from(string.printable[:95])) + text[place + 1 :]
    with scratch("episodes.jsonl", text.encode() + b"\n") as path:
        try:
            for episode in EpisodeStore(path.parent).episodes():
                assert Episode.from_json(json.loads(json.dumps(episode.to_json()))).key == episode.key
                assert isinstance(episode.total_reward + episode.seconds + episode.tokens_in, int | float) and episode.outcome
        except UsageError as error:
            assert "expected an episode" in str(error)


@fuzz
@given(name=answers | st.text(st.characters(codec="ascii"), max_size=20).map(lambda query: f"BabyAIText-v0?{query}"))
def test_a_name_of_an_environment_is_read_or_an_error_of_ours(name):
    try:
        env_id, arguments = parse_environment(name)
    except UsageError:
        return
    assert env_id in gym.registry and all(key.isidentifier() for key in arguments)


@fuzz
@given(content=files)
def test_a_file_of_variants_is_read_or_an_error_of_ours(content):
    with scratch("variants.yaml", content) as path:
        try:
            assert all(isinstance(row.policy.model, str) for row in read_plan(path).values())
        except UsageError as error:
            assert "expected" in str(error)


@fuzz
@given(content=files | experiments)
def test_a_file_of_an_experiment_is_read_or_an_error_of_ours(content):
    with scratch("experiment.yaml", content) as path:
        try:
            assert all(config.environment.name for config in parse_config(path).experiments)
        except UsageError as error:
            assert "expected" in str(error) or "unknown" in str(error)


@pytest.mark.parametrize("env_id", ["BabyAIText-v0", "LunarLanderLLM-v2", "MountainCarContinuousLLM-v0", "CookingWorldText-v0"])
def test_any_action_is_played_or_an_error_of_ours(env_id):
    env = gym.make(env_id, expert="off", disable_env_checker=True)

    @fuzz
    @given(action=values | answers | st.binary(max_size=5))
    def play(action):
        env.reset(seed=0)
        try:
            env.step(action)
        except GymTextError as error:
            assert "expected" in str(error)

    play()
    env.close()
