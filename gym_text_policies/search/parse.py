"""Read parameters from a model's answer: from JSON, or the numbers among its words."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence

from gym_text_policies.policies.parametric import Parameter
from gym_text_policies.policies.parsing import numbers_in, objects_in
from gym_text_policies.search.evaluations import Evaluation


class RejectedError(Exception):
    """An answer that cannot be used. The message tells the model why."""


def parse_parameters(answer: str, parameters: Sequence[Parameter], *, finish: str | None = None) -> tuple[float, ...]:
    """Return the parameters that an answer proposes.

    They are read from JSON, else they are all numbers of the answer, if there are as many as parameters.

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
    values = _of_json(answer, [parameter.name for parameter in parameters]) or numbers_in(answer)
    if len(values) != len(parameters):
        raise RejectedError(f"There have to be {len(parameters)} numbers, one for each parameter; found {len(values)}.")
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
    for evaluation in history:
        if _digits(evaluation.parameters) == _digits(values):
            raise RejectedError(f"These were tried before and gave {evaluation.value:.2f}; propose others.")
    if any(_digits(other) == _digits(values) for other in others):
        raise RejectedError("These are proposed already; propose others.")


def _digits(numbers: Sequence[float]) -> list[str]:
    return [f"{number:.5g}" for number in numbers]


def reason_of(answer: str) -> str | None:
    """Return the reason that an answer gives: the field ``reason`` of its JSON, otherwise the whole answer."""
    for value in objects_in(answer):
        if isinstance(value.get("reason"), str):
            return str(value["reason"]).strip() or None
    return answer.strip() or None


def _of_json(answer: str, names: Sequence[str]) -> list[float]:
    """Return the numbers in the last JSON object that has all of them; none if there is no such object."""
    for value in reversed(objects_in(answer)):
        folded = {key.lower(): part for key, part in value.items() if not isinstance(part, bool)}
        with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
            return [float(folded[name.lower()]) for name in names]
    return []
