"""TextWorldExpress's games: the calls of the engine, and its answers as Python values.

The engine is the Scala program in the ``textworld-express`` wheel (https://github.com/cognitiveailab/TextWorldExpress); it runs
inside this process, in the JVM that `gym_text.java.jvm` starts.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gym_text.errors import EngineError, import_extra
from gym_text.java.jvm import check_java, encodable, engine_jar, enter, full_heap, in_folder, numbers, start, strings

EXTRA = "textworld"
"""The extra of pip that installs the engine and what it needs."""
_BETWEEN_FIELDS, _BETWEEN_ACTIONS = "\x1f", "\x1e"
"""ASCII's separators of units and of records. No text of the games contains them; an action that does may be repeated in the
observation, which is therefore the last field."""
_sorting_lock = threading.Lock()


def check_installed() -> Path:
    """Return the path of the engine's jar, without starting Java; raise `MissingDependencyError` if a package is not installed."""
    check_java(EXTRA)
    return engine_jar("textworld_express", "textworld-express.jar", EXTRA)


@functools.cache
def _entry_class(jar: Path) -> Any:
    """Return the engine's entry class; Java must have been started."""
    jpype = import_extra("jpype", EXTRA)
    jpype.addClassPath(str(jar))
    return jpype.JClass("textworldexpress.runtime.PythonInterface")


@functools.cache
def _readers(jar: Path) -> tuple[Any, Any]:
    """Return Java functions that join the fields of the engine's answers to one string; Java must have been started.

    The first one takes an answer; the second one takes an entry object and an action, which it plays. One call of Java for a step
    takes half as long as the engine's own JSON, which then has to be read, or as a call for each field.
    """
    import jpype

    java = jpype.JClass
    handles: Any = java("java.lang.invoke.MethodHandles")
    lookup, type_of = handles.publicLookup(), java("java.lang.invoke.MethodType").methodType
    string, characters = java("java.lang.String"), java("java.lang.CharSequence")
    answer, entry = java("textworldexpress.struct.StepResult"), _entry_class(jar)
    strings_type, array = jpype.JArray(string), jpype.JArray(characters)
    join = lookup.findStatic(string, "join", type_of(string, characters, array))
    join_actions = join.bindTo(_BETWEEN_ACTIONS).asFixedArity().asType(type_of(string, strings_type))

    def field(name: str, kind: Any, as_string: Any = None) -> Any:
        get = lookup.findVirtual(answer, name, type_of(kind))
        return (handles.filterReturnValue(get, as_string) if as_string else get).asType(type_of(characters, answer))

    def value(name: str, kind: Any) -> Any:
        return field(name, kind, lookup.findStatic(string, "valueOf", type_of(string, kind)))

    fields = [
        *(value("taskSuccess", jpype.JBoolean), value("taskFailure", jpype.JBoolean), value("scoreNormalized", jpype.JDouble)),
        field("validActions", strings_type, join_actions),
        *(field(name, string) for name in ("freeLookStr", "inventoryStr", "observationStr")),
    ]
    join_fields = handles.filterArguments(join.bindTo(_BETWEEN_FIELDS).asCollector(array, len(fields)), 0, *fields)
    read = handles.permuteArguments(join_fields, type_of(string, answer), *[0] * len(fields))
    step_and_read = handles.filterReturnValue(lookup.findVirtual(entry, "step", type_of(answer, string)), read)
    as_function = java("java.lang.invoke.MethodHandleProxies").asInterfaceInstance
    return (
        as_function(java("java.util.function.Function"), read).apply,
        as_function(java("java.util.function.BiFunction"), step_and_read).apply,
    )


@functools.lru_cache(maxsize=64)
def _generator(jar: Path, name: str, parameters: str) -> Any:
    """Return the engine's generator of a game's levels; Java must have been started.

    A generator keeps no state of a level, so all games with the same parameters share one: making it takes 100 times as long as
    beginning a level, as it reads the engine's data files.
    """
    entry = _entry_class(jar)()
    complaint = in_folder(jar.parent, lambda: str(entry.load(name, parameters)))
    if complaint:
        raise EngineError(f"TextWorldExpress: {name}({parameters}) cannot be loaded: {complaint}")
    return entry.gameGenerator()


def _renew_sorting_problem(seed: int, fold: str) -> None:
    """Replace the problem of a sorting level by a copy.

    The engine has 100 problems for each fold, and all games of one problem share its things: what one game takes is missing in the
    others. Therefore a game keeps the things that it got at its start, and the next game of this problem gets copies of them.
    """
    import jpype

    problem_class: Any = jpype.JClass("textworldexpress.preprocessing.SortingProblem")
    problems = getattr(getattr(jpype.JClass("textworldexpress.data.SortingProblemGenerator$"), "MODULE$"), f"{fold}Set")()
    inputs = problem_class.class_.getDeclaredField("inputItems")
    inputs.setAccessible(True)
    index = seed % len(problems)  # as the engine chooses
    problems[index] = problem_class(inputs.get(problems[index]))


class ExpressState(NamedTuple):
    """The engine's answer to a step, or at the start of a game."""

    observation: str
    look: str
    inventory: str
    valid_actions: tuple[str, ...]
    """The valid actions, sorted and each once: the engine's list for Simon Says repeats commands."""
    score: float
    """From 0 to 1."""
    success: bool
    failure: bool


