"""`Agent`: a policy in a loop of your own."""

import gymnasium as gym
import numpy as np

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
    episodes = rollout(lambda: gym.make("BabyAIText-v0", max_episode_steps=8), policy, (0, 1), num_envs=1)
    assert played == [step.decision.messages for episode in episodes for step in episode.steps]


def test_an_agent_draws_what_rollout_draws(make):
    env = make("BabyAIText-v0", max_episode_steps=8)
    agent, drawn = Agent({"model": "random", "seed": 3, "noise": 0.5}, env), []
    for seed in (4, np.int64(5)):
        (obs, _), over = env.reset(seed=seed), False
        agent.reset(seed=seed)
        while not over:
            raw, action = agent.get_action(obs)
            obs, _, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
            drawn.append(raw["action_name"])
    policy = load_policy("random", env, seed=3, noise=0.5)
    episodes = rollout(lambda: gym.make("BabyAIText-v0", max_episode_steps=8), policy, (4, 5), num_envs=1)
    assert drawn == [step.decision.action for episode in episodes for step in episode.steps]


def test_episodes_without_a_seed_draw_apart_and_again_the_same(make):
    env = make("BabyAIText-v0")
    obs, _ = env.reset(seed=0)

    def drawn():
        agent, names = Agent("random", env), []
        for _ in range(2):
            agent.reset()
            names.append([agent.get_action(obs)[0]["action_name"] for _ in range(12)])
        return names

    first, second = drawn()
    assert first != second and drawn() == [first, second]
