"""The engine's games: errors, threads, and what they leave behind."""

import gc
import threading
import weakref

import gymnasium as gym
import jpype
import psutil
import pytest

from gym_text import EngineError
from gym_text.textworld_express.engine import ExpressGame

ID = "CookingWorldText-v0"
PARAMETERS = {"numLocations": 3, "numIngredients": 2}


def test_engine_errors_name_the_game_its_parameters_and_the_seed():
    with pytest.raises(EngineError, match=r"nogame\(numLocations=3,numIngredients=2\) cannot be loaded"):
        ExpressGame("nogame", PARAMETERS)
    with pytest.raises(EngineError, match=r"cookingworld\(numLocations=3,numIngredients=2\), seed 7: "):
        ExpressGame("cookingworld", PARAMETERS).start(7, "nofold")


def test_errors_that_the_engine_returns_as_data_are_raised():
    with pytest.raises(EngineError, match=r"cookingworld\(numLocations=3,numIngredients=2\), seed None.*not initialized"):
        ExpressGame("cookingworld", PARAMETERS).step("look around")


def test_games_in_threads_play_as_they_do_alone(make):
    envs = [make(ID) for _ in range(4)]
    played = {}

    def play(seed):
        _, info = envs[seed % 4].reset(seed=seed)
        played.setdefault(seed, []).append([envs[seed % 4].step(action)[:3] for action in info["gold_path"]])

    for seed in range(8):
        play(seed)
    for first in (0, 4):
        threads = [threading.Thread(target=play, args=(first + number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(played) == 8
    assert all(alone == threaded for alone, threaded in played.values())


def test_games_of_one_sorting_problem_do_not_share_their_things(make):
    envs = [make("SortingText-v0") for _ in range(3)]
    (_, info), _, _ = envs[0].reset(seed=0), envs[1].reset(seed=0), envs[2].reset(seed=100)  # 100 has the problem of 0
    for action in info["gold_path"]:
        infos = [env.step(action)[4] for env in envs[:2]]
        assert all(info["action_was_valid"] for info in infos)
    assert all(info["success"] for info in infos)
    assert envs[2].step(envs[2].reset(seed=100)[1]["gold_path"][0])[4]["action_was_valid"]


def live_bytes_of_java():
    """Return how much of Java's heap is in use after a collection."""
    gc.collect()  # lets go of what Python holds in Java
    jpype.JClass("java.lang.System").gc()
    runtime = jpype.JClass("java.lang.Runtime").getRuntime()
    return runtime.totalMemory() - runtime.freeMemory()


def test_a_hundred_environments_leave_nothing_behind():
    def make_and_close(number):
        made = []
        for seed in range(number):
            env = gym.make(ID, expert="off").unwrapped
            env.reset(seed=seed)
            env.close()
            made.append(weakref.ref(env))
        del env
        in_use = live_bytes_of_java()
        assert not any(ref() for ref in made)
        return in_use, psutil.Process().memory_info().rss

    make_and_close(20)
    (heap, resident), threads = make_and_close(10), set(threading.enumerate())
    heaps, residents = zip(*(make_and_close(100) for _ in range(2)), strict=True)
    # a game that stayed would hold some 190 KB, a hundred of them 19 MB, each time; a table of Java's own grows once
    assert min(heaps[0] - heap, heaps[1] - heaps[0]) < 2**20
    assert residents[-1] - resident < 30 * 2**20  # outside of Java's heap, too
    assert set(threading.enumerate()) <= threads  # one of an earlier test may have ended


EASY = {"num_locations": 1, "num_items_to_put_away": 1}
LOGGED = [  # id, arguments, numbers of valid actions at the start and after each action, and the actions with their rewards
    (
        "ArithmeticText-v0",
        {},
        [9, 9, 17, 17, 24, 17],
        {
            **{"look around": 0.0, "take math problem": 0.0, "read math problem": 0.5},
            **{"take 14 cabbages": 0.0, "put 14 cabbages in box": -1.5},
        },
    ),
    (
        "SortingText-v0",
        {},
        [7, 14, 7, 14, 7],
        {
            **{"take 19ml of aluminum": 0.0, "put 19ml of aluminum in box": 0.2},
            **{"take 4l of glass": 0.0, "put 4l of glass in box": 0.2},
        },
    ),
    (
        "MapReaderText-v0",
        {},
        [8, 8, 8, 8, 7, 9],
        {"look around": 0.0, "task": 0.0, "read map": 0.0, "move south": 0.0, "move south ": 0.0},
    ),
    ("CommonsenseText-v0", EASY, [4, 4, 10, 4], {"look around": 0.0, "take notebook": 0.5, "put notebook in side table": 0.5}),
]
"""Level 20000 as engine 1.0.4 played it: logs in the repository cognitiveailab/neurosymbolic, EACL 2023."""


@pytest.mark.parametrize(("name", "arguments", "counts", "rewards"), LOGGED)
def test_the_first_level_of_the_test_fold_is_that_of_the_published_logs_of_an_older_engine(make, name, arguments, counts, rewards):
    env = make(name, fold="test", **arguments)
    obs, _ = env.reset(seed=0)
    listed = [len(obs["valid_actions"])]
    for action, reward in rewards.items():
        assert action.strip() in obs["valid_actions"]
        obs, got, *_ = env.step(action.strip())
        assert got == reward
        listed.append(len(obs["valid_actions"]))
    assert listed == counts
