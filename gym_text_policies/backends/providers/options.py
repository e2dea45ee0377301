"""`RemoteOptions`: what all providers take."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from gym_text.errors import check_bool, check_int
from gym_text_policies.backends.providers.checks import check_amount, check_name

_LONGEST = 1e6
"""Most seconds of a timeout."""


@dataclass(frozen=True)
class RemoteOptions:
    """How a provider is called, and how its server is known. No answer depends on these."""

    timeout: float = 60.0
    """Seconds within which an answer has come whole, each time."""
    retries: int = 5
    """Most further tries after a timeout, a lost connection, HTTP 408, 409, 425, 429 or 5xx, or an answer that cannot be read."""
    cache: str | None = None
    """Folder of answers, so that the same request is not paid twice. Requests that sample without a seed are never cached."""
    prices: Mapping[str, Mapping[str, float]] | None = None
    """US dollars per million tokens: model -> ``input``, ``output``, and ``cached`` if that differs from ``input``."""
    max_cost: float | None = None
    """Most US dollars that the run may spend, with all its models together; it stops before it spends more. Needs `prices`."""
    max_total_tokens: int | None = None
    """Most tokens, in and out, that the run may spend, with all its models together; it stops before it spends more."""
    server: str | None = None
    """A name for the server, which identifies stored episodes and answers in place of its address: they are found again when it is
    at another one."""
    told: bool = False
    """Whether what a server tells of its model's weights is part of what identifies stored episodes and answers: those of other
    weights are not found then. The server has to run, also where all is stored."""

    def __post_init__(self) -> None:
        check_int("retries", self.retries, 0, 100)
        check_amount("timeout", self.timeout, _LONGEST)
        for name in ("max_cost", "max_total_tokens"):
            if (value := getattr(self, name)) is not None:
                check_amount(name, value)
        check_bool("told", self.told)
        for name in ("cache", "server"):
            check_name(name, getattr(self, name))


SHARED_OPTIONS = tuple(field.name for field in dataclasses.fields(RemoteOptions))
"""Names of the options that all providers take."""
