"""Money and tokens: the price of an answer, and a `Budget` that stops a run before it passes a limit."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from gym_text.errors import BudgetError, UsageError
from gym_text_policies.backends.base import Answer, Request

_PER_MESSAGE = 16
"""Tokens that a chat template puts around a message, at most."""
_PER_CHOICE = 8
"""Tokens around a choice in a list."""
_PER_REQUEST = 128
"""Tokens that a provider adds to any request."""


@dataclass(frozen=True)
class Prices:
    """US dollars per million tokens of one model."""

    input: float = 0.0
    cached: float = 0.0
    output: float = 0.0

    @classmethod
    def of(cls, model: str, table: Mapping[str, Mapping[str, float]] | None) -> Prices | None:
        """Return a model's prices from a table; None where there is no table.

        Args:
            model: The model.
            table: Model -> ``input``, ``output`` and, if cached input costs less, ``cached``.

        Raises:
            UsageError: If the model is not in the table, or its entry is not of this form.
        """
        if table is None:
            return None
        row = table.get(model) if isinstance(table, Mapping) else None
        if (
            not isinstance(row, Mapping)
            or not {"input", "output"} <= row.keys() <= {"input", "cached", "output"}
            or not all(isinstance(price, int | float) and price >= 0 for price in row.values())
        ):
            raise UsageError(
                f"prices: expected {{{model!r}: {{'input': …, 'cached': … (if it differs), 'output': …}}}} in US dollars "
                f"per million tokens; got {table!r}."
            )
        return cls(**{"cached": row["input"], **row})

    def cost(self, answer: Answer) -> float:
        """Return the price of an answer in US dollars."""
        new = answer.tokens_in - answer.tokens_cached
        return (new * self.input + answer.tokens_cached * self.cached + answer.tokens_out * self.output) / 1e6


@dataclass(frozen=True)
class Spending:
    """Tokens, in and out, and US dollars."""

    tokens: int = 0
    cost: float = 0.0

    def plus(self, other: Spending, sign: int = 1) -> Spending:
        """Return the sum, or with `sign` -1 the difference."""
        return Spending(self.tokens + sign * other.tokens, self.cost + sign * other.cost)


class Budget:
    """Limits on what all calls of one backend spend.

    Before a call its upper bound is reserved, so that calls in flight cannot pass a limit together. A call that could pass a limit
    waits while others are in flight, as they may spend less than they reserved. The bound counts each byte of a prompt as a token.

    Args:
        prices: Of the model.
        max_cost: Most US dollars.
        max_tokens: Most tokens, in and out together.
    """

    def __init__(self, prices: Prices | None = None, max_cost: float | None = None, max_tokens: int | None = None) -> None:
        if max_cost is not None and prices is None:
            raise UsageError("max_cost: expected prices beside it, without which nothing is known to cost anything.")
        self.spent = Spending()
        self._prices = prices
        self._max = (max_tokens, max_cost)
        self._reserved = Spending()
        self._calls = 0
        self._changed = threading.Condition()

    def bound(self, request: Request) -> Spending:
        """Return the most that a call may spend."""
        parts = [*request.messages, *(request.choices or ()), dict(request.schema or {})]
        around = _PER_REQUEST + _PER_MESSAGE * len(request.messages) + _PER_CHOICE * len(request.choices or ())
        tokens_in = len(json.dumps(parts, ensure_ascii=False).encode()) + around
        most = Answer(tokens_in=tokens_in, tokens_out=request.max_tokens)
        return Spending(tokens_in + request.max_tokens, self._prices.cost(most) if self._prices else 0.0)

    def reserve(self, bound: Spending) -> None:
        """Reserve what a call may spend; wait for calls in flight where that could pass a limit.

        Raises:
            BudgetError: If it could pass a limit and no call is in flight.
        """
        with self._changed:
            while passed := self._passed(bound):
                if not self._calls:
                    raise BudgetError(passed)
                self._changed.wait()
            self._reserved = self._reserved.plus(bound)
            self._calls += 1

    def settle(self, bound: Spending, spent: Spending) -> None:
        """Replace a call's reservation by what it spent."""
        with self._changed:
            self._calls -= 1
            self._reserved = self._reserved.plus(bound, -1) if self._calls else Spending()
            self.spent = self.spent.plus(spent)
            self._changed.notify_all()

    def _passed(self, bound: Spending) -> str:
        """Return an error message if `bound` could pass a limit, else an empty string."""
        most = self.spent.plus(self._reserved).plus(bound)
        rows = [
            ("max_total_tokens", self._max[0], most.tokens, self.spent.tokens, bound.tokens, "d", "tokens"),
            ("max_cost", self._max[1], most.cost, self.spent.cost, bound.cost, ".6g", "US dollars"),
        ]
        for name, limit, total, spent, next_call, form, unit in rows:
            if limit is not None and total > limit:
                return (
                    f"{name}={limit}: {spent:{form}} {unit} are spent and the next call may take up to {next_call:{form}}, so the "
                    "run stops here. Its finished episodes are kept; run it again with a higher limit to go on."
                )
        return ""
