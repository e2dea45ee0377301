"""Java's handlers of the signals that it lives by.

Compiled Java code finds null pointers, and stops for the garbage collector, by SIGSEGV and its like. A library that installs
handlers of its own while the JVM runs (Ray and `faulthandler` do) would turn these into a crash of the process.
"""

from __future__ import annotations

import ctypes
import signal

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL") if hasattr(signal, name))
_SIZE = 512
"""Bytes that hold the system's ``struct sigaction``, and more. It begins with the handler's address; of what follows the C
library leaves a part unset."""
_ADDRESS = ctypes.sizeof(ctypes.c_void_p)


class SignalHandlers:
    """The handlers at the time when this is made."""

    def __init__(self) -> None:
        self._sigaction = getattr(ctypes.PyDLL(None), "sigaction", None)  # one thread at a time: they share the room
        self._room = ctypes.create_string_buffer(_SIZE)
        self._records = [self._read(number) for number in _SIGNALS]

    @property
    def addresses(self) -> list[bytes]:
        """Where the handlers are."""
        return [record[:_ADDRESS] for record in self._records]

    def restore(self) -> None:
        """Put those back that have been replaced; half a microsecond where none has, so that each step can do it."""
        if self._sigaction is None:
            return
        self._sigaction(_SIGNALS[0], None, self._room)
        if self._room.raw[:_ADDRESS] == self._records[0][:_ADDRESS]:
            return
        for number, record in zip(_SIGNALS, self._records, strict=True):
            self._sigaction(number, record, None)

    def _read(self, number: int) -> bytes:
        if self._sigaction is not None:
            self._sigaction(number, None, self._room)
        return self._room.raw
