"""`Connection`: a server with OpenAI's protocol, and `Servers`: several servers of one model."""

from __future__ import annotations

import json
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

from gym_text.errors import UsageError
from gym_text_policies.backends.providers.errors import CallError

_PAUSE = 30.0
"""Seconds for which a failed server is left out, if it does not say when to come back."""
T = TypeVar("T")


class Connection:
    """A server, asked through OpenAI's client.

    Args:
        client: The client.
        model: The model's name.
        timeout: Seconds within which a whole answer has to arrive.
    """

    def __init__(self, client: Any, model: str, timeout: float) -> None:
        self._client = client
        self._root = str(client.base_url).rstrip("/").removesuffix("/v1")
        self._timeout = timeout
        self.model = model
        weakref.finalize(self, client.close)

    def get(self, path: str) -> Any:
        """Return the answer to a GET of a path such as ``/v1/models``."""
        return self._called(lambda: self._client.get(self._url(path), cast_to=object))

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Return the answer to a POST of JSON."""
        return self._called(lambda: self._client.post(self._url(path), cast_to=object, body=body))

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def _url(self, path: str) -> str:
        """Return the URL of a path. A path of OpenAI's protocol begins with ``/v1``, which the client's address replaces."""
        return path.removeprefix("/v1") if path.startswith("/v1/") else self._root + path

    def _called(self, call: Callable[[], Any]) -> Any:
        answer = in_time(self._timeout, call)
        check_no_error(answer)
        return answer


class Servers:
    """Connections to several servers, which take turns. A server that fails is left out for a while; the retry goes to another.

    If all are left out, the one that comes back first is asked.

    Args:
        connections: One for each server.
        clock: Returns the time in seconds.
    """

    def __init__(self, connections: Sequence[Any], clock: Callable[[], float] = time.monotonic) -> None:
        self.connections = list(connections)
        self._clock = clock
        self._back = [0.0] * len(self.connections)  # the time from which each server may be asked again
        self._next = 0
        self._lock = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[Any]:
        """Yield the next connection, and leave its server out for a while if it fails."""
        with self._lock:
            now, size = self._clock(), len(self.connections)
            # the first that is not left out, else the first to come back; `min` takes the first of equal ones
            index = min(((self._next + i) % size for i in range(size)), key=lambda i: max(now, self._back[i]))
            self._next = (index + 1) % size
        try:
            yield self.connections[index]
        except CallError as error:
            if error.elsewhere and size > 1:
                self._leave_out(index, error)
            raise

    def close(self) -> None:
        """Close all connections."""
        for connection in self.connections:
            connection.close()

    def _leave_out(self, index: int, error: CallError) -> None:
        """Leave a server out for a while. If another server is not left out, the request is retried at once."""
        with self._lock:
            now = self._clock()
            self._back[index] = now + (_PAUSE if error.after is None else error.after)
            if min(self._back) <= now:
                error.retry, error.after = True, 0.0


def in_time(seconds: float, call: Callable[[], T]) -> T:
    """Return the result of a call that has to end within a time.

    A client's own timeout limits each wait for bytes, so a server that sends a byte now and then never exceeds that timeout. After
    `seconds` this function raises, while the call goes on in its thread until the connection ends.

    Raises:
        CallError: If the call takes longer.
    """
    result: Future[T] = Future()

    def work() -> None:
        try:
            result.set_result(call())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    try:
        return result.result(seconds)
    except TimeoutError:
        if result.done():
            raise
        raise CallError.timeout(seconds) from None


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
        shown = "another text" if isinstance(url, str) and {"@", "?"} & set(url) else repr(url)
        raise UsageError(f"base_url: expected an address such as http://127.0.0.1:8000/v1; got {shown}.")
    if parts.username or parts.password or parts.query:
        raise UsageError("base_url: expected an address without user, password and query; keys come from the environment alone.")
    return str(url)
