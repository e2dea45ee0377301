"""Plays an environment and its forks alike, and compares all that they tell."""

import numpy as np

from gym_text.copies import fork

SHARED = ("score", "success", "failure", "action_was_valid", "action_mask")
"""The entries of ``info`` in which a fork agrees; it gives no hints."""


def drawn_action(env, obs, rng):
    """Draw an action: one of those that can be named now, at times an invalid one, or one of the space's."""
    spec = env.get_wrapper_attr("text_spec")
    names = spec.names(obs)
    if rng.random() < 0.05 or not names:
        return "jump" if spec.encoding == "text" else env.action_space.sample()
    return spec.encode(names[rng.integers(len(names))], obs)


def after(env, action):
    """Play an action, and begin a new episode where one has ended; return the observation, and all that a player is told."""
    obs, reward, terminated, truncated, info = env.step(action)
    statistics = [info["episode"][key] for key in ("r", "l") if "episode" in info]
    told = [obs, reward, terminated, truncated, {key: info[key] for key in SHARED if key in info}, statistics]
    if terminated or truncated:
        obs, info = env.reset()
        told += [obs, {key: info[key] for key in SHARED if key in info}]
    return obs, told


def check_forks(original, unforked, steps, places):
    """Play an environment, a twin that is never forked, and forks from several places alike; compare all that they tell."""
    original.action_space.seed(0)
    obs, _ = original.reset(seed=0)
    unforked.reset(seed=0)
    rng, forks = np.random.default_rng(0), []
    for step in range(steps):
        if step % (steps // places) == 0:
            elsewhere, obs_there = fork(original), obs
            for _ in range(steps // places // 2):
                obs_there, _ = after(elsewhere, drawn_action(elsewhere, obs_there, rng))
            elsewhere.close()
            forks.append(fork(original))
        action = drawn_action(original, obs, rng)
        _, expected = after(unforked, action)
        obs, told = after(original, action)
        np.testing.assert_equal(told, expected)
        for copied in forks:
            np.testing.assert_equal(after(copied, action)[1], expected)
    for copied in forks:
        copied.close()
