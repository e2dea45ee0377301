"""The wrappers one by one; tests/test_training_loops.py has `EncodeText` and `History` on every environment."""

import pickle
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence

from gym_text import UsageError
from gym_text.spaces import ActionNames, FreeText, TextHistory
from gym_text.wrappers import EncodeText, ExchangeNames, History, Picture
from gym_text_policies.environments import environment_maker


class Saying(gym.Env):
    """Says what it is told to say."""

    def __init__(self, *, most=1000, **fields):
        self.fields = fields
        kinds = {str: lambda: FreeText(most), tuple: ActionNames, np.ndarray: lambda: gym.spaces.Box(-1, 1, (2,))}
        self.observation_space = gym.spaces.Dict({key: kinds[type(value)]() for key, value in fields.items()})
        self.action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        return dict(self.fields), {}


def encode(*, names=("go", "take the lamp"), text="A red ball.\nA wall", **arguments):
    env = EncodeText(Saying(text=text, valid_actions=names, numbers=np.ones(2, np.float32)), **arguments)
    obs, _ = env.reset()
    assert obs in env.observation_space
    return obs


# ---------------------------------------------------------------- EncodeText


def test_a_word_has_one_id_wherever_it_stands():
    red, ball, stop, line, a, wall = (encode(text=word, length=1)["text"][0] for word in ["RED", "ball", ".", "\n", "a", "wall"])
    ids = encode(length=10)["text"]
    assert ids.tolist() == [a, red, ball, stop, line, a, wall, 0, 0, 0]
    assert ids.dtype == np.int32
    assert len({0, red, ball, stop, line, a, wall}) == 7


def test_row_i_names_action_i():
    obs = encode(name_length=4)
    rows = obs["valid_actions"].reshape(3, 4)  # as many rows as actions
    assert np.array_equal(rows[0], encode(text="go", length=4)["text"])
    assert np.array_equal(rows[1], encode(text="take the lamp", length=4)["text"])
    assert not rows[2].any()


def test_lists_of_names_can_be_dropped_and_numbers_pass_through():
    obs = encode()
    assert obs["numbers"].tolist() == [1, 1]
    env = EncodeText(Saying(text="", valid_actions=("go",)), names=False)
    assert set(env.observation_space) == set(env.reset()[0]) == {"text"}


def test_history_is_encoded_with_the_latest_pair_last():
    env = EncodeText(History(gym.make("BabyAIText-v0", expert="off"), 2), length=100, name_length=3)
    before = env.reset(seed=0)[0]
    assert not before["history"].any()
    after = env.step(2)[0]
    rows = after["history"].reshape(2, 103)
    assert not rows[0].any()
    assert np.array_equal(rows[1, :100], before["text"])
    assert np.array_equal(rows[1, 100:], encode(text="go forward", length=3)["text"])


