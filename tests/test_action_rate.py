"""A policy that is asked only every k-th step."""

import gymnasium as gym
import pytest

from gym_text import UsageError
from gym_text_policies import ScriptedBackend, load_policy, rollout
from gym_text_policies.policies.action_rate import ActionRate
from gym_text_policies.policy import environment_config


@pytest.mark.parametrize(("between", "expected"), [("repeat", "LLLRRR"), ("go forward", "LFFRFF")])
def test_between_questions_the_named_action_is_played(make, between, expected):
    env = make("BabyAIText-v0")
    policy = ActionRate(load_policy("scripted:turn left|turn right", env), 3, between)
    (episode,) = rollout(lambda: gym.make("BabyAIText-v0", max_episode_steps=6), policy, [0])
    names = {"turn left": "L", "turn right": "R", "go forward": "F"}
    assert "".join(names[step.decision.action] for step in episode.steps) == expected
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


def test_doing_nothing_has_a_name_where_there_is_one(make):
    pytest.importorskip("Box2D")
    lander = ActionRate(load_policy("scripted:fire main engine", make("LunarLanderLLM-v2")), 2, "no-op")
    assert lander._filler == "do nothing"
    with pytest.raises(UsageError, match="no action here does nothing"):
        ActionRate(load_policy("scripted:x", make("BabyAIText-v0")), 2, "no-op")


@pytest.mark.parametrize("between", ["repeat", "go forward"])
def test_outside_rollout_each_episode_begins_with_a_question(make, between):
    env = make("BabyAIText-v0", max_episode_steps=5)
    asked = []

    def answer(request):
        asked.append(request)
        return "turn left"

    policy = ActionRate(load_policy(ScriptedBackend(answer), env), 3, between)
    wrapped = policy.wrap(env)
    counts = []
    for seed in range(3):
        (obs, _), over = wrapped.reset(seed=seed), False
        while not over:
            obs, _, terminated, truncated, _ = wrapped.step(policy(obs))
            over = terminated or truncated
        counts.append(len(asked))
    assert counts == [2, 4, 6]  # at the first and the fourth step of each


def test_predict_asks_at_the_steps_of_each_episode_without_being_told_of_its_state(make):
    env = make("BabyAIText-v0", max_episode_steps=4)
    policy = ActionRate(load_policy("scripted:turn left|turn right", env), 3)
    wrapped, played = policy.wrap(env), []
    for seed in range(2):
        (obs, _), over = wrapped.reset(seed=seed), False
        while not over:
            action, _ = policy.predict(obs)
            played.append(int(action))
            obs, _, terminated, truncated, _ = wrapped.step(action)
            over = terminated or truncated
    assert played == [0, 0, 0, 1] * 2


def test_the_number_of_the_step_changes_no_key(make):
    filled = ActionRate(load_policy("scripted:turn left", make("BabyAIText-v0")), 3, "go forward")
    assert environment_config(filled.wrap(make("BabyAIText-v0"))) == environment_config(make("BabyAIText-v0"))
