"""Choices by letters: the question, and the probabilities of the letters that a server lists."""

import math

import pytest

from gym_text_policies.backends.providers.errors import CallError
from gym_text_policies.backends.providers.letters import lettered, of_letters

CHOICES = ("go", "take lamp", "wait")


def token(text, probability):
    return {"token": text, "logprob": math.log(probability)}


def test_the_last_message_goes_on_with_the_choices_and_the_others_stay():
    messages = ({"role": "system", "content": "Play."}, {"role": "user", "content": "A hall."})
    first, last = lettered(messages, CHOICES)
    assert first == messages[0] and messages[1]["content"] == "A hall."
    assert last["content"].startswith("A hall.\n\n") and "\nA: go\nB: take lamp\nC: wait\n" in last["content"]


def test_probabilities_are_relative_and_a_letter_with_a_space_is_the_same_letter():
    found = of_letters(CHOICES, [token("A", 0.2), token(" A", 0.1), token("B", 0.1), token("Well", 0.6)])
    assert found == pytest.approx({"go": 0.75, "take lamp": 0.25, "wait": 0.0})


def test_no_letter_among_the_tokens_is_an_error_that_was_paid_for():
    with pytest.raises(CallError, match=r"expected a letter .*; got 'Well', 'b'\. Mode 'json' needs none"):
        of_letters(CHOICES, [token("Well", 0.6), token("b", 0.1)])
    with pytest.raises(CallError, match="got none"):
        of_letters(CHOICES, [])


@pytest.mark.parametrize("wrong", [0.5, math.nan, "-1", None])
def test_what_is_no_log_probability_is_refused(wrong):
    with pytest.raises(ValueError, match="log-probabilities are expected, none above 0"):
        of_letters(CHOICES, [{"token": "A", "logprob": wrong}])
