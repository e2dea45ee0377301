"""Tests of the best of n drawn episodes."""

import gymnasium as gym
import pytest
from vault import decisions, prefers


def test_the_first_action_of_the_best_draw_is_played():
    player = prefers()
    first, *_ = decisions("Vault-v0", player, method="best_of_n", depth=1)
    assert first.action == "right" and first.values == pytest.approx({"left": 0.0, "right": 0.3})
    assert sum(first.visits.values()) == 8 and first.model_calls == 1, "eight draws of one step ask about one state"


def test_a_draw_that_wins_is_a_plan():
    first, *_ = decisions("Vault-v0", prefers(), method="best_of_n", simulations=64)
    env = gym.make("Vault-v0")
    env.reset(seed=0)
    names = ("left", "right", "break")
    assert [env.step(names.index(name)) for name in first.plan][-1][4]["success"]


def test_the_last_draw_is_cut_where_the_player_may_not_be_asked_again():
    first, *_ = decisions(
        "VaultCorridor-v0", prefers("VaultCorridor-v0", left=0.0, right=1.0, stay=0.0), method="best_of_n", simulations=2
    )
    assert first.model_calls == 2 and first.simulator_steps == 2 and not first.plan
