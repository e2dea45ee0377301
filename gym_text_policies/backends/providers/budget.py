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
from gym_text_policies.backends.base import Answer, Request
from gym_text_policies.backends.providers.chat_messages import picture_tokens

_PER_MESSAGE = 16
"""Most tokens that a chat template adds to a message."""
_PER_CHOICE = 8
"""Most tokens that a list adds to a choice."""
_PER_REQUEST = 128
"""Most tokens that a provider adds to a request."""


Prices = Mapping[str, float]
"""US dollars per million tokens of one model: ``input``, ``cached``, ``output`` and ``reasoning``."""


def prices_of(model: str, table: Mapping[str, Mapping[str, float]] | None) -> Prices | None:
    """Return a model's prices from a table, see `RemoteOptions.prices`; None where there is no table."""
    if table is None:
        return None
    row = table.get(model) if isinstance(table, Mapping) else None
    names = {"input", "output"}
    known = isinstance(row, Mapping) and names <= row.keys() <= names | {"cached", "reasoning"}
    if row is None or not known or not all(type(price) in (int, float) and 0 <= price < 1e9 for price in row.values()):
        raise UsageError(
            f"prices: expected {{{model!r}: {{'input': …, 'output': …}}}} in US dollars per million tokens, and 'cached' and "
            f"'reasoning' where they differ; got {table!r}."
        )
    return {"cached": row["input"], "reasoning": row["output"], **row}


def cost_of(answer: Answer, prices: Prices) -> float:
    """Return the price of an answer in US dollars."""
    cost_in = (answer.tokens_in - answer.tokens_cached) * prices["input"] + answer.tokens_cached * prices["cached"]
    cost_out = (answer.tokens_out - answer.tokens_reasoning) * prices["output"]
    return (cost_in + cost_out + answer.tokens_reasoning * prices["reasoning"]) / 1e6


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
    """One backend's limits on the spending of a run: most US dollars, and most tokens, in and out together.

    The most that a call can cost is reserved before the call, so that calls in flight cannot pass a limit together. If a call could
    pass a limit, it waits for the calls in flight, which may spend less than is reserved. Each byte of a prompt is reserved as a
    token.
    """

    def __init__(self, prices: Prices | None, max_cost: float | None, max_tokens: int | None) -> None:
        if max_cost is not None and prices is None:
            raise UsageError("max_cost: expected prices, too; without them the cost of a call is not known.")
        self.spent = Spending()
        self.is_limited = max_cost is not None or max_tokens is not None
        self._prices, self._max_cost, self._max_tokens = prices, max_cost, max_tokens
        self._run = _RUN.get() or RunSpending()

    def reserve(self, request: Request, sent: Any, most: int) -> Spending:
        """Reserve what a request may spend, of which `sent` is sent as JSON, and `most` tokens may be generated; return that.

        Raises:
            BudgetError: If the call could pass a limit and no call is in flight.
        """
        size = len(json.dumps(sent, ensure_ascii=False, default=str).encode(errors="replace")) + picture_tokens(request.picture)
        size += _PER_REQUEST + _PER_MESSAGE * len(request.messages) + _PER_CHOICE * len(request.choices or ())
        prices, cost = self._prices, 0.0
        if prices:  # whichever tokens are cached, or belong to a thought
            cost = (size * max(prices["input"], prices["cached"]) + most * max(prices["output"], prices["reasoning"])) / 1e6
        bound = Spending(size + most, cost)
        with self._run.changed:
            while passed := self._passed(bound):
                if not self._run.in_flight:
                    raise BudgetError(
                        f"{passed}, so the run stops here. Its finished episodes are kept; run it again with a higher "
                        "limit to go on."
                    )
                self._run.changed.wait()
            self._run.in_flight.append(bound)
        return bound

    def settle(self, bound: Spending, spent: Spending) -> None:
        """Replace what was reserved for a call by what it has spent."""
        with self._run.changed:
            self._run.in_flight.remove(bound)
            self._run.spent += spent
            self.spent += spent
            self._run.changed.notify_all()

    def _passed(self, bound: Spending) -> str:
        """Return which limit a call could pass; an empty text if it can pass none."""
        spent = self._run.spent
        most = sum(self._run.in_flight, spent + bound)
        if self._max_tokens is not None and most.tokens > self._max_tokens:
            limit, done, more = f"max_total_tokens={self._max_tokens}", f"{spent.tokens} tokens", f"{bound.tokens}"
        elif self._max_cost is not None and most.cost > self._max_cost:
            limit, done, more = f"max_cost={self._max_cost}", f"{spent.cost:.6g} US dollars", f"{bound.cost:.6g}"
        else:
            return ""
        return f"{limit}: {done} are spent and the next call may take up to {more}"
