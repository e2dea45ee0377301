"""The limits of a served environment, the middleware that enforces them, and the server.

OpenEnv limits the number of sessions, and uvicorn the bytes of a message. `LimitsMiddleware` answers malformed messages, closes
idle sessions, and limits the bytes of HTTP bodies. `OriginMiddleware` refuses what web pages send. `WithDeadline` limits
the time that a request may take to arrive.
"""

from __future__ import annotations

import asyncio
import functools
import json
import socket
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from gym_text.errors import UsageError, check_int, import_extra


@dataclass(frozen=True)
class Limits:
    """What a server allows its clients."""

    max_sessions: int = 64
    """Most sessions at once; one more is refused with ``CAPACITY_REACHED``."""
    max_bytes: int = 65_536
    """Most bytes of a message or of an HTTP body. A longer message ends its connection with code 1009, a longer body gets 413."""
    idle_seconds: float = 600.0
    """A session whose client sends nothing for this many seconds is closed."""
    request_seconds: float = 30.0
    """Most seconds until an HTTP request, headers and body, is complete, and between two. Otherwise its connection is closed."""

    def __post_init__(self) -> None:
        check_int("max_sessions", self.max_sessions, 1, 10_000)
        check_int("max_bytes", self.max_bytes, 256, 2**30)
        for name in ("idle_seconds", "request_seconds"):
            if not 0 < getattr(self, name) < float("inf"):
                raise UsageError(f"{name}: expected a number of seconds above 0; got {getattr(self, name)!r}.")


Message = MutableMapping[str, Any]
"""A message of ASGI."""
EXAMPLES: dict[str, str] = {
    "reset": '{"type": "reset", "data": {"seed": 0}}',
    "step": '{"type": "step", "data": {"action": "look around"}}',
    "state": '{"type": "state"}',
    "close": '{"type": "close"}',
    "mcp": '{"type": "mcp", "data": {…}}, as JSON-RPC',
}
"""An example of a message, by its type."""


