"""Policies are callables, have stable-baselines3's predict, and are made of one string."""

from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.evaluation import evaluate_policy

import gym_text_policies
from gym_text import UsageError
from gym_text_policies import as_policy, load_policy, rollout
from gym_text_policies.backends.base import Answer, Backend
from gym_text_policies.policy import environment_config, episode_key


def play(env, policy, seed=0):
    env = policy.wrap(env)
    obs, info = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        obs, reward, terminated, truncated, info = env.step(policy(obs))
        total, over = total + float(reward), terminated or truncated
    return total, info


@pytest.mark.parametrize(
    ("env_id", "least"), [("CookingWorldText-v0", 1.0), ("MountainCarContinuousLLM-v0", 90), ("LunarLanderLLM-v2", 200)]
)
def test_the_gold_policy_wins_as_a_plain_callable(env_id, least):
    env = gym.make(env_id)
    total, info = play(env, load_policy("gold", env))
    assert info["success"] and total >= least


def test_the_gold_policy_asks_for_its_wrapper():
    env = gym.make("BabyAIText-v0")
    obs, _ = env.reset(seed=0)
    with pytest.raises(UsageError, match=r"Use policy.wrap\(env\)"):
        load_policy("gold", env)(obs)
    with pytest.raises(UsageError, match="expert='off'"):
        load_policy("gold", env).wrap(gym.make("BabyAIText-v0", expert="off"))


def test_the_random_policy_says_every_action_about_as_often():
    env = gym.make("BabyAIText-v0", expert="off")
    obs, _ = env.reset(seed=0)
    policy = load_policy("random", env)
    counts = np.bincount([policy(obs) for _ in range(1200)], minlength=6)
    assert counts.min() > 150


def test_a_function_is_a_policy():
    env = gym.make("MountainCarContinuousLLM-v0", expert="off")
    policy = as_policy(lambda obs: np.sign(obs["car"][1:]) * 0.5 + np.float32(0.001), env, name="swing")
    (episode,) = rollout(lambda: env, policy, [0])
    assert episode.outcome == "won"
    assert episode.policy == {"kind": "function", "name": "swing", "seed": 0}
    assert {"0.501", "0.001", "-0.499"} >= {s.decision.action for s in episode.steps[1:]}


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("smolm2", {}, "Did you mean 'smollm2'"),
        ("random", {"mode": "text"}, "expected no options; got mode"),
    ],
)
def test_a_policy_that_there_is_not_is_refused(model, options, message):
    with pytest.raises(UsageError, match=message):
        load_policy(model, gym.make("BabyAIText-v0"), **options)


def test_a_key_changes_with_all_that_an_episode_depends_on():
    def key(env=None, policy=None, seed=0):
        env = env or gym.make("BabyAIText-v0")
        return episode_key(environment_config(env), (policy or load_policy("random", env)).config, seed)

    env = gym.make("BabyAIText-v0")
    others = [
        key(seed=1),
        key(gym.make("BabyAIText-v0", fold="test")),
        key(gym.make("BabyAIText-v0", max_episode_steps=5)),
        key(load_policy("gold", env).wrap(env)),
        key(policy=load_policy("random", env, seed=1)),
    ]
    assert key() == key(gym.make("BabyAIText-v0", render_mode="ansi"))
    assert len({key(), *others}) == 6


def test_a_policy_outside_rollout_draws_each_turn_apart_and_again_the_same():
    env = gym.make("BabyAIText-v0", expert="off")
    obs, _ = env.reset(seed=0)
    rows = {key: np.array([value] * 3, dtype=object if isinstance(value, str) else None) for key, value in obs.items()}

    def drawn():
        policy = load_policy("random", env, seed=1)
        return [int(policy(obs)) for _ in range(20)] + policy.predict(rows)[0].tolist() + [int(policy.predict(obs)[0])]

    assert drawn() == drawn() and len(set(drawn())) == 6


class Counted(Backend):
    """Counts what it is asked, each question for a dollar."""

    config: ClassVar = {"backend": "counted"}

    def __init__(self):
        self.asked = 0

    def answer(self, requests):
        self.asked += len(requests)
        return [Answer("turn left", tokens_in=1, cost=1.0) for _ in requests]


@pytest.mark.parametrize("share", [{"noise": 0.3, "expert_share": 0.3}, {"noise": 1.0}])
def test_what_is_not_played_is_neither_asked_for_nor_paid(share):
    backend = Counted()
    make = lambda: gym.make("BabyAIText-v0", expert="replan", max_episode_steps=10)  # noqa: E731
    episodes = list(rollout(make, load_policy(backend, make(), **share), range(6)))
    assert sum(episode.cost for episode in episodes) == backend.asked == sum(episode.tokens_in for episode in episodes)
    steps = sum(episode.length for episode in episodes)
    assert backend.asked < steps * 0.8 and (share == {"noise": 1.0}) == (backend.asked == 0)


def test_a_policy_looks_ahead_in_every_loop_and_says_what_is_missing():
    def make_env():
        return gym.make("SimonSaysText-v0", game_length=2)

    policy = load_policy("random", make_env(), lookahead="puct", simulations=12)
    assert play(make_env(), policy)[1]["success"]
    assert evaluate_policy(policy, policy.wrap(make_env()), n_eval_episodes=2, warn=False)[0] == 1
    vector = gym.vector.SyncVectorEnv([lambda: policy.wrap(make_env())] * 2)
    obs, _ = vector.reset(seed=3)
    actions, _ = policy.predict(obs)
    assert (vector.step(actions)[1] == 0.5).all(), "the right action of either game is half of the way"
    vector.close()
    agent = gym_text_policies.Agent("random", make_env(), lookahead="puct", simulations=12)
    with pytest.raises(UsageError, match=r"expected the key 'fork'; it is missing\. Use policy\.wrap\(env\)"):
        agent.get_action(make_env().reset(seed=0)[0])
    env = agent.policy.wrap(make_env())
    raw, action = agent.get_action(env.reset(seed=0)[0])
    assert env.step(action)[1] == 0.5 and raw["visits"][action] >= 1 and raw["values"].keys() == raw["visits"].keys()
