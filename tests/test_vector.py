"""The vector environment plays exactly what single environments play."""

import pickle
import random
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from gym_text import EngineError, StepOrderError, UsageError
from gym_text.textworld_express.vector import TextWorldExpressVectorEnv

ID = "CookingWorldText-v0"
GAMES = sorted(name for name, spec in gym.registry.items() if "textworld_express" in str(spec.entry_point))
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]


@pytest.fixture(autouse=True)
def _short_limits_are_meant():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*the expert needs \d+ steps here")
        yield


def same(first, second):
    """Return whether two results are equal in every value, type and shape."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, np.ndarray) and first.dtype != object:
        return first.dtype == second.dtype and first.shape == second.shape and bool((first == second).all())
    if isinstance(first, (tuple, list, np.ndarray)):
        return type(first) is type(second) and len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)


def assert_same_play(ours, theirs, steps, by_index=False):
    """Play both with the same random actions, some of them invalid, and compare all that they say."""
    rng, number = random.Random(0), ours.num_envs
    results = ours.reset(seed=3), theirs.reset(seed=3)
    for _ in range(steps):
        assert same(*results)
        valid = results[0][0]["valid_actions"]
        if by_index:
            actions = np.array([rng.randrange(len(valid[i]) + 1) for i in range(number)])
        else:
            actions = tuple(rng.choice(valid[i]) if rng.random() < 0.9 else "sing a \x1e song" for i in range(number))
        results = ours.step(actions), theirs.step(actions)
    assert same(*results)
    ours.close()
    theirs.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_id", GAMES)
def test_it_agrees_with_gymnasiums_own_vector_of_single_environments(env_id, mode):
    ours = gym.make_vec(env_id, num_envs=3, max_episode_steps=7, autoreset_mode=mode)
    assert type(ours.unwrapped) is TextWorldExpressVectorEnv
    theirs = SyncVectorEnv([lambda: gym.make(env_id, max_episode_steps=7)] * 3, autoreset_mode=mode)
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.action_space == theirs.action_space
    assert ours.metadata["autoreset_mode"] == mode
    assert_same_play(ours, theirs, steps=20)


def test_it_agrees_in_the_index_space():
    arguments = {"actions": "index", "expert": "replan"}
    ours = gym.make_vec(ID, num_envs=2, max_episode_steps=8, **arguments)
    theirs = SyncVectorEnv([lambda: gym.make(ID, max_episode_steps=8, **arguments)] * 2)
    assert_same_play(ours, theirs, steps=12, by_index=True)


def test_it_agrees_with_other_processes():
    ours = gym.make_vec(ID, num_envs=3, max_episode_steps=8, fold="dev")
    theirs = AsyncVectorEnv(
        [lambda: gym.make(f"gym_text:{ID}", max_episode_steps=8, fold="dev")] * 3, shared_memory=False, context="spawn"
    )
    assert_same_play(ours, theirs, steps=20)


def test_seeds_may_be_given_one_by_one_and_games_reset_by_mask():
    vector = gym.make_vec(ID, num_envs=3, autoreset_mode=AutoresetMode.DISABLED, expert="off")
    obs, _ = vector.reset(seed=[5, None, 5])
    assert obs["text"][0] == obs["text"][2]
    vector.step(["look around", "inventory", "take knife"])
    again, infos = vector.reset(seed=[5, None, 5], options={"reset_mask": np.array([False, False, True])})
    assert again["text"][2] == obs["text"][2] and again["text"][1] != obs["text"][1]
    assert infos["_score"].tolist() == [False, False, True]


def test_mistakes_are_refused():
    vector = gym.make_vec(ID, num_envs=2, expert="off")
    with pytest.raises(StepOrderError, match="reset"):
        vector.step(["look around"] * 2)
    with pytest.raises(UsageError, match="expected 2 seeds"):
        vector.reset(seed=[1])
    with pytest.raises(StepOrderError, match="reset_mask"):
        vector.reset(options={"reset_mask": np.array([True, False])})
    vector.reset(seed=0)
    with pytest.raises(UsageError, match="actions: expected 2, one for each game; got 3"):
        vector.step(["look around"] * 3)
    with pytest.raises(UsageError, match="expected a string"):
        vector.step(["look around", 1])
    with pytest.raises(UsageError, match="reset_mask: expected 2 booleans"):
        vector.reset(options={"reset_mask": np.array([1, 0])})
    vector.close()
    vector.close()
    with pytest.raises(UsageError, match="num_envs"):
        gym.make_vec(ID, num_envs=0)


def test_after_an_error_in_the_middle_of_a_step_every_game_begins_anew(monkeypatch):
    vector = gym.make_vec(ID, num_envs=3, expert="off")
    first, _ = vector.reset(seed=0)

    def fail(action):
        raise EngineError("broken")

    monkeypatch.setattr(vector.unwrapped.envs[1], "_play", fail)
    with pytest.raises(EngineError, match="broken"):
        vector.step(["look around"] * 3)
    monkeypatch.undo()
    with pytest.raises(StepOrderError, match="step: expected running episodes; there are none"):
        vector.step(["look around"] * 3)
    with pytest.raises(StepOrderError, match="expected every game to be reset first"):
        vector.reset(options={"reset_mask": np.array([True, False, True])})
    assert same(vector.reset(seed=0)[0], first)


def test_a_refused_action_changes_no_game():
    vector, other = (gym.make_vec(ID, num_envs=3, expert="path") for _ in range(2))
    (_, infos), _ = vector.reset(seed=0), other.reset(seed=0)
    gold = list(infos["gold_action"])
    for wrong in (1, None, ["look around"], b"look around"):
        with pytest.raises(UsageError, match="action: expected a string"):
            vector.step(["inventory", "inventory", wrong])  # of the first game, which would leave the expert's path
        with pytest.raises(UsageError, match="action: expected a string"):
            vector.step([wrong, *gold[1:]])
    results = vector.step(gold), other.step(gold)
    assert same(*results) and results[0][4]["_gold_action"].all()
    for env, action in zip(vector.unwrapped.envs, results[0][4]["gold_action"], strict=True):
        assert same(pickle.loads(pickle.dumps(env)).step(action), env.step(action))


def test_refused_seeds_change_no_game_and_numpys_integers_are_seeds():
    vector, other = (gym.make_vec(ID, num_envs=2, expert="off") for _ in range(2))
    first, _ = other.reset(seed=[5, 6])
    for seeds in (np.array([5, 6]), np.int64(5), [np.uint8(5), 6]):
        assert same(vector.reset(seed=seeds)[0], first)
    with pytest.raises(UsageError, match="seed: expected an integer"):
        vector.reset(seed=[7, -1])
    assert same(vector.step(["inventory"] * 2), other.step(["inventory"] * 2))
    with pytest.raises(UsageError, match="seed: expected an integer"):
        vector.reset(seed=1.0)


def test_it_warns_of_a_limit_below_the_experts_path():
    with warnings.catch_warnings(), pytest.warns(UserWarning, match="the expert needs .* the limit is 2"):
        warnings.simplefilter("always")
        gym.make_vec(ID, num_envs=1, max_episode_steps=2).reset(seed=0)
