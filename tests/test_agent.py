"""`Agent`: a policy in a loop of your own."""

import gymnasium as gym
import pytest

from gym_text import UsageError
from gym_text_policies import Agent, ScriptedBackend, load_policy, rollout


def test_an_agent_plays_in_a_loop_of_ones_own_as_rollout_does(make):
    def answer(request):
        return "go forward" if len(request.messages) % 4 else "turn left"

    env = make("BabyAIText-v0", max_episode_steps=8)
    agent = Agent({"model": "scripted:go forward|turn left", "history": 3, "strategy": "zero_shot"}, env)
    backend = ScriptedBackend(answer)
    agent.policy = load_policy(backend, env, history=3)
    played = []
    for seed in (0, 1):
        obs, _ = env.reset(seed=seed)
        agent.reset(seed=seed)
        over = False
        while not over:
            raw, action = agent.get_action(obs)
            assert raw["action"] == action
            obs, _, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
            played.append(agent.decision.messages)
    policy = load_policy(backend, env, history=3)
    episodes = rollout(lambda: gym.make("BabyAIText-v0", max_episode_steps=8), policy, (0, 1), batch=1)
    assert played == [step.decision.messages for episode in episodes for step in episode.steps]


def test_an_agents_unknown_key_is_named(make):
    with pytest.raises(UsageError, match=r"expected the keys strategy, .* backend; "):
        Agent("random", make("BabyAIText-v0"), hstory=3)
