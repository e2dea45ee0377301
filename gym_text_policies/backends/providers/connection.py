"""`Connection`: a server with OpenAI's protocol."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from gym_text.errors import UsageError
from gym_text_policies.backends.providers.errors import CallError


class Connection:
    """A server, asked through OpenAI's client.

    Args:
        client: The client.
        model: The model's name.
    """

    def __init__(self, client: Any, model: str) -> None:
        self._client = client
        self._root = str(client.base_url).rstrip("/").removesuffix("/v1")
        self.model = model

    def get(self, path: str) -> Any:
        """Return the answer to a GET of a path such as ``/v1/models``."""
        answer = self._client.get(self._url(path), cast_to=object)
        check_no_error(answer)
        return answer

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Return the answer to a POST of JSON."""
        answer = self._client.post(self._url(path), cast_to=object, body=body)
        check_no_error(answer)
        return answer

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def _url(self, path: str) -> str:
        """Return the URL of a path. A path of OpenAI's protocol begins with ``/v1``, which the client's address replaces."""
        return path.removeprefix("/v1") if path.startswith("/v1/") else self._root + path


def check_no_error(answer: Any) -> None:
    """Raise `CallError`, with the server's words, if an answer with HTTP status 200 is an error."""
    if not isinstance(answer, dict) or not answer.get("error"):
        return
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
