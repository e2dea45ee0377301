"""The value of parameters is the return of their policy."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from searches import CAR, config, evaluator

from gym_text import EngineError
from gym_text_policies import load_policy, rollout
from gym_text_policies.environments import make_environment
from gym_text_policies.search import search


@pytest.mark.parametrize("env_id", [CAR, "CartPole-v1", "FrozenLake-v1"])
def test_the_value_is_the_return_of_the_policy_in_the_one_loop(env_id, tmp_path):
    settings = config(environment=env_id, evaluations=3, folder=str(tmp_path))
    found = search(settings)
    env = make_environment(env_id, max_episode_steps=200)
    policy = load_policy(str(tmp_path / "policy.json"), env)
    played = rollout(lambda: make_environment(env_id, max_episode_steps=200), policy, settings.seeds)
    assert [episode.total_reward for episode in sorted(played, key=lambda e: e.seed)] == list(found.best.returns)


def test_what_gymnasium_has_registered_with_other_dynamics_is_stepped():
    gym.register("SwiftCar-v0", "gymnasium.envs.classic_control:Continuous_MountainCarEnv", 200, kwargs={"goal_velocity": 0.01})
    gym.register("SameCar-v0", "gymnasium.envs.classic_control:Continuous_MountainCarEnv", max_episode_steps=150)
    try:
        swift, same = (evaluator(config(environment=name, max_episode_steps=0)) for name in ("SwiftCar-v0", "SameCar-v0"))
        assert (swift.at_once, same.at_once > 1) == (1, True)
        (idle,) = same([(0.0, 0.0, 0.0)])
        assert {rollout.length for rollout in idle} == {150}
    finally:
        for name in ("SwiftCar-v0", "SameCar-v0"):
            gym.registry.pop(name)


def test_a_reward_that_is_no_number_is_named_with_seed_and_step(monkeypatch):
    cart_poles = evaluator(config(environment="CartPole-v1"))
    step = CartPoleEnv.step

    def second_is_nan(self, action):
        obs, reward, *rest = step(self, action)
        self.count = getattr(self, "count", 0) + 1
        nan = np.float32("nan") if self.count == 2 else np.float32(0)
        return (obs, float(reward + nan), *rest)

    monkeypatch.setattr(CartPoleEnv, "step", second_is_nan)
    with pytest.raises(EngineError, match=r"CartPole-v1, seed \d+, step 2: expected a finite reward and observation; got .*nan"):
        cart_poles([(1.0, 1.0, 1.0, 1.0, 0.0)])
    cart_poles.close()
