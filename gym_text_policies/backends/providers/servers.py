"""`Servers`: several servers with one model, which share the load."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gym_text_policies.backends.providers.errors import CallError

_PAUSE = 30.0
"""Seconds for which a failed server is left out, if it does not say when to come back."""


class Servers:
    """Clients of several servers, which take turns. A server that fails is left out for a while, and the retry goes to another.

    If all are left out, the one that comes back first is asked.

    Args:
        clients: One for each server.
        clock: Returns the time in seconds.
    """

    def __init__(self, clients: Sequence[Any], clock: Callable[[], float] = time.monotonic) -> None:
        self.clients = list(clients)
        self._clock = clock
        self._back = [0.0] * len(self.clients)  # the time from which each server may be asked again
        self._next = 0
        self._lock = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[Any]:
        """Yield the next client, and leave its server out for a while if it fails."""
        index = self._take()
        try:
            yield self.clients[index]
        except CallError as error:
            if error.elsewhere and len(self.clients) > 1:
                self._leave_out(index, error)
            raise

    def close(self) -> None:
        """Close all clients."""
        for client in self.clients:
            client.close()

    def _take(self) -> int:
        with self._lock:
            now, size = self._clock(), len(self.clients)
            order = [(self._next + i) % size for i in range(size)]
            index = next((i for i in order if self._back[i] <= now), None)
            index = min(order, key=self._back.__getitem__) if index is None else index
            self._next = (index + 1) % size
            return index

    def _leave_out(self, index: int, error: CallError) -> None:
        """Leave a server out for a while. If another server is not left out, the request is retried at once."""
        with self._lock:
            now = self._clock()
            self._back[index] = now + (_PAUSE if error.after is None else error.after)
            if min(self._back) <= now:
                error.retry, error.after = True, 0.0
