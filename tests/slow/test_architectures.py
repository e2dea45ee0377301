"""Models of many architectures play and learn by the probabilities of their own plain forward pass."""

import pytest
from architectures import ARCHITECTURES, QUICK, check_learning, check_play


@pytest.mark.parametrize("kind", sorted(set(ARCHITECTURES) - set(QUICK)))
def test_an_architecture_plays_and_learns_by_its_plain_forward_pass(kind, small_model):
    check_play(kind, small_model[1])
    check_learning(kind, small_model[1])
