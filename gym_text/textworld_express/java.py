"""Steps of many games in a few calls of Java: every crossing from Python costs microseconds. Functions made of method handles.

There is no Java compiler in the runtime, so this is how Python gives Java a loop to run. Import it when the JVM runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jpype import JArray, JClass, JInt, JString

_SEPARATOR = "\x1e"
"""Stands between actions and between answers in a string: ASCII's record separator, which JSON escapes."""
_REST, _FAILED = "\x1d", "\x1c"
"""The action, and the answer, of a game that rests; what the answer of a game that failed begins with."""
_CONTROLS = str.maketrans(dict.fromkeys((_SEPARATOR, _REST, _FAILED), " "))
_PARTS = 4
"""Pieces of a step of many games: while Java plays the later ones, Python reads the answers of the earlier."""

_String: Any = JClass("java.lang.String")
_Object: Any = JClass("java.lang.Object")
_Stream: Any = JClass("java.util.stream.Stream")
_IntStream: Any = JClass("java.util.stream.IntStream")
_IntFunction: Any = JClass("java.util.function.IntFunction")
_Handles: Any = JClass("java.lang.invoke.MethodHandles")
_Interface: Any = JClass("textworldexpress.runtime.PythonInterface")
_as_interface: Any = JClass("java.lang.invoke.MethodHandleProxies").asInterfaceInstance
_copy: Any = JClass("java.lang.System").arraycopy
_start: Any = JClass("java.util.concurrent.CompletableFuture").supplyAsync
_threads: Any = JClass("java.util.concurrent.ForkJoinPool").commonPool()
_joining: Any = JClass("java.util.stream.Collectors").joining(_SEPARATOR)
_int, _boolean = JClass("java.lang.Integer").TYPE, JClass("java.lang.Boolean").TYPE


def encodable(action: str) -> str:
    """Return an action as Java can take it: without lone surrogates, and without the characters that have a meaning here."""
    if action.isprintable() and action.isascii():
        return action
    return action.encode("utf-8", "replace").decode().translate(_CONTROLS)


def strings(iterable: Any) -> tuple[str, ...]:
    """Return the elements of a Java collection of strings."""
    joined = str(_String.join(_SEPARATOR, iterable))
    return tuple(joined.split(_SEPARATOR)) if joined else ()


class Players:
    """Plays one action in each of many games, in Java's own threads.

    Args:
        games: The engine's ``PythonInterface`` of each game.
    """

    def __init__(self, games: Sequence[Any]) -> None:
        self._actions = JArray(_String)(len(games))
        step = _as_interface(_IntFunction.class_, _indexed(_safe_step(), JArray(_Interface)(list(games)), self._actions))
        size = -(-len(games) // _PARTS)
        self._parts = [_supplier(step, i, min(i + size, len(games))) for i in range(0, len(games), size)]

    def play(self, actions: Sequence[str | None]) -> Iterator[str | Exception | None]:
        """Yield the answer of each game, or what went wrong in it; None for a game that rests, whose action is None."""
        _copy(_array([_REST if action is None else encodable(action) for action in actions]), 0, self._actions, 0, len(actions))
        futures = [_start(part, _threads) for part in self._parts]
        try:
            for future in futures:
                for answer in str(future.join()).split(_SEPARATOR):
                    yield None if answer == _REST else RuntimeError(answer[1:]) if answer[0] == _FAILED else answer
        finally:  # no game is left playing, whatever interrupts
            for future in futures:
                future.join()


def _array(actions: Sequence[str]) -> Any:
    """Return a Java array of strings."""
    return _String(_SEPARATOR.join(actions)).split(_SEPARATOR, -1)


def _type(*types: Any) -> Any:
    """Return the type of a function: what it returns, then what it takes."""
    return JClass("java.lang.invoke.MethodType").methodType(*(getattr(each, "class_", each) for each in types))


def _find(name: str, owner: Any, *types: Any) -> Any:
    """Return the method `name` of a class as a function of its object and arguments; `types` as in `_type`."""
    return _Handles.publicLookup().findVirtual(owner.class_, name, _type(*types))


def _safe_step() -> Any:
    """Return the function (game, action) -> answer that lets a game rest, and returns what Java throws."""
    thrown = JClass("java.lang.Throwable")
    told = _Handles.filterReturnValue(
        _find("toString", _Object, _String), _find("concat", _String, _String, _String).bindTo(JString(_FAILED))
    )
    step = _Handles.catchException(
        _find("stepJSON", _Interface, _String, _String), thrown.class_, told.asType(_type(_String, thrown))
    )
    is_rest = _find("equals", _String, _boolean, _Object).bindTo(JString(_REST)).asType(_type(_boolean, _String))
    rest = _Handles.constant(_String.class_, JString(_REST))
    return _Handles.guardWithTest(
        _Handles.dropArguments(is_rest, 0, [_Interface.class_]),
        _Handles.dropArguments(rest, 0, [_Interface.class_, _String.class_]),
        step,
    )


def _indexed(step: Any, games: Any, actions: Any) -> Any:
    """Return the function i -> ``step(games[i], actions[i])``."""
    elements = [_Handles.arrayElementGetter(array.getClass()).bindTo(array) for array in (games, actions)]
    of_both = _Handles.filterArguments(step, 0, JArray(JClass("java.lang.invoke.MethodHandle"))(elements))
    return _Handles.permuteArguments(of_both, _type(_String, _int), JArray(JInt)([0, 0]))


def _supplier(step: Any, start: int, stop: int) -> Any:
    """Return the function () -> the answers from `start` to before `stop`, joined by the separator."""
    call = _Handles.publicLookup().findStatic(_IntStream.class_, "range", _type(_IntStream, _int, _int))
    call = _Handles.insertArguments(call, 0, [JInt(start), JInt(stop)])
    answers = _find("mapToObj", _IntStream, _Stream, _IntFunction)
    joined = _find("collect", _Stream, _Object, JClass("java.util.stream.Collector"))
    for function, argument in ((answers, step), (joined, _joining)):
        call = _Handles.filterReturnValue(call, _Handles.insertArguments(function, 1, [argument]))
    return _as_interface(JClass("java.util.function.Supplier").class_, call)