class ExpressGame:
    """One game in the engine.

    Args:
        name: The engine's name of the game, such as ``cookingworld``.
        parameters: The engine's names of the parameters, and their values.

    Raises:
        EngineError: If the engine refuses; the message has the game, its parameters and the seed.
    """

    def __init__(self, name: str, parameters: dict[str, int]) -> None:
        self._name = name
        self._parameters = ",".join(f"{key}={value}" for key, value in parameters.items())
        self._seed: int | None = None
        self._joined_actions = ""
        self._valid_actions: tuple[str, ...] = ()
        jar = check_installed()
        start()
        self._java = _entry_class(jar)()
        self._read, self._step = _readers(jar)
        self._java_error: Any = import_extra("jpype", EXTRA).JException
        with self._errors():
            getattr(self._java, "gameGenerator_$eq")(_generator(jar, name, self._parameters))

    def __str__(self) -> str:
        """Return the name of the game for error messages."""
        return f"{self._name}({self._parameters}), seed {self._seed}"

    def start(self, seed: int, fold: str) -> ExpressState:
        """Begin the level `seed` of `fold`; the engine refuses a seed that is not one of the fold's."""
        with self._errors():
            answer = str(self._read(self._generate(seed, fold, gold=False)))
        return self._state(answer)

    def gold_path(self, seed: int, fold: str) -> tuple[tuple[str, ...], ExpressState]:
        """Begin the level `seed` of `fold`; return the engine's own solution, unverified, and the first state."""
        with self._errors():
            answer = str(self._read(self._generate(seed, fold, gold=True)))
            return strings(self._java.getGoldActionSequence()), self._state(answer)

    def replay(self, seed: int, fold: str, actions: Sequence[str]) -> None:
        """Begin a level and play actions, without reading the engine's answers, which takes longer than playing."""
        with self._errors():
            self._generate(seed, fold, gold=False)
            for action in actions:
                self._java.step(encodable(action))

    def _generate(self, seed: int, fold: str, *, gold: bool) -> Any:
        """Begin a level, and return the engine's answer, a Java object."""
        self._seed = seed
        if self._name != "sorting":
            return self._java.generateNewGame(seed, fold, gold)
        with _sorting_lock:
            answer = self._java.generateNewGame(seed, fold, gold)
            _renew_sorting_problem(seed, fold)
        return answer

    def step(self, action: str) -> ExpressState:
        """Play an action. The game also answers an invalid action, which costs a step."""
        enter()
        try:  # not `_errors`: this is the hot path, and a context manager costs 1.5 microseconds
            return self._state(str(self._step(self._java, encodable(action))))
        except self._java_error as error:
            raise _failure(self, error) from error

    def play(self, actions: Sequence[str]) -> ExpressState | None:
        """Play actions one after the other; return the state after the last action, or None without actions."""
        with self._errors():
            for action in actions[:-1]:
                self._java.step(encodable(action))
        return self.step(actions[-1]) if actions else None

    def winning(self, path: Sequence[str], state: ExpressState) -> tuple[str, ...] | None:
        """Play those steps of `path` that are valid when they are reached; return them up to the win, or None without a win.

        Args:
            path: The steps.
            state: The present state.
        """
        valid, played = state.valid_actions, []
        with self._errors():
            for action in path:
                if action in valid:
                    state = self._state(str(self._step(self._java, action)))
                    valid = state.valid_actions
                    played.append(action)
                    if state.success or state.failure:
                        return tuple(played) if state.success else None
        return None

    def task(self) -> str:
        """Return the present level's task."""
        with self._errors():
            return str(self._java.getTaskDescription())

    def seeds(self, fold: str) -> tuple[int, ...]:
        """Return the seeds of `fold`."""
        with self._errors():
            return numbers(getattr(self._java, f"getSeeds{fold.capitalize()}")())

    def plan(self, agent: str, played: int, seed: int = 0) -> tuple[str, ...]:
        """Return what the engine's gold agent would play from here, unverified.

        Args:
            agent: Class name of the agent. It plays this game itself, so the game must be started again afterwards.
            played: Number of steps so far. The agent's answer begins with the engine's own first look around and these steps.
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

        enter()
        try:
            yield
        except jpype.JException as error:
            raise _failure(self, error) from error

    def _state(self, answer: str) -> ExpressState:
        success, failure, score, valid_actions, look, inventory, observation = answer.split(_BETWEEN_FIELDS, 6)
        if observation.startswith("ERROR: "):  # the engine returns its complaints as observations
            raise EngineError(f"TextWorldExpress: {self}: {observation}")
        if valid_actions != self._joined_actions:  # many steps leave the valid actions as they are
            self._joined_actions = valid_actions
            self._valid_actions = tuple(sorted(set(valid_actions.split(_BETWEEN_ACTIONS)))) if valid_actions else ()
        return ExpressState(observation, look, inventory, self._valid_actions, float(score), success == "true", failure == "true")


def _failure(game: ExpressGame, error: Exception) -> EngineError:
    """Return the error to raise for an exception of Java."""
    return full_heap(f"TextWorldExpress: {game}", error) or EngineError(f"TextWorldExpress: {game}: {error}")
