"""Choices by letters: an approximation, for servers that give only the log-probabilities of the most probable generated tokens."""

from __future__ import annotations

import math
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gym_text_policies.backends.providers.checks import is_log_prob
from gym_text_policies.backends.providers.errors import CallError
from gym_text_policies.records import Message

MOST_LETTERS = 20
"""Most choices, as servers list at most so many of the most probable tokens."""
_QUESTION = "Which action comes next?\n{}\nAnswer with its letter alone."


def lettered(messages: Sequence[Message], choices: Sequence[str]) -> list[Message]:
    """Return a chat with a list of the choices at the end of its last message, a letter before each."""
    rows = "\n".join(f"{letter}: {choice}" for letter, choice in zip(string.ascii_uppercase, choices, strict=False))
    *before, last = messages
    return [*before, {"role": last["role"], "content": f"{last['content']}\n\n{_QUESTION.format(rows)}"}]


def of_letters(choices: Sequence[str], tokens: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the probabilities of choices: those of their letters as first token, rescaled to sum to 1.

    Args:
        choices: The choices, in the order of their letters. A choice whose letter is not listed has probability 0.
        tokens: The most probable first tokens, each with its ``token`` and ``logprob``. Spaces around a letter do not count.

    Raises:
        CallError: If none of the tokens is one of the letters.
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
        shown = ", ".join(repr(row["token"]) for row in tokens[:5]) or "none"
        raise CallError(f"expected a letter among the most probable tokens; got {shown}. Mode 'json' needs none.", billed=True)
    return {choice: weight / total for choice, weight in weights.items()}
