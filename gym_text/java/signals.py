"""The JVM's signal handlers, kept in force.

Compiled Java code uses SIGSEGV and similar signals to find null pointers and to stop for the garbage collector. A library that
installs its own handlers while the JVM runs (Ray and `faulthandler` do) would turn these signals into a crash of the process.
"""

from __future__ import annotations

import ctypes
import signal
import sys

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL") if hasattr(signal, name))
_SIZE = 512
"""Bytes of a buffer that is larger than the system's ``struct sigaction``. The struct begins with the handler's address; the C
library leaves a part of the rest unset."""
_ADDRESS = ctypes.sizeof(ctypes.c_void_p)


class SignalHandlers:
    """The signal handlers that were in force when this object was made."""

    def __init__(self) -> None:
        # PyDLL keeps the interpreter's lock, as all threads share the buffer
        self._sigaction = getattr(ctypes.PyDLL(None), "sigaction", None)
        self._buffer = ctypes.create_string_buffer(_SIZE)
        self._records = [self._read(number) for number in _SIGNALS]
        self._address = ctypes.c_void_p.from_buffer(self._buffer)
        self._first = int.from_bytes(self._records[0][:_ADDRESS], sys.byteorder) or None

    @property
    def addresses(self) -> list[bytes]:
        """The addresses of the handlers."""
        return [record[:_ADDRESS] for record in self._records]

    def restore(self) -> None:
        """Restore handlers that were replaced. This takes half a microsecond if none was, so each step can call it."""
        if self._sigaction is None:
            return
        self._sigaction(_SIGNALS[0], None, self._buffer)
        if self._address.value == self._first:
            return
        for number, record in zip(_SIGNALS, self._records, strict=True):
            self._sigaction(number, record, None)

    def _read(self, number: int) -> bytes:
        if self._sigaction is not None:
            self._sigaction(number, None, self._buffer)
        return self._buffer.raw
