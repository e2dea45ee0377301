"""TextWorldExpress under strain: many games, many threads, interrupts."""

import gc
import subprocess
import sys
import threading

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

    make_and_close(150)  # fills the JVM's heap to where it collects
    before, threads = make_and_close(50), threading.active_count()
    after = make_and_close(500)
    assert after - before < 150 * 2**20  # a game that stayed would hold some 3 MB, 500 of them 1.5 GB
    assert threading.active_count() == threads


def test_ten_threads_step_ten_environments():
    alone = [play(gym.make(ID), seed) for seed in range(10)]
    together = [None] * 10

    def work(seed):
        together[seed] = play(gym.make(ID), seed)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(10)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
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
        threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            while True:
                step()
        except KeyboardInterrupt:
            print("interrupted")
print(env.reset(seed=0)[0]["text"] == env.reset(seed=0)[0]["text"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n" * 10 + "True\n", "", 0)
