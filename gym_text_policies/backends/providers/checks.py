"""Checks of what a provider, a cache or a user's own model says, so that no wrong figure gets into a record."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from gym_text.errors import UsageError
from gym_text_policies.backends.base import Answer

MOST_TOKENS = 10**9
"""Greatest number of tokens of one answer that is plausible."""
_FINISHES = (None, "stop", "length", "refusal", "content_filter")
_ROUNDING = 0.01
"""Nats above 0 that rounding may explain."""


def count(value: Any) -> int:
    """Return a number of tokens as a provider gives it; None is 0.

    Raises:
        ValueError: If it is not a whole number from 0 to a billion.
    """
    if value is None:
        return 0
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value != int(value) or not 0 <= value <= MOST_TOKENS:
        raise ValueError(f"a number of tokens from 0 to {MOST_TOKENS} is expected; got {str(value)[:60]}")
    return int(value)


def is_log_prob(value: Any) -> bool:
    """Return whether a value is a log-probability: finite, and not above 0 by more than rounding."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value <= _ROUNDING


def normalised(choices: Sequence[str], probabilities: Mapping[str, float]) -> dict[str, float]:
    """Return a provider's probabilities of the choices, rescaled to sum to 1.

    Raises:
        KeyError, TypeError, ValueError: If a choice is missing, or the values are not probabilities.
    """
    values = [float(probabilities[choice]) for choice in choices]
    total = sum(values)
    if min(values) < 0 or not 0.9 < total < 1.1:  # also true if the sum is not a number
        raise ValueError(f"probabilities that sum to {total}")
    return {choice: value / total for choice, value in zip(choices, values, strict=True)}


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
    if answer.finish not in _FINISHES:
        raise ValueError(f"an unknown value of finish: {answer.finish!r}")
    for name in ("tokens_in", "tokens_cached", "tokens_out", "tokens_reasoning", "turns_dropped"):
        count(getattr(answer, name))
    if answer.tokens_cached > answer.tokens_in:
        raise ValueError(f"{answer.tokens_cached} tokens cached among {answer.tokens_in} that were read")
    if answer.tokens_reasoning > answer.tokens_out:
        raise ValueError(f"{answer.tokens_reasoning} tokens of a thought among {answer.tokens_out} that were generated")
    if not (_is_finite(answer.cost) and answer.cost >= 0):
        raise ValueError(f"a price of at least 0 is expected; got {answer.cost}")
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
    if not all(_is_finite(value) and 0 <= value <= 1 + 1e-6 for value in values) or abs(sum(values) - 1) > 1e-6:
        raise ValueError("probabilities have to sum to 1")


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def check_name(what: str, value: Any) -> str | None:
    """Return an option that is a text or a path; raise `UsageError` for anything else, and for an empty text. None stays None."""
    if value is None:
        return None
    if not isinstance(value, str | PathLike) or not str(value):
        raise UsageError(f"{what}: expected a text; got {value!r}.")
    return str(value)


def check_amount(what: str, value: Any, most: float = math.inf) -> None:
    """Raise `UsageError` unless a value is a finite number above 0."""
    if not _is_finite(value) or not 0 < value <= most:
        bound = "" if most == math.inf else f" and at most {most:g}"
        raise UsageError(f"{what}: expected a number above 0{bound}; got {value!r}.")


def check_fields(what: str, value: Any) -> dict[str, Any]:
    """Return an option as a dict that can be written as JSON; raise `UsageError` if it cannot. None gives an empty dict."""
    try:
        if not isinstance(value, Mapping | None) or not all(isinstance(name, str) for name in value or ()):
            raise TypeError
        json.dumps(dict(value or {}), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise UsageError(
            f"{what}: expected names and values of JSON, as in {{reasoning_effort: low}}; got another value."
        ) from None
    return dict(value or {})
