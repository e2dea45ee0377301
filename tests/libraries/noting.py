"""BabyAI's game, which notes the threads in which it begins, is played and is closed, and when it is closed."""

import threading

import gymnasium as gym

from gym_text.babyai.env import BabyAITextEnv

threads: set[int] = set()
"""Identifiers of the threads in which it begins and is played."""
closers: set[int] = set()
"""Identifiers of the threads in which it is closed."""
began, may_begin, closed = threading.Event(), threading.Event(), threading.Event()
"""Set when a reset begins; a reset waits for the second one, which is set unless a test clears it; set when a game is closed."""
may_begin.set()


class Noting(BabyAITextEnv):
    """Notes the thread of each reset and step."""

    def close(self):
        super().close()
        closers.add(threading.get_ident())
        closed.set()

    def reset(self, *, seed=None, options=None):
        threads.add(threading.get_ident())
        began.set()
        assert may_begin.wait(60)
        return super().reset(seed=seed, options=options)

    def step(self, action):
        threads.add(threading.get_ident())
        return super().step(action)


gym.register("Noting-v0", Noting, max_episode_steps=3)
