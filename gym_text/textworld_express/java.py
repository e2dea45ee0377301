"""Steps of many games in a few calls of Java: every crossing from Python costs microseconds. Functions made of method handles.

There is no Java compiler in the runtime, so this is how Python gives Java a loop to run. It needs a running JVM.
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


_PACKAGES = {
    **dict.fromkeys(("Boolean", "Integer", "Object", "String", "System", "Throwable"), "java.lang"),
    **dict.fromkeys(("MethodHandle", "MethodHandles", "MethodHandleProxies", "MethodType"), "java.lang.invoke"),
    **dict.fromkeys(("CompletableFuture", "ForkJoinPool"), "java.util.concurrent"),
    **dict.fromkeys(("IntFunction", "Supplier"), "java.util.function"),
    **dict.fromkeys(("Collector", "Collectors", "IntStream", "Stream"), "java.util.stream"),
    "PythonInterface": "textworldexpress.runtime",
}


class _Classes:
    """Java's classes by name, looked up when they are first used: until then the JVM may not run."""

    def __getattr__(self, name: str) -> Any:
        if name not in _PACKAGES:
            raise AttributeError(name)
        found = JClass(f"{_PACKAGES[name]}.{name}")
        setattr(self, name, found)
        return found


_java: Any = _Classes()


def encodable(action: str) -> str:
    """Return an action as Java can take it: without lone surrogates, and without the characters that have a meaning here."""
    if action.isprintable() and action.isascii():
        return action
    return action.encode("utf-8", "replace").decode().translate(_CONTROLS)


def strings(iterable: Any) -> tuple[str, ...]:
    """Return the elements of a Java collection of strings."""
    joined = str(_java.String.join(_SEPARATOR, iterable))
    return tuple(joined.split(_SEPARATOR)) if joined else ()


class Players:
    """Plays one action in each of many games, in Java's own threads.

    Args:
        games: The engine's ``PythonInterface`` of each game.
    """

    def __init__(self, games: Sequence[Any]) -> None:
        self._actions = JArray(_java.String)(len(games))
        step = _java.MethodHandleProxies.asInterfaceInstance(
            _java.IntFunction.class_, _indexed(_safe_step(), JArray(_java.PythonInterface)(list(games)), self._actions)
        )
        size = -(-len(games) // _PARTS)
        self._parts = [_supplier(step, i, min(i + size, len(games))) for i in range(0, len(games), size)]

    def play(self, actions: Sequence[str | None]) -> Iterator[str | Exception | None]:
        """Yield the answer of each game, or what went wrong in it; None for a game that rests, whose action is None."""
        _java.System.arraycopy(
            _array([_REST if action is None else encodable(action) for action in actions]), 0, self._actions, 0, len(actions)
        )
        threads = _java.ForkJoinPool.commonPool()
        futures = [_java.CompletableFuture.supplyAsync(part, threads) for part in self._parts]
        try:
            for future in futures:
                for answer in str(future.join()).split(_SEPARATOR):
                    yield None if answer == _REST else RuntimeError(answer[1:]) if answer[0] == _FAILED else answer
        finally:  # no game is left playing, whatever interrupts
            for future in futures:
                future.join()


def _array(actions: Sequence[str]) -> Any:
    """Return a Java array of strings."""
    return _java.String(_SEPARATOR.join(actions)).split(_SEPARATOR, -1)


def _type(*types: Any) -> Any:
    """Return the type of a function: what it returns, then what it takes."""
    return _java.MethodType.methodType(*(getattr(each, "class_", each) for each in types))


def _find(name: str, owner: Any, *types: Any) -> Any:
    """Return the method `name` of a class as a function of its object and arguments; `types` as in `_type`."""
    return _java.MethodHandles.publicLookup().findVirtual(owner.class_, name, _type(*types))


def _safe_step() -> Any:
    """Return the function (game, action) -> answer that lets a game rest, and returns what Java throws."""
    thrown = _java.Throwable
    told = _java.MethodHandles.filterReturnValue(
        _find("toString", _java.Object, _java.String),
        _find("concat", _java.String, _java.String, _java.String).bindTo(JString(_FAILED)),
    )
    step = _java.MethodHandles.catchException(
        _find("stepJSON", _java.PythonInterface, _java.String, _java.String),
        thrown.class_,
        told.asType(_type(_java.String, thrown)),
    )
    is_rest = (
        _find("equals", _java.String, _java.Boolean.TYPE, _java.Object)
        .bindTo(JString(_REST))
        .asType(_type(_java.Boolean.TYPE, _java.String))
    )
    rest = _java.MethodHandles.constant(_java.String.class_, JString(_REST))
    return _java.MethodHandles.guardWithTest(
        _java.MethodHandles.dropArguments(is_rest, 0, [_java.PythonInterface.class_]),
        _java.MethodHandles.dropArguments(rest, 0, [_java.PythonInterface.class_, _java.String.class_]),
        step,
    )


def _indexed(step: Any, games: Any, actions: Any) -> Any:
    """Return the function i -> ``step(games[i], actions[i])``."""
    elements = [_java.MethodHandles.arrayElementGetter(array.getClass()).bindTo(array) for array in (games, actions)]
    of_both = _java.MethodHandles.filterArguments(step, 0, JArray(_java.MethodHandle)(elements))
    return _java.MethodHandles.permuteArguments(of_both, _type(_java.String, _java.Integer.TYPE), JArray(JInt)([0, 0]))


def _supplier(step: Any, start: int, stop: int) -> Any:
    """Return the function () -> the answers from `start` to before `stop`, joined by the separator."""
    call = _java.MethodHandles.publicLookup().findStatic(
        _java.IntStream.class_, "range", _type(_java.IntStream, _java.Integer.TYPE, _java.Integer.TYPE)
    )
    call = _java.MethodHandles.insertArguments(call, 0, [JInt(start), JInt(stop)])
    answers = _find("mapToObj", _java.IntStream, _java.Stream, _java.IntFunction)
    joined = _find("collect", _java.Stream, _java.Object, _java.Collector)
    for function, argument in ((answers, step), (joined, _java.Collectors.joining(_SEPARATOR))):
        call = _java.MethodHandles.filterReturnValue(call, _java.MethodHandles.insertArguments(function, 1, [argument]))
    return _java.MethodHandleProxies.asInterfaceInstance(_java.Supplier.class_, call)
