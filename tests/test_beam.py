"""Tests of beam search."""

from vault import decisions, prefers


def test_the_most_probable_sequences_are_played_until_one_wins():
    first, second, third = decisions("Vault-v0", prefers(), method="beam", simulations=27, depth=3)
    assert first.plan == ("right", "left", "right") and (second.plan, third.plan) == (("left", "right"), ("right",))
    # one step for each of 3 sequences, two for each of 6; of three actions those before the winner and the winner
    assert first.model_calls == 3, "the states with 0, 1 and 2 open locks look different, and no others do"


def test_the_beam_is_as_wide_as_simulations_and_depth_allow():
    first, *_ = decisions("Vault-v0", prefers(), method="beam", simulations=3, depth=3)
    assert first.action == "left" and first.simulator_steps == 1 + 2 + 3, "one sequence: left, left, left"
    assert first.visits == {"left": 1} and first.values == {"left": 0.0}