def message_error(raw: str | None) -> tuple[str, str] | None:
    """Return OpenEnv's error code and what is wrong with a message to ``/ws``, or None if the message is valid.

    Args:
        raw: The message; None stands for a binary frame.
    """
    if raw is None:
        return "INVALID_JSON", f"message: expected a text frame with JSON, as in {EXAMPLES['step']}; got a binary frame."
    try:
        message = json.loads(raw)
    except (ValueError, RecursionError) as error:
        why = str(error) or "too deep"
        return "INVALID_JSON", f"message: expected JSON, as in {EXAMPLES['step']}; got {_shown(raw)} ({why[:80]})."
    kind = message.get("type") if isinstance(message, dict) else None
    if not isinstance(kind, str) or kind not in EXAMPLES:
        code = "UNKNOWN_TYPE" if isinstance(message, dict) else "VALIDATION_ERROR"
        expected = ", ".join(map(repr, EXAMPLES))
        return code, f"message: expected an object whose type is one of {expected}, as in {EXAMPLES['step']}; got {_shown(raw)}."
    data = message.get("data", {})
    allowed = {"type"} if kind in ("state", "close") else {"type", "data"}
    fine = message.keys() <= allowed and isinstance(data, dict)
    if fine and kind == "step":
        fine = data.keys() <= {"action", "metadata"} and isinstance(data.get("action"), str)
    if not fine:
        return "VALIDATION_ERROR", f"{kind}: expected {EXAMPLES[kind]}; got {_shown(raw)}."
    try:
        json.dumps(data, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return "VALIDATION_ERROR", f"{kind}: expected few levels, and no half of a surrogate pair; got {_shown(raw)}."
    return None


def _shown(raw: str) -> str:
    return repr(raw if len(raw) <= 80 else f"{raw[:80]}…")


class LimitsMiddleware:
    """ASGI middleware for OpenEnv's application. It answers malformed messages, closes idle sessions, and limits HTTP bodies."""

    def __init__(self, app: Callable[..., Any], limits: Limits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Message, receive: Callable[[], Any], send: Callable[[Message], Any]) -> None:
        """Serve one connection or request."""
        if scope["type"] == "websocket":
            receive = functools.partial(self._receive, scope["path"], receive, send)
        elif scope["type"] == "http" and (refusal := self._refuse(dict(scope["headers"]))) is not None:
            await _refuse(scope, send, *refusal)
            return
        await self._app(scope, receive, send)

    def _refuse(self, headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        """Return the status and the answer if a request's body is too long or has no content-length, otherwise None."""
        if b"transfer-encoding" in headers:
            return 411, "body: expected a header content-length; got a body in chunks."
        length = int(headers.get(b"content-length", b"0"))
        if length > self._limits.max_bytes:
            return 413, f"body: expected {self._limits.max_bytes} bytes at most; got {length}."
        return None

    async def _receive(self, path: str, receive: Callable[[], Any], send: Callable[[Message], Any]) -> Message:
        """Return the client's next valid message. Tell a client that is silent for too long, and return its disconnection."""
        while True:
            try:
                async with asyncio.timeout(self._limits.idle_seconds):
                    message: Message = await receive()
            except TimeoutError:
                idle = f"session: expected a message within {self._limits.idle_seconds:g} seconds; got none. Connect anew."
                await send(_error("SESSION_ERROR", idle))
                return {"type": "websocket.disconnect", "code": 1001}
            error = message_error(message.get("text")) if path == "/ws" and message["type"] == "websocket.receive" else None
            if error is None:
                return message
            await send(_error(*error))


class OriginMiddleware:
    """ASGI middleware that refuses requests and WebSockets with an ``Origin``, which browsers send and clients do not.

    So no web page can play, not even one whose name was made to lead to this server (DNS rebinding): browsers send an ``Origin``
    with every POST, DELETE and WebSocket. Such a page can read what a GET tells: the server's health and its schemas. A page of
    this machine can play, if ``Origin`` and ``Host`` are both ``localhost`` or a loopback address.
    """

    def __init__(self, app: Callable[..., Any]) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Callable[[], Any], send: Callable[[Message], Any]) -> None:
        """Serve one connection or request."""
        headers = dict(scope.get("headers", ()))
        origin = headers.get(b"origin")
        if origin is None or (_is_loopback(origin) and _is_loopback(b"//" + headers.get(b"host", b""))):
            await self._app(scope, receive, send)
        else:
            page = _shown(origin.decode("latin-1"))
            await _refuse(scope, send, 403, f"origin: expected a client that is no web page, or one of this machine; got {page}.")


def _is_loopback(url: bytes) -> bool:
    try:
        name = urlsplit(url.decode("latin-1")).hostname or ""
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


async def _refuse(scope: Message, send: Callable[[Message], Any], status: int, detail: str) -> None:
    """Answer a request, or the beginning of a WebSocket, by a status and what is wrong."""
    kind = "websocket.http" if scope["type"] == "websocket" else "http"
    headers = [(b"content-type", b"application/json")]
    await send({"type": f"{kind}.response.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.response.body", "body": json.dumps({"detail": detail}).encode()})


def _error(code: str, message: str) -> Message:
    """Return an error in the form in which OpenEnv sends it."""
    return {"type": "websocket.send", "text": json.dumps({"type": "error", "data": {"message": message, "code": code}})}


def listen(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """Return a socket that listens; port 0 takes a free one.

    Raises:
        OSError: If the port is taken, or the host is not an address of this machine.
    """
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=1024)


def server_of(app: Any) -> Any:
    """Return uvicorn's server of an application; ``app.state.limits`` are its `Limits`.

    The server's ``run(sockets=[listen()])`` blocks until Ctrl-C or SIGTERM.
    """
    uvicorn = import_extra("uvicorn", "openenv")
    from gym_text_policies.bridges.http_deadline import with_deadline

    limits: Limits = app.state.limits
    config = uvicorn.Config(
        app,
        http=with_deadline(limits.request_seconds),
        ws_max_size=limits.max_bytes,
        ws_per_message_deflate=False,
        limit_concurrency=2 * limits.max_sessions + 64,  # connections in all; more HTTP requests get 503
        timeout_keep_alive=limits.request_seconds,  # uvicorn's 5 s are httpx's too: each could end what the other is just using
        timeout_graceful_shutdown=5,
        access_log=False,
        log_level="warning",
    )
    return uvicorn.Server(config)


@contextmanager
def serving(app: Any, *, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Serve an application in a thread of this process, and yield its URL. The server ends with the ``with`` block."""
    with listen(host, port) as listener:
        server = server_of(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="openenv-server")
        thread.start()
        try:
            yield f"http://{host}:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
