"""Checks of what a provider, a cache or a user's own model answers, so that no wrong figure gets into a record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gym_text_policies.backends.base import Answer
from gym_text_policies.files.json_data import is_finite

_MOST_TOKENS = 10**9
"""Greatest number of tokens of one answer that is plausible."""
_FINISHES = (None, "stop", "length", "refusal", "content_filter")
_ROUNDING = 0.01
"""Nats above 0 that rounding may explain."""


def is_log_prob(value: Any) -> bool:
    """Return whether a value is a log-probability: finite, and not above 0 by more than rounding."""
    return is_finite(value) and value <= _ROUNDING


def count(value: Any) -> int:
    """Return a number of tokens as a provider gives it; None is 0.

    Raises:
        ValueError: If it is not a whole number from 0 to a billion.
    """
    if value is None:
        return 0
    if not is_finite(value) or value != int(value) or not 0 <= value <= _MOST_TOKENS:
        raise ValueError(f"a number of tokens from 0 to {_MOST_TOKENS} is expected; got {str(value)[:60]}")
    return int(value)


def check_answer(answer: Answer, choices: Sequence[str] | None = None) -> Answer:
    """Return an answer, after a check of each of its parts.

    Args:
        answer: The answer.
        choices: The choices for which it has to have probabilities; or it names one of them as the most probable one.

    Raises:
        TypeError, ValueError: If a part has another type, is not finite or is out of its bounds.
    """
    for name in ("text", "reasoning", "arguments", "finish", "choice", "probability_kind", "reference"):
        value = getattr(answer, name)
        if not isinstance(value, str | None):
            raise TypeError(f"{name} has to be a text; got {str(value)[:60]!r} ({type(value).__name__})")
        (value or "").encode()  # fails on half of a surrogate pair, which could be neither sent nor stored
    counts = ("tokens_in", "tokens_cached", "tokens_out", "tokens_reasoning", "turns_dropped", "rounds")
    read, cached, said, thought, *_ = (count(getattr(answer, name)) for name in counts)
    for is_right, error in (
        (answer.finish in _FINISHES, f"an unknown value of finish: {answer.finish!r}"),
        (cached <= read, f"{cached} tokens cached among {read} that were read"),
        (thought <= said, f"{thought} tokens of a thought among {said} that were generated"),
        (answer.confidence is None or is_finite(answer.confidence), f"a number as confidence is expected; got {answer.confidence}"),
        (is_finite(answer.cost) and answer.cost >= 0, f"a price of at least 0 is expected; got {answer.cost}"),
    ):
        if not is_right:
            raise ValueError(error)
    _check_probabilities(answer, choices)
    for text, tokens in (answer.tokens or {}).items():
        numbers = all(type(number) is int for number in (*tokens.prompt, *tokens.said))
        if not isinstance(text, str) or not numbers or not all(map(is_log_prob, tokens.log_probs)):
            raise ValueError("tokens have to be whole numbers with finite log-probabilities")
    return answer


def _check_probabilities(answer: Answer, choices: Sequence[str] | None) -> None:
    if answer.choice is not None:
        if answer.choice not in (choices or ()) or answer.probabilities is not None:
            raise ValueError(f"a choice among {choices} without probabilities is expected; got {answer.choice!r}")
        return
    if choices is not None and (answer.probabilities is None or list(answer.probabilities) != list(dict.fromkeys(choices))):
        raise ValueError("a probability of each choice is expected")
    if answer.probabilities is None:
        if answer.text is None:
            raise ValueError("a text or probabilities are expected; got neither")
        return
    values = list(answer.probabilities.values())
    if not all(is_finite(value) and 0 <= value <= 1 + 1e-6 for value in values) or not math.isclose(sum(values), 1, abs_tol=1e-6):
        raise ValueError("probabilities have to sum to 1")
