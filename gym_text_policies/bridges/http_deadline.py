"""`WithDeadline`: uvicorn's HTTP protocol with a time limit for receiving a request. uvicorn itself has none."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"


class WithDeadline(H11Protocol):
    """Ends a connection whose request, headers and body, is not complete within `seconds`.

    The time of the first request begins with the connection, that of a later request with its first byte. Websockets have no such
    limit: uvicorn hands them to another protocol.
    """

    seconds: ClassVar[float]
    """Most seconds until a request is complete."""
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the timer of the first request."""
        super().connection_made(transport)
        self._update_timer()

    def data_received(self, data: bytes) -> None:
        """Take bytes. Stop the timer if they complete the request, otherwise start one if none runs."""
        super().data_received(data)
        self._update_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def _update_timer(self) -> None:
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY) or self.transport.get_protocol() is not self:
            self._stop_timer()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.seconds, self._end)

    def _stop_timer(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end(self) -> None:
        """End the connection. If no response has begun, send the status 408 and the reason first."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            detail = b'{"detail": "request: expected all of it within %g seconds; got a part. Connect anew."}' % self.seconds
            self.transport.write(_TOO_LATE % (len(detail), detail))
        self.transport.close()


def with_deadline(seconds: float) -> type[WithDeadline]:
    """Return the protocol with this time limit, for uvicorn's setting ``http``."""
    return type("WithDeadline", (WithDeadline,), {"seconds": seconds})
