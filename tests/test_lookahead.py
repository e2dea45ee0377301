"""Tests of policies that look ahead, with each method and with a real model."""

import gymnasium as gym
import numpy as np
import pytest
from episodes import without_seconds
from vault import decisions, looking_ahead, prefers

from gym_text.errors import UsageError
from gym_text_policies import load_policy, rollout
from gym_text_policies.policies.lookahead import METHODS, mixed_prior

PICKUP = "BabyAIText-v0"


def _pickup():
    return gym.make(PICKUP, task="pickup", expert="off", max_episode_steps=6)


def _found(episodes):
    """Return what the searches of episodes have found, without what that has cost."""
    return [
        (episode.seed, [(step.decision.action, step.decision.visits, step.decision.values) for step in episode.steps])
        for episode in without_seconds(episodes)
    ]


@pytest.mark.parametrize("method", METHODS)
def test_a_search_depends_on_the_present_state_alone(method, monkeypatch):
    def play(num_envs, seeds=range(300, 304)):
        settings = {} if method != "puct" else {"exploration": 1.0}
        policy = load_policy("random", _pickup(), lookahead=method, simulations=20, depth=5, **settings)
        return list(rollout(_pickup, policy, seeds, num_envs=num_envs))

    together = play(4)
    assert _found(together) == _found(play(1, range(303, 299, -1))), "neither on what is searched beside it, nor on the order"
    saved = sum(step.decision.simulator_steps for episode in together for step in episode.steps)
    monkeypatch.setattr("gym_text_policies.policies.lookahead._REMEMBERED", 0)
    alone = play(4)
    assert _found(together) == _found(alone), "nor on what the decision before has found out"
    steps = sum(step.decision.simulator_steps for episode in alone for step in episode.steps)
    assert saved < steps if method == "puct" else saved == steps


def test_a_model_looks_ahead_with_its_own_probabilities():
    def make():
        return gym.make(PICKUP, expert="off", max_episode_steps=2)

    plain = load_policy("smollm2", make(), mode="choose", history=2)
    searching = load_policy("smollm2", make(), lookahead="puct", simulations=3, history=2)
    episodes = list(rollout(make, searching, range(2), num_envs=2))
    assert _found(episodes) == _found(rollout(make, searching, range(2), num_envs=1))
    (asked,) = rollout(make, plain, [0])
    first = next(episode for episode in episodes if episode.seed == 0).steps[0].decision
    assert dict(first.probabilities) == pytest.approx(dict(asked.steps[0].decision.probabilities), abs=1e-5)
    assert sum(first.visits.values()) == 2 and first.tokens_in > 100 * first.model_calls > 0


def test_a_player_without_history_is_asked_once_about_states_that_look_the_same():
    player = prefers()
    assert [decision.model_calls for decision in decisions("Vault-v0", player, simulations=4)] == [2, 1, 0]
    assert player.asked == 3


def test_the_prior_is_tempered_and_mixed_as_by_hand():
    probabilities = {"a": 0.64, "b": 0.32, "c": 0.04}
    assert mixed_prior(probabilities, ("a", "b", "c"), 1.0, 0.0) == pytest.approx(probabilities)
    roots = np.sqrt([0.64, 0.32, 0.04])
    half = mixed_prior(probabilities, ("a", "b", "c"), 2.0, 0.3)
    assert list(half.values()) == pytest.approx(list(0.7 * roots / roots.sum() + 0.1))
    assert mixed_prior(None, ("a", "b"), 2.0, 0.3) == {"a": 0.5, "b": 0.5}
    first, *_ = decisions("Vault-v0", prefers(), uniform_share=1.0)
    assert first.probabilities == pytest.approx(dict.fromkeys(("left", "right", "break"), 1 / 3))


def test_a_policy_without_probabilities_searches_evenly_and_asks_no_model():
    policy = load_policy("random", gym.make("Vault-v0"), lookahead="puct", simulations=64)
    (episode,) = rollout(lambda: gym.make("Vault-v0"), policy, [0])
    assert episode.outcome == "won" and episode.length == 3 and policy.config["player"]["kind"] == "random"


def test_temperature_draws_actions_by_their_visits():
    drawn = {decisions("Vault-v0", prefers(), simulations=4, temperature=1.0)[0].action for _ in range(2)}
    assert len(drawn) == 1, "the draw depends on seed and state alone"
    actions = {
        episode.steps[0].decision.action
        for episode in rollout(lambda: gym.make("Vault-v0"), looking_ahead(prefers(), simulations=5, temperature=1.0), range(12))
    }
    assert actions == {"left", "right"}


def test_settings_are_refused_where_a_method_does_not_take_them():
    env = gym.make("Vault-v0")
    with pytest.raises(UsageError, match="exploration, leaf: expected with lookahead='puct' alone; got lookahead='beam'"):
        load_policy("random", env, lookahead="beam", leaf="rollout", exploration=1.0)
    with pytest.raises(UsageError, match="temperature: expected 0 with lookahead='best_of_n', which plays the best action"):
        load_policy("smollm2", env, lookahead="best_of_n", temperature=0.5)
    with pytest.raises(UsageError, match="leaf: expected one of 'score', 'rollout'"):
        load_policy("random", env, lookahead="puct", leaf="value")
    assert "exploration" not in load_policy("random", env, lookahead="beam").config
