"""A policy that is asked only every k-th step."""

import gymnasium as gym
import pytest

from gym_text import UsageError
from gym_text_policies import ScriptedBackend, load_policy, rollout
from gym_text_policies.policies.mixed import ActionRate


def test_between_questions_the_last_action_is_repeated(make):
    policy = ActionRate(load_policy("scripted:turn left|turn right", make("BabyAIText-v0")), 3)
    (episode,) = rollout(lambda: gym.make("BabyAIText-v0", max_episode_steps=6), policy, [0])
    assert [step.decision.action for step in episode.steps] == ["turn left"] * 3 + ["turn right"] * 3
    assert [step.decision.completion is not None for step in episode.steps] == [True, False, False] * 2
    assert episode.policy["action_rate"] == 3


def test_an_action_that_cannot_be_repeated_asks_the_model(make):
    env = make("CookingWorldText-v0")
    asked = []

    def answer(request):
        asked.append(request)
        return "look around"

    policy = ActionRate(load_policy(ScriptedBackend(answer), env, on_invalid="play"), 4)
    list(rollout(lambda: gym.make("CookingWorldText-v0", max_episode_steps=8), policy, [0]))
    assert len(asked) == 2


def test_a_policy_that_repeats_actions_needs_a_loop_that_knows_them(make):
    env = make("BabyAIText-v0")
    policy = ActionRate(load_policy("scripted:turn left|turn right", env), 3)
    obs, _ = env.reset(seed=0)
    policy(obs)
    with pytest.raises(UsageError, match="action_rate: expected rollout or Agent"):
        policy(obs)
