"""BabyAI's game, which notes the threads in which it begins and is played."""

import threading

import gymnasium as gym

from gym_text.babyai.env import BabyAITextEnv

threads: set[int] = set()
"""Identifiers of the threads."""


class Noting(BabyAITextEnv):
    """Notes the thread of each reset and step."""

    def reset(self, *, seed=None, options=None):
        threads.add(threading.get_ident())
        return super().reset(seed=seed, options=options)

    def step(self, action):
        threads.add(threading.get_ident())
        return super().step(action)


gym.register("Noting-v0", Noting, max_episode_steps=3)
