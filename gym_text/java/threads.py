"""Detaches a Python thread from Java when the thread ends.

JPype attaches each Python thread that calls Java, which makes a Java thread, and does not detach it when the Python thread ends. A
process in which each game plays in a new thread would accumulate Java threads. Python deletes the objects of a `threading.local`
in the thread that ends; therefore their ``__del__`` can detach that thread.
"""

from __future__ import annotations

import os
import threading
from typing import Any

_local = threading.local()


class _Attachment:
    """Detaches the Python thread that made this object from Java, when the object is deleted."""

    def __init__(self) -> None:
        self._made_in = os.getpid(), threading.get_ident()

    def __del__(self) -> None:
        if self._made_in == (os.getpid(), threading.get_ident()):  # neither in a forked child nor in the main thread at exit
            detach()


def detach() -> None:
    """Detach the present thread from Java; the thread's next call of Java attaches it again, as a daemon."""
    import jpype

    if jpype.isJVMStarted():
        java_thread: Any = jpype.JClass("java.lang.Thread")
        java_thread.detach()


def detach_at_end() -> None:
    """Detach the present thread from Java when it ends. Each thread that calls Java or frees a Java object has to call this."""
    if not hasattr(_local, "attachment"):
        _local.attachment = None if threading.current_thread() is threading.main_thread() else _Attachment()
