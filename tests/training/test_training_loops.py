"""Other people's wrappers and training loops run on our environments."""

import inspect
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.utils import get_action_masks
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env as check_env_of_stable_baselines
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from gym_text.wrappers import EncodeText, History
from gym_text_policies import as_policy, load_policy, rollout


def by_number(env_id):
    """Return the arguments with which an environment's actions are numbers."""
    game = inspect.signature(gym.envs.registration.load_env_creator(gym.spec(env_id).entry_point)).parameters
    return {"actions": "index"} if "actions" in game else {}


@pytest.fixture(params=["BabyAIText-v0", "CookingWorldText-v0", "MountainCarContinuousLLM-v0"])
def env_id(request):
    """Run the test for a game of numbers, a game of texts, and a control task."""
    return request.param


# ---------------------------------------------------------------- stable-baselines3


def test_stable_baselines3_checker_has_no_complaint(env_id, make):
    check_env_of_stable_baselines(EncodeText(History(make(env_id, **by_number(env_id)), 2), length=2048))


@pytest.mark.parametrize("model", ["random", "gold"])
def test_stable_baselines3_evaluates_our_policies(env_id, model, make):
    arguments = by_number(env_id) | {"fold": "test"}
    policy = load_policy(model, make(env_id, **arguments), seed=1)
    vector = make_vec_env(lambda: policy.wrap(gym.make(env_id, **arguments)), n_envs=2, seed=3)
    returns, lengths = evaluate_policy(policy, vector, n_eval_episodes=2, return_episode_rewards=True)
    vector.close()
    assert len(returns) == len(lengths) == 2
    if model == "gold":
        assert min(returns) > (50 if "Lunar" in env_id or "Mountain" in env_id else 0)


# ---------------------------------------------------------------- learning, a few thousand steps


def goto(fold="train"):
    return gym.make("BabyAIText-v0", task="goto", fold=fold, expert="off")


def test_ppo_learns_on_babyai_and_its_model_is_a_policy_on_the_texts(one_thread):
    vector = make_vec_env(lambda: EncodeText(goto(), length=64), n_envs=8, seed=0)
    model = PPO(
        "MultiInputPolicy", vector, n_steps=64, batch_size=128, n_epochs=8, learning_rate=1e-3, gamma=0.97, seed=0, device="cpu"
    )
    untrained = wins(model)
    model.learn(8192)
    vector.close()
    assert wins(model) >= untrained + 10


def wins(model):
    """Return how many of 40 held-out episodes of texts a trained model wins."""
    encoder = EncodeText(goto("test"), length=64)
    policy = as_policy(lambda obs: model.predict(encoder.observation(obs))[0], encoder, name="model")
    return sum(episode.outcome == "won" for episode in rollout(partial(goto, "test"), policy, range(40)))


def test_maskable_ppo_trains_on_cooking_and_never_plays_an_invalid_action(one_thread):
    def make():
        return EncodeText(gym.make("CookingWorldText-v0", actions="index", expert="off"))

    vector = make_vec_env(make, n_envs=4, seed=0)
    model = MaskablePPO("MultiInputPolicy", vector, n_steps=128, batch_size=128, n_epochs=4, seed=0, device="cpu")
    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    model.learn(2048)
    vector.close()
    after = model.policy.state_dict()
    assert all(torch.isfinite(value).all() for value in after.values())
    assert any(not torch.equal(value, before[name]) for name, value in after.items())
    env = make()
    obs, info = env.reset(seed=0)
    for _ in range(20):
        mask = get_action_masks(env)
        assert mask.dtype == bool and np.array_equal(mask, info["action_mask"].astype(bool))
        obs, _, terminated, truncated, info = env.step(model.predict(obs, action_masks=mask)[0])
        assert info["action_was_valid"]
        if terminated or truncated:
            obs, info = env.reset()
