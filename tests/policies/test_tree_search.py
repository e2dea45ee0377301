"""PUCT and the best of n drawn episodes, in a game in which the right search is known by hand."""

import math

import gymnasium as gym
import numpy as np
import pytest
from vault import decisions, prefers

from gym_text_policies.policies.tree_search import Node, best_action, mixed_prior


def test_visits_values_and_costs_are_those_of_a_search_by_hand():
    player = prefers()
    first, second, third = decisions("Vault-v0", player)
    # the present state, a turn without effect, then right, left, a turn without effect, and the win
    assert first.visits == {"left": 1, "right": 4} and first.plan == ("right", "left", "right")
    assert first.values == pytest.approx({"left": 0, "right": (0.3 + 0.6 + 0.6 + 1) / 4})
    assert (first.model_calls, first.simulator_steps) == (3, 1 + 1 + 2 + 3 + 3)
    assert (second.visits, second.plan, third.plan) == ({"left": 3}, ("left", "right"), ("right",))
    assert second.model_calls == third.model_calls == 0 and player.asked == 3, "what the first search found out is kept"


def test_an_action_without_effect_is_tried_late(monkeypatch):
    monkeypatch.setattr("gym_text_policies.policies.tree_search.REPEATED", 0.0)
    assert not decisions("Vault-v0", prefers(), simulations=7)[0].plan, "seven simulations are too few without this"


def test_an_action_that_loses_is_tried_once_and_never_played():
    first, *_ = decisions("Vault-v0", prefers(left=0.01, right=0.01, **{"break": 0.98}))
    assert (first.visits["break"], first.values["break"], first.action) == (1, 0, "right"), "a loser keeps no points"
    (only,) = decisions("Vault-v0", prefers(left=0.01, right=0.01, **{"break": 0.98}), simulations=2)[:1]
    assert only.visits == {"break": 1} and only.action == "left"
    assert (only.model_calls, only.simulator_steps) == (1, 1), "a leaf to which no simulation returns costs no call"


@pytest.mark.parametrize("method", ["puct", "best_of_n"])
@pytest.mark.parametrize("game, prior", [("Vault-v0", {}), ("Coins-v0", {"small": 0.6, "large": 0.4})])
def test_the_unit_of_the_rewards_changes_no_decision(method, game, prior):
    settings = {"method": method, "simulations": 24}
    ones = decisions(game, prefers(game, **prior), (1.0).__mul__, **settings)
    for unit in (0.03, 5.0, 100.0):
        others = decisions(game, prefers(game, **prior), unit.__mul__, **settings)
        assert [other.action for other in others] == [one.action for one in ones]
        assert others[0].visits == ones[0].visits
        assert others[0].values == pytest.approx({name: unit * value for name, value in ones[0].values.items()})


@pytest.mark.parametrize("method", ["puct", "best_of_n"])
@pytest.mark.parametrize("more", [-1.0, 0.0, 1.0])
def test_what_comes_late_is_found_whatever_each_step_brings(method, more):
    player = prefers("Coins-v0", small=0.6, large=0.4)
    for unit in (0.03, 100.0):
        first, *_ = decisions("Coins-v0", player, lambda reward, unit=unit: unit * (reward + more), method=method, simulations=200)
        assert first.action == "large"


def test_values_are_divided_by_their_range():
    node = Node(None, ("a", "b"), 0.0, 0.0, prior={"a": 0.5, "b": 0.5})
    for name, worth in (("a", -100.0), ("b", 100.0)):
        node.children[name] = Node(None, (), worth, worth)
        node.children[name].visit(worth)
        node.visit(worth)
    assert node.range == 200
    for _ in range(3):
        node.children["b"].visit(100.0)
        node.visit(100.0)
    # 1 / 2 more by the values; sqrt(5) * (1 / 4 - 1 / 10) less by the visits
    assert best_action(node, 2.9 / math.sqrt(5)) == "b" and best_action(node, 6.8 / math.sqrt(5)) == "a"


def test_a_drawn_episode_that_wins_is_a_plan_and_the_last_one_is_cut_where_the_player_may_not_be_asked():
    first, *_ = decisions("Vault-v0", prefers(), method="best_of_n", simulations=64)
    env = gym.make("Vault-v0")
    env.reset(seed=0)
    names = ("left", "right", "break")
    assert [env.step(names.index(name)) for name in first.plan][-1][4]["success"]
    player = prefers("VaultCorridor-v0", left=0.0, right=1.0, stay=0.0)
    first, *_ = decisions("VaultCorridor-v0", player, method="best_of_n", simulations=2)
    assert first.model_calls == 2 and first.simulator_steps == 2 and not first.plan


def test_the_prior_is_tempered_and_mixed_as_by_hand():
    probabilities = {"a": 0.64, "b": 0.32, "c": 0.04}
    assert mixed_prior(probabilities, ("a", "b", "c"), 1.0, 0.0) == pytest.approx(probabilities)
    roots = np.sqrt([0.64, 0.32, 0.04])
    half = mixed_prior(probabilities, ("a", "b", "c"), 2.0, 0.3)
    assert list(half.values()) == pytest.approx(list(0.7 * roots / roots.sum() + 0.1))
    assert mixed_prior(None, ("a", "b"), 2.0, 0.3) == {"a": 0.5, "b": 0.5}
    first, *_ = decisions("Vault-v0", prefers(), uniform_share=1.0)
    assert first.probabilities == pytest.approx(dict.fromkeys(("left", "right", "break"), 1 / 3))