def test_ids_are_the_same_in_another_process_with_another_hash_seed():
    script = "import gymnasium as gym; from gym_text.wrappers import EncodeText; "
    script += "print(EncodeText(gym.make('gym_text:BabyAIText-v0', expert='off')).reset(seed=0)[0]['text'].tolist())"
    run = [
        subprocess.run([sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True, timeout=300)
        for seed in ("1", "2")
    ]
    assert run[0].stdout == run[1].stdout
    assert eval(run[0].stdout) == EncodeText(gym.make("BabyAIText-v0", expert="off")).reset(seed=0)[0]["text"].tolist()


def test_what_is_cut_warns_once_with_the_remedy():
    env = EncodeText(Saying(text="one two three four"), length=2)
    with pytest.warns(UserWarning, match=r"a text of 4 ids in obs\['text'\] was cut to 2\. Pass length=4 or more"):
        assert np.count_nonzero(env.reset()[0]["text"]) == 2
    env.reset()
    env = EncodeText(Saying(valid_actions=("one two three",)), name_length=2)
    with pytest.warns(UserWarning, match="Pass name_length=3 or more"):
        env.reset()


def test_environments_that_cannot_be_encoded_are_refused():
    with pytest.raises(UsageError, match="expected a Dict observation space; got Box"):
        EncodeText(gym.make("CartPole-v1"))
    with pytest.raises(UsageError, match=r"History\(env, None\)\. Give it a number"):
        EncodeText(History(gym.make("BabyAIText-v0"), None))
    env = Saying(text="")
    env.observation_space = gym.spaces.Dict({"graph": gym.spaces.Sequence(gym.spaces.Box(0, 1))})
    with pytest.raises(UsageError, match="got 'graph' in Sequence"):
        EncodeText(env)


# ---------------------------------------------------------------- Picture


@pytest.mark.parametrize("name", ["BabyAIText-v0?task=goto", "CartPole-v1", "MountainCarContinuousLLM-v0"])
def test_the_picture_is_what_the_environment_renders_and_of_the_space(name):
    env = Picture(environment_maker(name, render_mode="rgb_array")())
    obs, _ = env.reset(seed=3)
    first = obs["picture"]
    assert obs in env.observation_space and np.array_equal(first, env.render())
    assert data_equivalence({key: value for key, value in obs.items() if key != "picture"}, env.env.reset(seed=3)[0])
    before, spec = first.copy(), env.get_wrapper_attr("text_spec")
    for _ in range(5):
        obs, *_ = env.step(spec.encode(spec.names(obs)[0], obs))
    assert np.array_equal(obs["picture"], env.render()) and not np.array_equal(obs["picture"], before)
    assert np.array_equal(first, before), "a picture of an earlier step stays"
    env.close()


def test_a_space_of_pictures_takes_any_size_and_nothing_else():
    with gym.make("SokobanText-v0", render_mode="rgb_array") as env:
        space = Picture(env).observation_space["picture"]
    assert space.sample() in space
    wrong = (None, np.zeros((2, 2, 3)), np.zeros((2, 2, 4), np.uint8), np.zeros((0, 2, 3), np.uint8), np.zeros((2, 2), np.uint8))
    assert not any(picture in space for picture in wrong)
    assert space == pickle.loads(pickle.dumps(space)) and space != gym.spaces.Discrete(2)


@pytest.mark.parametrize(("drawn", "message"), [(None, "got 'None'"), (np.zeros((2, 2)), "uint8 array")])
def test_an_environment_that_draws_something_else_is_refused(drawn, message):
    env = Saying(text="A red ball.")
    env.render_mode, env.render = "rgb_array", lambda: drawn
    with pytest.raises(UsageError, match=f"Picture: expected render.*{message}"):
        Picture(env).reset()
    env.render_mode = "human"
    with pytest.raises(UsageError, match="render_mode='rgb_array'; got render_mode='human'"):
        Picture(env)


# ---------------------------------------------------------------- History


def test_history_without_a_bound_keeps_all():
    env = History(gym.make("BabyAIText-v0", expert="off"), None)
    obs, _ = env.reset(seed=0)
    texts = []
    for number in range(20):
        texts.append((obs["text"], ("turn left", "turn right")[number % 2]))
        obs, *_ = env.step(number % 2)
    assert obs["history"] == tuple(texts)
    assert obs in env.observation_space


def test_a_refused_action_leaves_no_trace():
    env = History(gym.make("BabyAIText-v0", disable_env_checker=True), 2)
    env.reset(seed=0)
    with pytest.raises(UsageError):
        env.step(9)
    assert len(env.step(0)[0]["history"]) == 1


def test_whole_observations_stand_beside_the_pairs():
    env = History(gym.make("CookingWorldText-v0", expert="off"), 2, whole=True)
    seen = [env.reset(seed=0)[0]]
    assert seen[0]["earlier"] == ()
    for _ in range(3):
        seen.append(env.step("look around")[0])
    without = [{key: value for key, value in obs.items() if key not in ("history", "earlier")} for obs in seen]
    assert seen[3]["earlier"] == (without[1], without[2]) and seen[3] in env.observation_space
    assert env.reset(seed=0)[0]["earlier"] == ()
    assert env.spec.additional_wrappers[-1].kwargs == {"n": 2, "whole": True}


def test_history_needs_texts_and_a_number():
    with pytest.raises(UsageError, match=r"expected an environment with obs\['text'\] and a text_spec"):
        History(gym.make("CartPole-v1"), 3)
    with pytest.raises(UsageError, match=r"expected an environment with obs\['text'\] and a text_spec"):
        History(Saying(text="hello"), 3)
    for n in (0, 1.5, "3"):
        with pytest.raises(UsageError, match="n: expected an integer from 1"):
            History(gym.make("BabyAIText-v0"), n)


def test_the_space_of_histories_knows_its_bounds():
    space = TextHistory(10, 2)
    assert () in space and (("a", "b"), ("c", "d")) in space
    assert (("a", "b"),) * 3 not in space and (("a" * 11, "b"),) not in space and [("a", "b")] not in space and "ab" not in space
    assert space == pickle.loads(pickle.dumps(space)) != TextHistory(10, 3)
    assert all(space.sample() in space for _ in range(20))
    assert repr(space) == "TextHistory(10, 2)"


# ---------------------------------------------------------------- ExchangeNames

FOODS = ("banana", "carrot", "cilantro", "red apple", "red onion", "red potato", "white onion", "block of cheese", "chicken leg")


@pytest.mark.parametrize("actions", ["text", "index"])
def test_the_expert_wins_under_other_names_and_the_plain_game_is_the_same(actions):
    env, plain = (gym.make("CookingWorldText-v0", actions=actions, fold="train") for _ in range(2))
    env = ExchangeNames(env, FOODS)
    other = 0
    for seed in range(6):
        (obs, info), (seen, told) = env.reset(seed=seed), plain.reset(seed=seed)
        assert obs in env.observation_space
        other += info["gold_path"] != told["gold_path"]
        terminated = False
        while not terminated:
            name = info["gold_action"]
            assert (name != told["gold_action"]) <= any(food in name for food in FOODS)
            obs, reward, terminated, _, info = env.step(env.get_wrapper_attr("text_spec").encode(name, obs))
            spoken = plain.get_wrapper_attr("text_spec").encode(told["gold_action"], seen)
            seen, same, *_, told = plain.step(spoken)
            assert reward == same and len(obs["valid_actions"]) == len(seen["valid_actions"])
            assert actions == "index" or list(obs["valid_actions"]) == sorted(obs["valid_actions"])
        assert info["success"]
    assert other > 2


def test_the_seed_of_an_episode_is_that_of_its_names():
    env = ExchangeNames(gym.make("CookingWorldText-v0"), FOODS)
    first, again, third = (env.reset(seed=seed)[1]["gold_path"] for seed in (3, 3, 4))
    assert first == again != third
    env.reset(seed=3)
    assert len({env.reset()[1]["gold_path"] for _ in range(3)}) > 1
    assert env.spec.additional_wrappers[-1].kwargs == {"interchangeable": FOODS}


@pytest.mark.parametrize("names", [(), ("carrot",), ("carrot", "carrot"), ("carrot", "banana", "fry=stove"), ("carrot", "")])
def test_names_that_no_other_can_stand_for_are_refused(names):
    with pytest.raises(
        UsageError, match=r"^interchangeable: expected two or more different names, and for each at least one other with as many"
    ):
        ExchangeNames(gym.make("CookingWorldText-v0"), names)
    with pytest.raises(UsageError, match="Dict observations and a text_spec"):
        ExchangeNames(gym.make("CartPole-v1"), FOODS)
