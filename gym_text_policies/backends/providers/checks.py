"""What a provider or a cache says, checked: a wrong form is an answer that cannot be read, not a figure in a record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gym_text_policies.backends.base import Answer

MOST_TOKENS = 10**9
"""Most tokens of one answer that are believed."""
_FINISHES = (None, "stop", "length", "refusal", "content_filter")
_ROUNDING = 0.01
"""Nats above 0 that are put down to rounding."""


def count(value: Any) -> int:
    """Return a number of tokens as a provider gives it; None is 0.

    Raises:
        ValueError: If it is no whole number from 0 to a billion.
    """
    if value is None:
        return 0
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value != int(value) or not 0 <= value <= MOST_TOKENS:
        raise ValueError(f"a number of tokens from 0 to {MOST_TOKENS}, expected; got {str(value)[:60]}")
    return int(value)


def is_log_prob(value: Any) -> bool:
    """Return whether a value is a log-probability: finite, and none above 0 but for rounding."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value <= _ROUNDING


def check_answer(answer: Answer, choices: Sequence[str] | None = None) -> Answer:
    """Return an answer whose parts are all of their kind.

    Args:
        answer: As it was read.
        choices: Those that it has to give probabilities of.

    Raises:
        TypeError, ValueError: If a part is of another type, not finite or outside of its bounds.
    """
    for name in ("text", "finish", "probability_kind", "reference"):
        value = getattr(answer, name)
        if not isinstance(value, str | None):
            raise TypeError(f"a text as {name}, expected; got {str(value)[:60]!r} ({type(value).__name__})")
        (value or "").encode()  # no half of a surrogate pair, which could be neither sent nor stored
    if answer.finish not in _FINISHES:
        raise ValueError(f"another way to finish: {answer.finish!r}")
    for name in ("tokens_in", "tokens_cached", "tokens_out", "turns_dropped"):
        count(getattr(answer, name))
    if answer.tokens_cached > answer.tokens_in:
        raise ValueError(f"{answer.tokens_cached} tokens cached among {answer.tokens_in} that were read")
    if not (_is_finite(answer.cost) and answer.cost >= 0):
        raise ValueError(f"a price of at least 0, expected; got {answer.cost}")
    _check_probabilities(answer, choices)
    for text, tokens in (answer.tokens or {}).items():
        numbers = all(type(number) is int for number in (*tokens.prompt, *tokens.said))
        if not isinstance(text, str) or not numbers or not all(map(is_log_prob, tokens.log_probs)):
            raise ValueError("tokens as whole numbers with finite log-probabilities, expected")
    return answer


def _check_probabilities(answer: Answer, choices: Sequence[str] | None) -> None:
    if choices is not None and (answer.probabilities is None or list(answer.probabilities) != list(dict.fromkeys(choices))):
        raise ValueError("a probability of each choice, expected")
    if answer.probabilities is None:
        if answer.text is None:
            raise ValueError("neither a text nor probabilities")
        return
    values = list(answer.probabilities.values())
    if not all(_is_finite(value) and 0 <= value <= 1 + 1e-6 for value in values) or abs(sum(values) - 1) > 1e-6:
        raise ValueError("probabilities that sum to 1, expected")


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
