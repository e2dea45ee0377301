"""Choices by letters: an approximation, for servers that give only the log-probabilities of the most probable generated tokens."""

from __future__ import annotations

import math
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gym_text_policies.backends.base import Answer
from gym_text_policies.backends.providers.answer_checks import is_log_prob
from gym_text_policies.backends.providers.chat_answers import first_choice, read_chat
from gym_text_policies.backends.thoughts import thought_apart
from gym_text_policies.records import Message

MOST_LETTERS = 20
"""Most choices, as servers list at most so many of the most probable tokens."""
_QUESTION = "Which action comes next?\n{}\nAnswer with its letter alone."


def lettered(messages: Sequence[Message], choices: Sequence[str]) -> list[Message]:
    """Return a chat with a list of the choices at the end of its last message, a letter before each."""
    rows = "\n".join(f"{letter}: {choice}" for letter, choice in zip(string.ascii_uppercase, choices, strict=False))
    *before, last = messages
    return [*before, {"role": last["role"], "content": f"{last['content']}\n\n{_QUESTION.format(rows)}"}]


def read_letter(completion: Any, choices: Sequence[str]) -> Answer:
    """Return the probabilities of the letters at the answer's first token, and the answer; no probabilities without a letter."""
    answer = thought_apart(read_chat(completion))
    rows = (first_choice(completion).get("logprobs") or {}).get("content")
    probabilities = of_letters(choices, answer_tokens(rows or (), answer))
    return replace(answer, probabilities=probabilities, probability_kind="letter" if probabilities else None)


def answer_tokens(rows: Sequence[Mapping[str, Any]], answer: Answer) -> Sequence[Mapping[str, Any]]:
    """Return the most probable tokens where the answer begins.

    Args:
        rows: The generated tokens, those of a thought included, each with its ``token`` and ``top_logprobs``.
        answer: The answer, apart from its thought.
    """
    if answer.reasoning is None and not answer.tokens_reasoning:
        return rows[0]["top_logprobs"] if rows else ()
    said, behind = (answer.text or "").strip(), ""
    for row in reversed(rows):  # the last place from which the rest is the answer, with an end of turn or without
        behind = row["token"] + behind
        if said and behind.strip().startswith(said):
            return row["top_logprobs"] if row["token"].strip() else ()
    return ()


def of_letters(choices: Sequence[str], tokens: Iterable[Mapping[str, Any]]) -> dict[str, float] | None:
    """Return the probabilities of choices: those of their letters as first token, rescaled to sum to 1; None without a letter.

    Args:
        choices: The choices, in the order of their letters. A choice whose letter is not listed has probability 0.
        tokens: The most probable first tokens, each with its ``token`` and ``logprob``. Spaces around a letter do not count.

    Raises:
        ValueError: If the values are not log-probabilities.
    """
    tokens = list(tokens)
    if not all(is_log_prob(row["logprob"]) for row in tokens):
        raise ValueError(f"log-probabilities are expected, none above 0; got {[row['logprob'] for row in tokens]}")
    weights = dict.fromkeys(choices, 0.0)
    for letter, choice in zip(string.ascii_uppercase, choices, strict=False):
        weights[choice] = sum(math.exp(row["logprob"]) for row in tokens if row["token"].strip() == letter)
    total = sum(weights.values())
    if not total:
        return None
    return {choice: weight / total for choice, weight in weights.items()}
