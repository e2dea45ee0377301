"""`Connection`: a server with OpenAI's protocol. Each request has a limit of bytes and of seconds, whatever the server does."""

from __future__ import annotations

import json
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar
from urllib.parse import urlsplit

from gym_text.errors import UsageError
from gym_text_policies.backends.providers.errors import CallError

MOST_BYTES = 2**24
"""Most bytes of an answer. The tokens of a long prompt with their texts take a few million."""
UNPACKED = {"Accept-Encoding": "identity"}
"""Headers that ask for uncompressed answers: the size of a compressed one is not known before it is unpacked."""
T = TypeVar("T")


class Connection:
    """A server, asked through OpenAI's client.

    Args:
        client: The client, with a hook of `bounded` for its responses.
        model: The model's name.
        timeout: Seconds within which a whole answer has to arrive.
    """

    def __init__(self, client: Any, model: str, timeout: float) -> None:
        self._client = client
        self._root = str(client.base_url).rstrip("/").removesuffix("/v1")
        self._timeout = timeout
        self.model = model
        weakref.finalize(self, client.close)  # a client does not close an http client that it was given

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


def bounded(base: type[Any], seconds: float) -> Callable[[Any], None]:
    """Return a hook that limits the bytes of a response, and the time in which they arrive.

    Args:
        base: The `SyncByteStream` of the client's library.
        seconds: Most seconds from the headers to the last byte.
    """

    class Bounded(base):  # type: ignore[misc]  # the library accepts only streams of its own class
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def __iter__(self) -> Iterator[bytes]:
            size, end = 0, time.monotonic() + seconds
            for part in self._stream:
                size += len(part)
                if size > MOST_BYTES:
                    raise CallError(f"expected an answer of at most {MOST_BYTES:,} bytes; the server sends more", billed=True)
                if time.monotonic() > end:
                    raise CallError.timeout(seconds)
                yield part

        def close(self) -> None:
            self._stream.close()

    def hook(response: Any) -> None:
        if (packed := response.headers.get("content-encoding", "identity").lower()) != "identity":
            raise CallError(f"expected an uncompressed answer, as requested; got a compressed one ({packed})", billed=True)
        response.stream = Bounded(response.stream)

    return hook


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
    example = "such as http://127.0.0.1:8000/v1"
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # brackets, or a port that is not a number; the address may contain a key, so it is not shown
        raise UsageError(f"base_url: expected an address {example}; got one with an invalid host or port.") from None
    if parts.username or parts.password or parts.query:
        raise UsageError("base_url: expected an address without user, password and query; keys come from the environment alone.")
    if not known:
        raise UsageError(f"base_url: expected an address {example}; got {url!r}.")
    return str(url)
