"""`WithDeadline`: uvicorn's HTTP protocol, with a time within which a request must have come. uvicorn itself waits for ever."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"


class WithDeadline(H11Protocol):
    """Ends a connection unless its request, headers and body, is complete in time.

    The time begins with the connection, and for a later request with its first byte. It does not hold for a websocket, which
    uvicorn hands to another protocol.
    """

    seconds: ClassVar[float]
    """The time."""
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait_or_rest()

    def data_received(self, data: bytes) -> None:
        """Take bytes, and see whether they complete the request."""
        super().data_received(data)
        self._wait_or_rest()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._rest()
        super().connection_lost(exc)

    def _wait_or_rest(self) -> None:
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY) or self.transport.get_protocol() is not self:
            self._rest()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.seconds, self._end)

    def _rest(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end(self) -> None:
        """Say why, unless an answer has begun, and end the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            detail = b'{"detail": "request: expected all of it within %g seconds; got a part. Connect anew."}' % self.seconds
            self.transport.write(_TOO_LATE % (len(detail), detail))
        self.transport.close()


def with_deadline(seconds: float) -> type[WithDeadline]:
    """Return the protocol with a time, as uvicorn's ``http`` takes it."""
    return type("WithDeadline", (WithDeadline,), {"seconds": seconds})
