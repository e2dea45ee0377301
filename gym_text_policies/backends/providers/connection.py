"""`Connection`: a server with OpenAI's protocol, and `CallError`: a call to a provider that failed, whichever its client is."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from json import JSONDecodeError
from typing import Any
from urllib.parse import urlsplit

from gym_text.errors import UsageError

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


class Connection:
    """A server of one model, asked through OpenAI's client."""

    def __init__(self, client: Any, model: str) -> None:
        self._client = client
        self._root = str(client.base_url).rstrip("/").removesuffix("/v1")
        self.model = model

    def get(self, path: str) -> Any:
        """Return the answer to a GET of a path such as ``/v1/models``."""
        return check_no_error(self._client.get(self._url(path), cast_to=object))

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Return the answer to a POST of JSON."""
        return check_no_error(self._client.post(self._url(path), cast_to=object, body=body))

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def _url(self, path: str) -> str:
        """Return the URL of a path. A path of OpenAI's protocol begins with ``/v1``, which the client's address replaces."""
        return path.removeprefix("/v1") if path.startswith("/v1/") else self._root + path


def check_no_error(answer: Any) -> Any:
    """Return an answer with HTTP status 200; raise `CallError`, with the server's words, if it is an error."""
    if not isinstance(answer, dict) or not answer.get("error"):
        return answer
    error = answer["error"]
    status = error.get("code") if isinstance(error, dict) else None
    words = error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)
    if type(status) is int and 400 <= status < 600:
        raise CallError.of_status(status, words)
    raise CallError(f"the server answers with an error: {words}", retry=True, billed=True)


def check_url(url: Any) -> str | None:
    """Return a server's address; raise `UsageError` if `url` is not an address, or could contain a key."""
    if url is None:
        return None
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # brackets, or a port that is not a number
        known = False
    if not known:  # an address with a user or a query may contain a key, so it is not shown
        shown = "another text" if {"@", "?"} & set(str(url)) else repr(url)
        raise UsageError(f"base_url: expected an address such as http://127.0.0.1:8000/v1; got {shown}.")
    if parts.username or parts.password or parts.query:
        raise UsageError("base_url: expected an address without user, password and query; keys come from the environment alone.")
    return str(url)
