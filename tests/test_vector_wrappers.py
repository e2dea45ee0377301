"""The wrappers of vector environments say what `SyncVectorEnv` around wrapped single environments says."""

import random
import warnings
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import NormalizeReward, RecordEpisodeStatistics

import gym_text
from gym_text import UsageError
from gym_text.textworld_express.vector import TextWorldExpressVectorEnv
from gym_text.wrappers import EncodeText, History, vector

COOKING = "CookingWorldText-v0"
ENCODING = {"length": 64, "name_length": 5, "vocabulary": 512}


@pytest.fixture(autouse=True)
def _short_limits_and_texts_are_meant():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*the expert needs \d+ steps here|.*was cut to \d+")
        yield


def make_single(env_id, limit=6, **arguments):
    """Return one environment with both wrappers around it."""
    return EncodeText(History(gym.make(f"gym_text:{env_id}", max_episode_steps=limit, **arguments), 3), **ENCODING)


def wrap(envs):
    """Return a vector environment with both wrappers around it."""
    return vector.EncodeText(vector.History(envs, 3), **ENCODING)


def assert_same(first, second):
    """Check that two results are equal in every value, type and shape."""
    assert type(first) is type(second)
    if isinstance(first, dict):
        assert first.keys() == second.keys()
        for key in first:
            assert_same(first[key], second[key])
    elif isinstance(first, np.ndarray) and first.dtype != object:
        assert (first.dtype, first.shape, first.tobytes()) == (second.dtype, second.shape, second.tobytes())
    elif isinstance(first, (tuple, np.ndarray)):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            assert_same(one, other)
    else:
        assert first == second


def assert_same_play(ours, theirs, choose, steps=16):
    """Play both with the same actions, in any autoreset mode, and compare all that they say."""
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.observation_space == theirs.observation_space and ours.action_space == theirs.action_space
    one, other = ours.reset(seed=3), theirs.reset(seed=3)
    ended = np.zeros(ours.num_envs, dtype=np.bool_)
    finals = 0
    for _ in range(steps):
        assert_same(one, other)
        assert one[0] in ours.observation_space
        if ours.metadata["autoreset_mode"] == AutoresetMode.DISABLED and ended.any():
            one, other = (envs.reset(options={"reset_mask": ended.copy()}) for envs in (ours, theirs))
            assert_same(one, other)
        actions = choose()
        one, other = ours.step(actions), theirs.step(actions)
        ended = one[2] | one[3]
        finals += int(ended.sum())
    assert_same(one, other)
    assert finals >= 2
    ours.close()
    theirs.close()


def chooser(envs):
    """Return a function that draws an action for each environment."""
    rng = random.Random(0)
    if isinstance(envs.single_action_space, gym.spaces.Text):
        return lambda: tuple(rng.choice(["look around", "inventory", "open fridge", "sing"]) for _ in range(envs.num_envs))
    envs.action_space.seed(0)
    return envs.action_space.sample


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("arguments", [{}, {"actions": "index", "fold": "dev", "expert": "off"}], ids=["names", "index"])
def test_the_fast_vector_environment_is_encoded_as_single_environments_are(arguments, mode):
    envs = gym.make_vec(COOKING, num_envs=3, max_episode_steps=6, autoreset_mode=mode, **arguments)
    assert isinstance(envs, TextWorldExpressVectorEnv)
    theirs = SyncVectorEnv([partial(make_single, COOKING, **arguments)] * 3, autoreset_mode=mode)
    assert_same_play(wrap(envs), theirs, chooser(envs))


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("env_id", ["BabyAIText-v0", "LunarLanderLLM-v2", "MountainCarContinuousLLM-v0"])
def test_gymnasiums_vector_environment_of_texts_is_encoded_as_single_environments_are(env_id, mode):
    envs = gym.make_vec(env_id, num_envs=2, expert="off", max_episode_steps=6, vector_kwargs={"autoreset_mode": mode})
    theirs = SyncVectorEnv([partial(make_single, env_id, expert="off")] * 2, autoreset_mode=mode)
    assert_same_play(wrap(envs), theirs, chooser(envs))


def test_environments_in_other_processes_are_encoded_as_single_environments_are():
    single = partial(gym.make, "gym_text:BabyAIText-v0", max_episode_steps=6, valid_actions=True)
    envs = AsyncVectorEnv([single] * 2, shared_memory=False, context="spawn")
    theirs = SyncVectorEnv([partial(make_single, "BabyAIText-v0", valid_actions=True)] * 2)
    assert_same_play(wrap(envs), theirs, chooser(envs))


def test_an_unbounded_history_is_that_of_single_environments():
    envs = gym.make_vec(COOKING, num_envs=2, max_episode_steps=4)
    theirs = SyncVectorEnv([lambda: History(gym.make(COOKING, max_episode_steps=4), None)] * 2)
    assert_same_play(vector.History(envs, None), theirs, chooser(envs))


def test_the_spec_is_reached_through_both_wrappers_and_other_wrappers_go_around_them():
    envs = wrap(gym.make_vec(COOKING, num_envs=2, expert="off", max_episode_steps=3))
    single = gym.make(COOKING)
    assert envs.text_spec == single.get_wrapper_attr("text_spec")
    assert envs.spec.id == COOKING and gym_text.wrappers.vector is vector
    outer = NormalizeReward(RecordEpisodeStatistics(envs))
    outer.reset(seed=0)
    for _ in range(3):
        *_, infos = outer.step(["look around", "inventory"])  # a list is as good as a tuple
    assert infos["episode"]["l"].tolist() == [3, 3]


def test_a_long_text_is_cut_with_one_warning_for_all_environments():
    envs = vector.EncodeText(gym.make_vec(COOKING, num_envs=4, expert="off"), length=3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        envs.reset(seed=0)
        envs.reset(seed=9)
    said = [str(w.message) for w in caught if "obs['text'] was cut to 3" in str(w.message)]
    assert len(said) == 1 and "Pass length=" in said[0]


def test_gymnasium_refuses_the_single_form_there_as_the_docs_say():
    with pytest.raises(gym.error.Error, match="Cannot use `vector_entry_point` vectorization mode with the wrappers argument"):
        gym.make_vec(COOKING, num_envs=2, wrappers=[EncodeText])
    envs = gym.make_vec(COOKING, num_envs=2, wrappers=[EncodeText], vectorization_mode="sync", expert="off")
    ours = vector.EncodeText(gym.make_vec(COOKING, num_envs=2, expert="off"))
    assert_same(envs.reset(seed=1), ours.reset(seed=1))


def test_environments_that_cannot_be_wrapped_are_refused():
    numbers = gym.make_vec("CartPole-v1", num_envs=2)
    with pytest.raises(UsageError, match="EncodeText: expected a Dict observation space; got Box"):
        vector.EncodeText(numbers)
    with pytest.raises(UsageError, match=r"History: expected an environment with obs\['text'\] and a text_spec"):
        vector.History(numbers, 2)
    games = gym.make_vec("BabyAIText-v0", num_envs=1)
    with pytest.raises(UsageError, match="n: expected an integer from 1"):
        vector.History(games, 0)
    with pytest.raises(UsageError, match=r"History\(env, None\)\. Give it a number"):
        vector.EncodeText(vector.History(games, None))
    with pytest.raises(UsageError, match="unit: expected one of 'word', 'byte'"):
        vector.EncodeText(games, unit="words")
