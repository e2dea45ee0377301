"""Money and tokens: the price of an answer, and a `Budget` that stops a run before it passes a limit."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from gym_text.errors import BudgetError, UsageError
from gym_text_policies.backends.base import Answer

_PER_MESSAGE = 16
"""Most tokens that a chat template adds to a message."""
_PER_CHOICE = 8
"""Most tokens that a list adds to a choice."""
_PER_REQUEST = 128
"""Most tokens that a provider adds to a request."""


@dataclass(frozen=True)
class Prices:
    """US dollars per million tokens of one model."""

    input: float = 0.0
    cached: float = 0.0
    output: float = 0.0
    reasoning: float = 0.0

    @classmethod
    def of(cls, model: str, table: Mapping[str, Mapping[str, float]] | None) -> Prices | None:
        """Return a model's prices from a table; None where there is no table.

        Args:
            model: The model.
            table: Model -> ``input``, ``output``, and where they differ ``cached`` (input) and ``reasoning`` (output).

        Raises:
            UsageError: If the model is not in the table, or its entry is not of this form.
        """
        if table is None:
            return None
        row = table.get(model) if isinstance(table, Mapping) else None
        if (
            not isinstance(row, Mapping)
            or not {"input", "output"} <= row.keys() <= {"input", "cached", "output", "reasoning"}
            or not all(type(price) in (int, float) and 0 <= price < 1e9 for price in row.values())
        ):
            raise UsageError(
                f"prices: expected {{{model!r}: {{'input': …, 'output': …}}}} in US dollars per million tokens, and 'cached' and "
                f"'reasoning' where they differ; got {table!r}."
            )
        return cls(**{"cached": row["input"], "reasoning": row["output"], **row})

    def cost(self, answer: Answer) -> float:
        """Return the price of an answer in US dollars."""
        new = answer.tokens_in - answer.tokens_cached
        said = answer.tokens_out - answer.tokens_reasoning
        cost_in, cost_out = new * self.input + answer.tokens_cached * self.cached, said * self.output
        return (cost_in + cost_out + answer.tokens_reasoning * self.reasoning) / 1e6

    def most(self, tokens_in: int, tokens_out: int) -> float:
        """Return the highest price of so many tokens, whichever of them are cached or belong to a thought."""
        return (tokens_in * max(self.input, self.cached) + tokens_out * max(self.output, self.reasoning)) / 1e6


@dataclass(frozen=True)
class Spending:
    """Tokens, in and out, and US dollars."""

    tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: Spending) -> Spending:
        return Spending(self.tokens + other.tokens, self.cost + other.cost)


class RunSpending:
    """What all models of a run have spent, and the most that each call in flight may spend."""

    def __init__(self) -> None:
        self.spent = Spending()
        self.in_flight: list[Spending] = []
        self.changed = threading.Condition()


_RUN: ContextVar[RunSpending | None] = ContextVar("run", default=None)


@contextmanager
def counted_together(run: RunSpending) -> Iterator[None]:
    """Let the backends that are made in a block count their spending together. A backend that is made elsewhere counts alone."""
    token = _RUN.set(run)
    try:
        yield
    finally:
        _RUN.reset(token)


class Budget:
    """One backend's limits on the spending of a run.

    The most that a call can cost is reserved before the call, so that calls in flight cannot pass a limit together. If a call could
    pass a limit, it waits for the calls in flight, which may spend less than is reserved. Each byte of a prompt is reserved as a
    token.

    Args:
        prices: Of the model.
        max_cost: Most US dollars.
        max_tokens: Most tokens, in and out together.
    """

    def __init__(self, prices: Prices | None = None, max_cost: float | None = None, max_tokens: int | None = None) -> None:
        if max_cost is not None and prices is None:
            raise UsageError("max_cost: expected prices, too; without them the cost of a call is not known.")
        self.spent = Spending()
        self.is_limited = max_cost is not None or max_tokens is not None
        self._prices = prices
        self._max = (max_tokens, max_cost)
        self._run = _RUN.get() or RunSpending()

    def bound(self, sent: Any, messages: int, choices: int, most: int, picture: int = 0) -> Spending:
        """Return the most that a call may spend.

        Args:
            sent: What is sent, as JSON data.
            messages: Number of messages in it.
            choices: Number of choices in it.
            most: Most tokens that may be generated.
            picture: Most tokens of a picture beside it.
        """
        around = _PER_REQUEST + _PER_MESSAGE * messages + _PER_CHOICE * choices
        tokens_in = len(json.dumps(sent, ensure_ascii=False, default=str).encode(errors="replace")) + around + picture
        return Spending(tokens_in + most, self._prices.most(tokens_in, most) if self._prices else 0.0)

    def reserve(self, bound: Spending) -> None:
        """Reserve what a call may spend. If that could pass a limit, wait for the calls in flight.

        Raises:
            BudgetError: If the call could pass a limit and no call is in flight.
        """
        with self._run.changed:
            while passed := self._passed(bound):
                if not self._run.in_flight:
                    raise BudgetError(passed)
                self._run.changed.wait()
            self._run.in_flight.append(bound)

    def settle(self, bound: Spending, spent: Spending) -> None:
        """Replace what was reserved for a call by what it has spent."""
        with self._run.changed:
            self._run.in_flight.remove(bound)
            self._run.spent += spent
            self.spent += spent
            self._run.changed.notify_all()

    def _passed(self, bound: Spending) -> str:
        """Return an error message if `bound` could pass a limit, else an empty string."""
        spent = self._run.spent
        most = sum(self._run.in_flight, spent + bound)
        (max_tokens, max_cost), said = self._max, ""
        if max_tokens is not None and most.tokens > max_tokens:
            said = f"max_total_tokens={max_tokens}: {spent.tokens} tokens are spent and the next call may take up to {bound.tokens}"
        elif max_cost is not None and most.cost > max_cost:
            said = f"max_cost={max_cost}: {spent.cost:.6g} US dollars are spent and the next call may take up to {bound.cost:.6g}"
        rest = ", so the run stops here. Its finished episodes are kept; run it again with a higher limit to go on."
        return said and said + rest
