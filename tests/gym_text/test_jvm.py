"""The JVM of the games in this process: working directory, threads, signals, and what is said where it is missing."""

import os
import subprocess
import sys
import threading

import gymnasium as gym
import jpype
import pytest

from gym_text import MissingDependencyError
from gym_text.java import jvm
from gym_text.textworld_express.engine import ExpressGame

PARAMETERS = {"numLocations": 3, "numIngredients": 2}


@pytest.mark.parametrize("flag", [jvm._CLONE_FS, 1], ids=["own directory", "refused by the system"])
def test_loading_leaves_the_working_directory(flag, tmp_path, monkeypatch):
    monkeypatch.setattr(jvm, "_CLONE_FS", flag)  # 1 is no flag: the system answers EINVAL
    monkeypatch.chdir(tmp_path)
    assert ExpressGame("cookingworld", PARAMETERS).start(0, "train").valid_actions
    assert os.getcwd() == str(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a working directory for each thread")
def test_other_threads_do_not_see_a_game_being_loaded():
    seen, stop = set(), threading.Event()

    def watch():
        while not stop.is_set():
            seen.add(os.getcwd())

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(5):
        ExpressGame("cookingworld", PARAMETERS)
    stop.set()
    watcher.join()
    assert seen == {os.getcwd()}


def threads_of_java():
    """Return how many threads Java knows."""
    return int(jpype.JClass("java.lang.Thread").activeCount())


def test_java_keeps_no_thread_that_has_ended_in_python():
    kept = []

    def play(part):
        if part == "begin":
            kept.append(gym.make("CookingWorldText-v0", expert="off"))
            kept[-1].reset(seed=0)
        elif part == "step":
            kept[-1].step("look around")
        else:
            kept.pop().close()  # what lets go of a game calls Java, too

    ExpressGame("cookingworld", PARAMETERS)
    before = threads_of_java()
    for _ in range(8):
        for part in ("begin", "step", "end"):
            thread = threading.Thread(target=play, args=(part,))
            thread.start()
            thread.join()
    assert threads_of_java() <= before


def test_a_library_that_takes_java_s_signals_does_not_crash_the_games():
    script = """
import faulthandler, gymnasium as gym, gym_text
from gym_text.java.jvm import SignalHandlers
env = gym.make("CoinCollectorText-v0")
env.reset(seed=0)
before = SignalHandlers().addresses
for play in (lambda: env.step("look around"), lambda: env.reset(seed=1)):
    faulthandler.enable()
    taken = SignalHandlers().addresses
    play()
    print(taken != before, SignalHandlers().addresses == before)
    faulthandler.disable()
"""
    result = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=300)
    assert result.stdout.split() == ["True"] * 4, result.stderr


@pytest.mark.parametrize(
    ("missing", "env_id", "extra"),
    [
        ("textworld_express", "CookingWorldText-v0", "textworld"),
        ("minigrid", "BabyAIText-v0", "babyai"),
        ("textarena", "TextArenaText-v0", "textarena"),
    ],
)
def test_a_missing_extra_is_named_with_its_pip_line(missing, env_id, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    jvm.engine_jar.cache_clear()  # another test may have looked for the engine
    with pytest.raises(MissingDependencyError, match=rf"'{missing}' is not installed. Run: pip install 'gym-text\[{extra}\]'"):
        gym.make(env_id).reset(seed=0)
