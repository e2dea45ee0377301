"""Read parameters from a model's answer: JSON, named numbers, numbers in brackets, or bare numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from gym_text_policies.policies.parametric import Parameter
from gym_text_policies.policies.parsing import NUMBER, numbers_in
from gym_text_policies.search.evaluations import Evaluation

_NUMBER = NUMBER.pattern


class RejectedError(Exception):
    """An answer that cannot be used. The message tells the model why."""


def parse_parameters(answer: str, parameters: Sequence[Parameter], *, finish: str | None = None) -> tuple[float, ...]:
    """Return the parameters that an answer proposes.

    These forms are tried in order: JSON; numbers after the parameters' names; the last bracket with as many numbers as parameters;
    all numbers of the answer, if there are as many as parameters.

    >>> pair = [Parameter("p1", "", -6, 6), Parameter("p2", "", -6, 6)]
    >>> parse_parameters("Go further: p1 = 1.5, p2 = -2e-1", pair)
    (1.5, -0.2)
    >>> parse_parameters("I try [3, 4].", pair)
    (3.0, 4.0)

    Args:
        answer: The model's answer.
        parameters: Names and bounds.
        finish: How the answer ended, see `Answer.finish`. If it was cut off, its last word or number is not read.

    Raises:
        RejectedError: If there are too few or too many numbers, or one is out of bounds; or if the model refused.
    """
    if finish in ("refusal", "content_filter"):
        raise RejectedError("That was no answer.")
    if finish == "length":
        answer = re.sub(r"[\w.+-]+$", "", answer)
    answer = answer.replace("\N{MINUS SIGN}", "-")
    names = [parameter.name for parameter in parameters]
    values = _of_json(answer, names) or _named(answer, names) or _bracketed(answer, len(names)) or _bare(answer, len(names))
    outside = [
        f"{p.name} = {value:g} is not from {p.low:g} to {p.greatest:g}"
        for p, value in zip(parameters, values, strict=True)
        if not p.low <= value <= p.greatest
    ]
    if outside:
        raise RejectedError("; ".join(outside[:5]) + ".")
    return tuple(values)


def check_new(values: Sequence[float], history: Sequence[Evaluation], others: Sequence[Sequence[float]] = ()) -> None:
    """Raise `RejectedError` if an evaluation or another proposal has the same parameters, to five significant digits."""
    shown = [f"{value:.5g}" for value in values]
    for evaluation in history:
        if [f"{value:.5g}" for value in evaluation.parameters] == shown:
            raise RejectedError(f"These were tried before and gave {evaluation.value:.2f}; propose others.")
    if any([f"{value:.5g}" for value in other] == shown for other in others):
        raise RejectedError("These are proposed already; propose others.")


def reason_of(answer: str) -> str | None:
    """Return the reason that an answer gives: the field ``reason`` of its JSON, otherwise the whole answer."""
    for value in _objects(answer):
        if isinstance(value.get("reason"), str):
            return str(value["reason"]).strip() or None
    return answer.strip() or None


def _objects(answer: str) -> list[dict[str, Any]]:
    """Return the JSON objects in an answer."""
    decoder, objects, start = json.JSONDecoder(), [], answer.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(answer, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            objects += [value] if isinstance(value, dict) else []
        start = answer.find("{", end)
    return objects


def _of_json(answer: str, names: Sequence[str]) -> list[float]:
    for value in reversed(_objects(answer)):
        inner = value.get("parameters", value)
        if isinstance(inner, list) and len(inner) == len(names):
            inner = dict(zip(names, inner, strict=True))
        if isinstance(inner, dict):
            folded = {str(key).lower(): part for key, part in inner.items()}
            numbers = [_number(folded.get(name.lower())) for name in names]
            if all(number is not None for number in numbers):
                return [number for number in numbers if number is not None]
    return []


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _named(answer: str, names: Sequence[str]) -> list[float]:
    """Return the last number after each name, or an empty list if a name has no number."""
    values = []
    for name in names:
        numbers = re.findall(rf"(?<!\w){re.escape(name)}\W{{0,4}}?\s*(?:=|:|is|to|of)\s*({_NUMBER})", answer, re.IGNORECASE)
        if not numbers:
            return []
        values.append(float(numbers[-1]))
    return values


def _bracketed(answer: str, count: int) -> list[float]:
    for inside in reversed(re.findall(r"[\[(]([^\[\]()]*)[\])]", answer)):
        numbers = [_number(part) for part in inside.split(",")]
        if len(numbers) == count and all(number is not None for number in numbers):
            return [number for number in numbers if number is not None]
    return []


def _bare(answer: str, count: int) -> list[float]:
    numbers = numbers_in(answer)
    if len(numbers) != count:
        raise RejectedError(f"There have to be {count} numbers, one for each parameter; found {len(numbers)}.")
    return numbers
