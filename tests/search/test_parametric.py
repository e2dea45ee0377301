"""Forms of policies: they act in every environment, as their formula says."""

import gymnasium as gym
import numpy as np
import pytest
from searches import CAR, config

from gym_text import UsageError
from gym_text_policies.environments import make_environment
from gym_text_policies.policies.parametric import form_of
from gym_text_policies.search import search


@pytest.mark.parametrize(
    ("env_id", "kind", "count"),
    [
        (CAR, "linear", 3),
        ("CartPole-v1", "linear", 5),
        ("LunarLanderLLM-v2", "linear", 36),
        ("LunarLanderContinuous-v3", "linear", 18),
        ("FrozenLake-v1", "table", 16),
        ("Blackjack-v1", "table", 32 * 11 * 2),
    ],
)
def test_every_environment_has_a_form_that_acts_in_it(env_id, kind, count):
    if env_id not in gym.registry:
        pytest.skip(f"this Gymnasium has no {env_id}")
    env = make_environment(env_id)
    form = form_of(env)
    names = [parameter.name for parameter in form.parameters]
    assert (form.kind, len(names), len(set(names))) == (kind, count, count)
    values = np.random.default_rng(0).uniform(form.low, form.high, size=(4, count))
    obs, _ = env.reset(seed=0)
    numbers = np.repeat(form.numbers(obs)[None], 4, axis=0)
    actions = form.act(values, numbers)
    for i in range(4):
        assert np.array_equal(form.act(values[i : i + 1], numbers[i : i + 1])[0], actions[i])
        action = actions[i] if actions[i].ndim else int(actions[i])
        assert action in env.action_space
    assert form.formula() and all(parameter.meaning for parameter in form.parameters)
    found = search(config(environment=env_id, evaluations=2, num_rollouts=2, max_episode_steps=15))
    assert len(found.evaluations) == 2 and len(found.policy["parameters"]) == count
    env.close()


def test_a_linear_policy_is_its_formula():
    env = make_environment("CartPole-v1")
    without = form_of(env, bias=False)
    assert len(without.parameters) == 4
    assert without.act(np.array([[1.0, 2, 3, 4]]), np.array([[1.0, 1, -1, 0.5]])).tolist() == [1]
    assert without.act(np.array([[1.0, 2, 3, 4]]), np.array([[1.0, -1, -1, 0.5]])).tolist() == [0]
    car = form_of(make_environment(CAR))
    assert [parameter.name for parameter in car.parameters] == ["w_position", "w_velocity", "bias"]
    action = car.act(np.array([[1.0, 2.0, 0.25]]), np.array([[-0.5, 0.05]]))
    assert action.dtype == np.float32 and action[0, 0] == np.float32(-0.15)
    assert car.act(np.array([[6.0, 0, 6]]), np.array([[0.6, 0]])).tolist() == [[1.0]]  # clipped


def test_a_table_takes_the_whole_part():
    form = form_of(make_environment("FrozenLake-v1"))
    table = np.zeros(16)
    table[[3, 5]] = 2.9, 4.0
    assert [int(form.act(table[None], np.array([[state]]))[0]) for state in (3, 5, 0)] == [2, 3, 0]


def test_what_shows_no_numbers_has_no_form():
    with pytest.raises(UsageError, match="expected an environment whose observation has numbers"):
        form_of(make_environment("BabyAIText-v0"))
