"""Policies that look ahead: what a search depends on, and real models."""

import gymnasium as gym
import numpy as np
import pytest
from episodes import without_seconds
from vault import looking_ahead, prefers

from gym_text import Action, Field, Quantity, TextSpec
from gym_text.wrappers import DescribeObservation
from gym_text_policies import load_policy, rollout
from gym_text_policies.policies.tree_search import METHODS
from gym_text_policies.records import Turn

PICKUP = "BabyAIText-v0"


def pickup():
    return gym.make(PICKUP, task="pickup", expert="off", max_episode_steps=6)


def found(episodes):
    """Return what the searches of episodes have found, without what that has cost."""
    return [
        (episode.seed, [(step.decision.action, step.decision.visits, step.decision.values) for step in episode.steps])
        for episode in without_seconds(episodes)
    ]


@pytest.mark.parametrize("method", METHODS)
def test_a_search_depends_on_the_present_state_alone(method, monkeypatch):
    def play(num_envs, seeds=range(300, 303)):
        policy = load_policy("random", pickup(), lookahead=method, simulations=12)
        return list(rollout(pickup, policy, seeds, num_envs=num_envs))

    together = play(3)
    assert found(together) == found(play(1, range(302, 299, -1))), "neither on what is searched beside it, nor on the order"
    saved = sum(step.decision.simulator_steps for episode in together for step in episode.steps)
    monkeypatch.setattr("gym_text_policies.policies.lookahead._REMEMBERED", 0)
    alone = play(3)
    assert found(together) == found(alone), "nor on what the decision before has found out"
    steps = sum(step.decision.simulator_steps for episode in alone for step in episode.steps)
    assert saved < steps if method == "puct" else saved == steps


class Dial(gym.Env):
    """Shows many numbers, of which one in the middle is the number of turns."""

    observation_space, action_space, turns = gym.spaces.Box(0, 9, (2000,)), gym.spaces.Discrete(2), 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(2000, np.float32), {}

    def step(self, action):
        self.turns += action
        return np.eye(1, 2000, 1000, dtype=np.float32)[0] * self.turns, 0.0, False, False, {}


def test_states_that_differ_in_one_number_of_an_array_do_not_look_alike():
    shown = Field("it", (Quantity("number", "", 0, 9),) * 2000)
    spec = TextSpec("Turn.", {"observation": shown}, (Action("wait", ""), Action("turn", "")), "discrete")
    env = DescribeObservation(Dial(), spec, describe=lambda obs: "A dial.")
    policy = load_policy("random", env, lookahead="puct", simulations=4)
    turn = Turn(policy.wrap(env).reset(seed=0)[0], np.random.default_rng(0), "dial")
    policy.decide([turn])
    assert {name: child.repeated for name, child in policy.tree(turn).children.items()} == {"wait": True, "turn": False}


def test_a_model_looks_ahead_with_its_own_probabilities(tiny_model):
    def make():
        return gym.make(PICKUP, expert="off", max_episode_steps=2)

    plain = load_policy(str(tiny_model), make(), mode="choose", history=2)
    searching = load_policy(str(tiny_model), make(), lookahead="puct", simulations=3, history=2)
    (episode,), (asked,) = rollout(make, searching, [0]), rollout(make, plain, [0])
    first = episode.steps[0].decision
    assert dict(first.probabilities) == pytest.approx(dict(asked.steps[0].decision.probabilities), abs=1e-5)
    assert sum(first.visits.values()) == 2 and first.tokens_in > 100 * first.model_calls > 0


def test_a_policy_without_probabilities_searches_evenly_and_asks_no_model():
    policy = load_policy("random", gym.make("Vault-v0"), lookahead="puct", simulations=64)
    (episode,) = rollout(lambda: gym.make("Vault-v0"), policy, [0])
    assert episode.outcome == "won" and episode.length == 3 and policy.config["player"]["kind"] == "random"


def test_temperature_draws_actions_by_their_visits():
    actions = {
        episode.steps[0].decision.action
        for episode in rollout(lambda: gym.make("Vault-v0"), looking_ahead(prefers(), simulations=5, temperature=1.0), range(12))
    }
    assert actions == {"left", "right"}
