"""Tests of the tree search by prior and values."""

import math

import pytest
from vault import decisions, prefers

from gym_text_policies.policies.puct import best_action


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
    monkeypatch.setattr("gym_text_policies.policies.puct.REPEATED", 0.0)
    assert not decisions("Vault-v0", prefers())[0].plan, "eight simulations are too few without this"


def test_an_action_that_loses_is_tried_once_and_never_played():
    first, *_ = decisions("Vault-v0", prefers(left=0.01, right=0.01, **{"break": 0.98}))
    assert (first.visits["break"], first.values["break"], first.action) == (1, 0, "right"), "a loser keeps no points"
    (only,) = decisions("Vault-v0", prefers(left=0.01, right=0.01, **{"break": 0.98}), simulations=2)[:1]
    assert only.visits == {"break": 1} and only.action == "left"


def test_a_leaf_to_which_no_simulation_returns_costs_no_call():
    first, *_ = decisions("Vault-v0", prefers(), simulations=2)
    assert (sum(first.visits.values()), first.model_calls, first.simulator_steps) == (1, 1, 1)


def test_rollouts_from_the_leaves_find_what_the_player_does_by_itself():
    prior = {"left": 0.3, "right": 0.4, "stay": 0.3}
    first, *_ = decisions("VaultCorridor-v0", prefers("VaultCorridor-v0", **prior), simulations=3, leaf="rollout")
    assert first.plan == ("right",) * 3 and first.model_calls == 3
    assert not decisions("VaultCorridor-v0", prefers("VaultCorridor-v0", **prior), simulations=3)[0].plan


def test_a_rollout_counts_its_states_and_ends_at_the_depth():
    first, *_ = decisions("Vault-v0", prefers(), simulations=1, leaf="rollout")
    assert first.model_calls == 1 and first.simulator_steps == 1
    first, *_ = decisions("Vault-v0", prefers(), simulations=8, leaf="rollout", depth=2)
    assert not first.plan and 0.3 < first.values["right"] <= 0.6, "with two steps at most two of three locks are open"


def test_values_of_hundreds_are_divided_by_their_range():
    from gym_text_policies.policies.tree import Node

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
