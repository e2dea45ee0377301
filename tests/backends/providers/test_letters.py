"""Choices by letters: the question, and the probabilities of the letters that a server lists."""

import math

import pytest

from gym_text_policies.backends.providers.letters import lettered, of_letters, read_letter

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


def completion(text, *tokens):
    rows = [{"token": row["token"], "top_logprobs": [row]} for row in tokens]
    choice = {"message": {"content": text}, "finish_reason": "length", "logprobs": {"content": rows}}
    return {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}


def test_an_answer_without_a_letter_has_no_probabilities_and_its_tokens_are_paid_for():
    assert of_letters(CHOICES, [token("Well", 0.6), token("b", 0.1)]) is None and of_letters(CHOICES, []) is None
    for tokens in ([token("Well", 0.6)], []):
        answer = read_letter(completion("Well", *tokens), CHOICES)
        assert (answer.text, answer.probabilities, answer.probability_kind, answer.tokens_in) == ("Well", None, None, 9)
    thinking = read_letter(completion("<think>A: no</think>B", token("A", 0.9), token("</think>", 0.9), token("B", 0.5)), CHOICES)
    assert thinking.probabilities == {"go": 0.0, "take lamp": 1.0, "wait": 0.0} and thinking.reasoning == "A: no"


@pytest.mark.parametrize("wrong", [0.5, math.nan, "-1", None])
def test_what_is_no_log_probability_is_refused(wrong):
    with pytest.raises(ValueError, match="log-probabilities are expected, none above 0"):
        of_letters(CHOICES, [{"token": "A", "logprob": wrong}])
