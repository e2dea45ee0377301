"""`CallError`: a call to a provider that failed, whichever client it went through."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from json import JSONDecodeError

_LONGEST_WAIT = 120.0
"""Most seconds to wait, if a provider says when to come back."""


class CallError(Exception):
    """A call to a provider that failed.

    Args:
        message: What happened, in the provider's words. They are not cut, so that a key in them can be found and hidden.
        retry: Whether the same call may succeed later.
        after: Seconds after which the provider says to come back.
        billed: Whether the call may have cost money.
    """

    refused = False
    """Whether the provider rejected the request itself."""

    def __init__(self, message: str, *, retry: bool = False, after: float | None = None, billed: bool = False) -> None:
        super().__init__(message)
        self.retry = retry and (after is None or after <= _LONGEST_WAIT)
        self.after = after
        self.billed = billed

    @classmethod
    def of_status(cls, status: int, text: str, headers: Mapping[str, str] | None = None) -> CallError:
        """Return the error for an HTTP status other than success."""
        after = None
        with contextlib.suppress(ValueError):  # none, or a date
            after = max(0.0, float((headers or {}).get("retry-after") or ""))
        error = cls(f"HTTP {status}: {text}", retry=status in (408, 409, 425, 429) or status >= 500, after=after)
        error.refused = status in (400, 404, 405, 413, 422)
        return error

    @classmethod
    def timeout(cls, seconds: float) -> CallError:
        """Return the error for an answer that did not come in time."""
        return cls(f"no answer within {seconds:g} s", retry=True, billed=True)

    @classmethod
    def connection(cls, error: BaseException, *, sent: bool) -> CallError:
        """Return the error for a connection that failed, before or after the request was sent."""
        return cls(f"connection failed: {error}", retry=True, billed=sent)

    @classmethod
    def malformed(cls, error: Exception) -> CallError:
        """Return the error for an answer that cannot be read."""
        came = f" in {error.doc.strip()}" if isinstance(error, JSONDecodeError) and error.doc.strip() else ""
        text = f"expected an answer of the documented form; {type(error).__name__}: {error}{came}"
        return cls(text, retry=True, billed=True)
