"""Whatever comes in, from a model, a file or a user: a value or an error of ours comes out. No other exception, no hang."""

import json
import string

import gymnasium as gym
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gym_text import UsageError
from gym_text.babyai.env import BABYAI_SPEC
from gym_text.errors import GymTextError
from gym_text.lunar_lander import LUNAR_LANDER_SPEC
from gym_text.mountain_car import MOUNTAIN_CAR_SPEC
from gym_text.textworld_express.cooking_world import COOKING_WORLD_SPEC
from gym_text_policies import Decision, Episode, EpisodeStore, Step
from gym_text_policies.environments import parse_environment
from gym_text_policies.parsing import parse_action, parse_fields
from gym_text_policies.variants import read_variants

fuzz = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
SPECS = [BABYAI_SPEC, LUNAR_LANDER_SPEC, MOUNTAIN_CAR_SPEC, COOKING_WORLD_SPEC]
PIECES = [
    "turn left",
    "push",
    '{"action":',
    '"',
    "\\",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "1",
    "-1e9",
    ".",
    "\x00",
    "\ud800",
    "é",
    "null",
    "\n",
]
answers = st.one_of(st.text(max_size=200), st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
numbers = st.none() | st.booleans() | st.integers() | st.floats()
values = st.recursive(
    numbers | st.text(max_size=8), lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=6), v, max_size=3)
)
"""Any JSON, and numbers that JSON does not have."""


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
def test_a_stored_line_is_an_episode_or_an_error_that_names_it(data, tmp_path):
    step = Step({"text": "a"}, Decision("go", probabilities={"go": 1.0}), 1.0, True, False, True, False, 1.0, True)
    line = Episode("key", {"id": "E-v0"}, {"kind": "k"}, 0, (step, step), {"text": "end"}).to_json()
    part = data.draw(st.sampled_from([line, line["steps"][0], line["steps"][1], line["steps"][0]["decision"]]))
    key = data.draw(st.sampled_from(sorted(part)) | st.text(max_size=5))
    part[key] = data.draw(values)
    text = json.dumps(line)
    if data.draw(st.booleans()):  # a byte that turned
        place = data.draw(st.integers(0, len(text) - 1))
        text = text[:place] + data.draw(st.sampled_from(string.printable[:95])) + text[place + 1 :]
    path = tmp_path / "episodes.jsonl"
    path.write_text(text + "\n")
    try:
        for episode in EpisodeStore(tmp_path).episodes():
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
@given(
    content=st.one_of(
        st.binary(max_size=60), values.map(lambda v: json.dumps(v).encode()), answers.map(lambda a: a.encode("utf-8", "replace"))
    )
)
def test_a_file_of_variants_is_read_or_an_error_of_ours(content, tmp_path):
    path = tmp_path / "variants.yaml"
    path.write_bytes(content)
    try:
        assert all(isinstance(options["model"], str) for options in read_variants(path).values())
    except UsageError as error:
        assert "expected" in str(error)


@pytest.mark.parametrize("env_id", ["BabyAIText-v0", "LunarLanderLLM-v2", "MountainCarContinuousLLM-v0", "CookingWorldText-v0"])
def test_any_action_is_played_or_an_error_of_ours(env_id):
    env = gym.make(env_id, expert="off", disable_env_checker=True)

    @settings(fuzz, max_examples=25)
    @given(action=values | answers | st.binary(max_size=5))
    def play(action):
        env.reset(seed=0)
        try:
            env.step(action)
        except GymTextError as error:
            assert "expected" in str(error)

    play()
    env.close()
