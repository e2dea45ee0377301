"""Java's threads: JPype makes one for each Python thread that calls Java, and would keep it when that thread has ended.

A process that lets each game play in a thread of its own would fill with them. Python drops what a thread keeps for itself when
the thread ends, in that very thread: the moment to take it from Java.
"""

from __future__ import annotations

import os
import threading
from typing import Any

_own = threading.local()


class _Attachment:
    """Java's half of the Python thread in which this was made. It ends with this object."""

    def __init__(self) -> None:
        self._made_in = os.getpid(), threading.get_ident()

    def __del__(self) -> None:
        if self._made_in == (os.getpid(), threading.get_ident()):  # not a forked child's, nor the main thread's at exit
            detach()


def detach() -> None:
    """Take the present thread from Java, which takes it back by itself, as a daemon, at the next call."""
    import jpype

    if jpype.isJVMStarted():
        java_thread: Any = jpype.JClass("java.lang.Thread")
        java_thread.detach()


def detach_at_end() -> None:
    """Take the present thread from Java when it ends. To be called where a thread calls Java, or lets go of what is Java's."""
    if not hasattr(_own, "attachment"):
        _own.attachment = None if threading.current_thread() is threading.main_thread() else _Attachment()
