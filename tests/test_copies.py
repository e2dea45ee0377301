"""Forks: copies of an environment in the middle of an episode, which go on as it would and leave it alone."""

import numpy as np
import pytest
from experts import ENV_IDS

from gym_text.copies import fork

STEPS, PLACES = 200, 10
FEWER = {"ScienceWorldText-v0": (40, 2)}
"""ScienceWorld's numbers: beginning one of its games takes as long as a hundred steps of another."""
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
    """Play an action, and begin a new episode where one has ended; return all that a player sees, and whether it has ended."""
    obs, reward, terminated, truncated, info = env.step(action)
    seen = [obs, reward, terminated, truncated, {key: info[key] for key in SHARED if key in info}]
    if terminated or truncated:
        obs, info = env.reset()
        seen += [obs, {key: info[key] for key in SHARED if key in info}]
    return obs, seen


def assert_same(first, second):
    """Compare observations, rewards, ends and infos, arrays included."""
    np.testing.assert_equal(second, first)


MORE = [
    *(("BabyAIText-v0", {"level": f"BabyAI-{level}-v0"}) for level in ("KeyInBox", "BossLevel", "OpenDoorDebug", "PickupAbove")),
    ("BabyAIText-v0", {"level": "BabyAI-PutNextS5N2Carrying-v0"}),
    ("BabyAIText-v0", {"task": "pick_up_seq_go_to", "num_dists": 4}),
    ("CookingWorldText-v0", {"actions": "index"}),
]
"""More environments, whose games have further kinds of state, or other actions."""


@pytest.mark.parametrize(("env_id", "arguments"), [*((name, {}) for name in ENV_IDS), *MORE])
def test_forks_go_on_as_the_environment_does_and_leave_it_alone(env_id, arguments, make):
    if env_id == "BabyAIText-v0":
        arguments = arguments | {"feedback": True, "valid_actions": True}
    original, unforked = make(env_id, **arguments), make(env_id, **arguments)
    original.action_space.seed(0)
    obs, _ = original.reset(seed=0)
    unforked.reset(seed=0)
    rng, forks = np.random.default_rng(0), []
    steps, places = FEWER.get(env_id, (STEPS, PLACES))
    for step in range(steps):
        if step % (steps // places) == 0:
            elsewhere, obs_there = fork(original), obs
            for _ in range(10):
                obs_there, _ = after(elsewhere, drawn_action(elsewhere, obs_there, rng))
            elsewhere.close()
            forks.append(fork(original))
        action = drawn_action(original, obs, rng)
        _, expected = after(unforked, action)
        obs, seen = after(original, action)
        assert_same(expected, seen)
        for copied in forks:
            assert_same(expected, after(copied, action)[1])
    for copied in forks:
        copied.close()
