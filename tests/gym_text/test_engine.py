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
    heap_after, resident_after = make_and_close(100)
    assert heap_after - heap < 2**20  # a game that stayed would hold some 190 KB, a hundred of them 19 MB
    assert resident_after - resident < 30 * 2**20  # outside of Java's heap, too
    assert set(threading.enumerate()) <= threads  # one of an earlier test may have ended
