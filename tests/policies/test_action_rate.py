"""A policy that is asked only every k-th step."""

import gymnasium as gym

from gym_text_policies import ScriptedBackend, load_policy, rollout
from gym_text_policies.policies.action_rate import ActionRate


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
