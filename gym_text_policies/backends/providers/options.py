"""`RemoteOptions`: the options that all providers have, and checks of options."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

from gym_text.errors import UsageError, check_int
from gym_text_policies.files.json_data import is_finite


@dataclass(frozen=True)
class RemoteOptions:
    """How a provider is called, and what identifies its server in records. No answer depends on these."""

    timeout: float = 60.0
    """Most seconds without a byte from the server."""
    retries: int = 5
    """Most further tries after a timeout, a lost connection, HTTP status 408, 409, 425, 429 or 5xx, or an unreadable answer."""
    cache: str | None = None
    """Folder for answers, so that no request is paid for twice. Requests that sample without a seed are not cached."""
    prices: Mapping[str, Mapping[str, float]] | None = None
    """US dollars per million tokens, by model: ``input``, ``output``, and where they differ ``cached`` (input from the provider's
    cache) and ``reasoning`` (tokens of thoughts)."""
    max_cost: float | None = None
    """Most US dollars that all models of the run may spend together. The run stops before it spends more. Needs `prices`."""
    max_total_tokens: int | None = None
    """Most tokens, in and out, that all models of the run may spend together. The run stops before it spends more."""
    server: str | None = None
    """A name for the server, which replaces its address in the identity of stored episodes and answers. So they are found again
    when the server has another address."""

    def __post_init__(self) -> None:
        check_int("retries", self.retries, 0, 100)
        for name, most in {"timeout": 1e6, "max_cost": math.inf, "max_total_tokens": math.inf}.items():
            value = getattr(self, name)
            if (value is not None or name == "timeout") and not (is_finite(value) and 0 < value <= most):
                raise UsageError(f"{name}: expected a number above 0; got {value!r}.")
        for name in ("cache", "server"):
            check_name(name, getattr(self, name))


SHARED_OPTIONS = tuple(field.name for field in dataclasses.fields(RemoteOptions))
"""Names of the options that all providers take."""


def check_name(what: str, value: Any) -> str | None:
    """Return an option that is a text or a path; raise `UsageError` for anything else, and for an empty text. None stays None."""
    if value is None:
        return None
    if not isinstance(value, str | PathLike) or not str(value):
        raise UsageError(f"{what}: expected a text; got {value!r}.")
    return str(value)


def check_fields(what: str, value: Any) -> dict[str, Any]:
    """Return an option as a dict that can be written as JSON; raise `UsageError` if it cannot. None gives an empty dict."""
    try:
        fields = dict(value or {})
        json.dumps(fields, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise UsageError(
            f"{what}: expected names and values of JSON, as in {{reasoning_effort: low}}; got another value."
        ) from None
    return fields
