"""What each bridge is compared with: the action that `rollout` plays for an answer, and the observation that it records."""

import functools

import gymnasium as gym
import pytest

from gym_text_policies import rollout
from gym_text_policies.backends.scripted import ScriptedBackend
from gym_text_policies.environments import environment_maker
from gym_text_policies.policies.llm import LLMPolicy

GOTO, CAR, COINS = "BabyAIText-v0?task=goto", "MountainCarContinuousLLM-v0", "CoinCollectorText-v0?actions='index'"

ANSWERS = [
    (GOTO, "turn left"),
    (GOTO, " Turn  LEFT.\n"),
    (GOTO, "**pick up**"),
    (GOTO, "I take the action: `go forward`"),
    (GOTO, "turn left or turn right"),
    (GOTO, "upturn left"),
    (GOTO, '{"action": "toggle"}'),
    (GOTO, '{"reasoning": "not turn left", "action": "turn right"}'),
    (GOTO, "['go forward']"),
    (GOTO, "sing a song"),
    (GOTO, ""),
    (CAR, "0.25"),
    (CAR, "I accelerate by -1e-1, gently"),
    (CAR, "minus 0.5"),
    (CAR, "7"),
    (CAR, "0.1 or 0.2"),
    (COINS, "Look around!"),
    (COINS, "look around, then inventory"),
]
every_answer = pytest.mark.parametrize(("environment", "answer"), ANSWERS)


@functools.cache
def episode_of(environment, answer):
    """Return an episode of one step, in which the model answers so."""
    make = environment_maker(environment, max_episode_steps=1)
    with make() as env:
        policy = LLMPolicy(ScriptedBackend([answer]), env.get_wrapper_attr("text_spec"), strategy="chat", mode="text")
    (episode,) = rollout(make, policy, [3])
    return episode


def rollouts_action(environment, answer):
    """Return the name of the action that `rollout` plays for an answer; None where the answer cannot be used."""
    decision = episode_of(environment, answer).steps[0].decision
    return decision.action if decision.valid else None


class Noted(gym.Wrapper):
    """Notes the names of the actions that are played."""

    def __init__(self, env, obs):
        super().__init__(env)
        self.spec_of_texts, self.obs, self.played = env.get_wrapper_attr("text_spec"), obs, []

    def step(self, action):
        self.played.append(self.spec_of_texts.decode(action, self.obs))
        return self.env.step(action)


def bridges_action(game, play, answer):
    """Return the name of the action that a bridge plays for an answer; None where it plays none.

    Args:
        game: The bridge's game, after its reset, with attributes `_env` and `_obs`.
        play: Is called with the answer.
        answer: What the model said.
    """
    game._env = Noted(game._env, game._obs)
    play(answer)
    return next(iter(game._env.played), None)
