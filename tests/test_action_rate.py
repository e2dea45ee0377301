"""A policy that is asked only every k-th step."""

import gymnasium as gym
import pytest

from gym_text import UsageError
from gym_text_policies import ScriptedBackend, load_policy, rollout
from gym_text_policies.policies.action_rate import ActionRate


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
    with pytest.raises(UsageError, match="as none here does nothing"):
        ActionRate(load_policy("scripted:x", make("BabyAIText-v0")), 2, "no-op")
