"""Many cars at once drive exactly as Gymnasium's one does."""

import gymnasium as gym
import numpy as np
import pytest

from gym_text.mountain_car_vector import drive

RNG = np.random.default_rng(0)
WEIGHTS = np.concatenate([RNG.uniform(-7, 7, (10, 2)), [[0.0, 0.0], [0.0, 1000.0], [0.0, 20.0], [-3.0, 7.0], [1e-8, 0.5]]])
"""Policies from idle to full force at once."""


def force(weights, obs):
    return np.clip(weights[..., 0] * obs[..., 0] + weights[..., 1] * obs[..., 1], -1, 1).astype(np.float32)


@pytest.mark.parametrize("limit", [1, 999])
def test_every_number_is_gymnasiums_to_the_last_bit(limit):
    seeds = [1_000_000 + i for i in range(len(WEIGHTS))]
    drives = drive(lambda obs, cars: force(WEIGHTS[cars], obs), seeds, limit)
    env = gym.make("MountainCarContinuous-v0", max_episode_steps=limit)
    for weights, seed, driven in zip(WEIGHTS, seeds, drives, strict=True):
        obs, _ = env.reset(seed=seed)
        total, seen, over = 0.0, [obs], False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(force(weights, obs)[None])
            total, over = total + reward, terminated or truncated
            seen.append(obs)
        assert driven.observations.tobytes() == np.array(seen).tobytes()
        assert (driven.total_reward, driven.length, driven.success) == (total, len(seen) - 1, terminated)
        assert driven.actions.tobytes() == np.array([force(weights, o) for o in seen[:-1]]).tobytes()
    assert limit == 1 or {driven.success for driven in drives} == {True, False}
    env.close()


def test_a_car_does_not_depend_on_the_others():
    seeds = [3, 4, 3, 5]
    weights = WEIGHTS[[11, 0, 11, 12]]
    together = drive(lambda obs, cars: force(weights[cars], obs), seeds, 999)
    alone = [drive(lambda obs, cars, i=i: force(weights[[i]], obs), [seed], 999)[0] for i, seed in enumerate(seeds)]
    assert [d.total_reward for d in together] == [d.total_reward for d in alone]
    assert together[0].total_reward == together[2].total_reward
    assert together[0].length == alone[0].length
    assert drive(lambda obs, cars: force(weights, obs), [], 999) == []
